"""
Builds what runs from the configuration: profiles, the queue, the watched kinds.

Pure: `loop` and `cli` do the reading and the waiting.
"""
