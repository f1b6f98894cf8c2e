"""The command line: one file per command. `main` parses the arguments and runs the command."""
