"""
Explains why a pod is pending, or why it runs where it does.

The room is pure: no IO, no clock, no output. It never changes the state that it gets; changes are tried on a copy. It
decides with `engine.core.decide`, so an explanation cannot differ from the scheduler. It knows no plugin: each
explains its own refusals (`engine.framework.explaining`). Imported by commands and other tools.
"""
