"""
Why a pod is where it is, or nowhere: pure, like the rooms below it.

Takes a state as it was found and never changes it; what is tried is tried on a copy. Decides with `core.decide` and
nothing else, so that what it says is what the scheduler does. Imported by commands and by the shell; reads no clock,
speaks to no server and prints nothing.
"""
