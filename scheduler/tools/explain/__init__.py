"""
Explains why a pod is pending, or why it runs where it does.

The room is pure: no IO, no clock, no output. Changes are tried in the state that it gets, and taken back. It
decides with `engine.core.decide`, so an explanation cannot differ from the scheduler. It knows no plugin: each
explains its own refusals (`engine.framework.explaining`). Imported by commands and other tools.
"""
