"""The decision, and the machine that turns stimuli into instructions. Pure."""
