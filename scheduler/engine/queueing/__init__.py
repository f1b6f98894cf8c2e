"""
The scheduling queue: which pending pod is tried next, and when a rejected pod is tried again.

Pure; the time is an argument. What a plugin decides about a pod or an event is not in this package.
"""
