"""
Builds what runs from the configuration: profiles, the queue, the watched kinds, a cluster that was loaded once.

Pure: `loop` and `cli` do the reading and the waiting.
"""
