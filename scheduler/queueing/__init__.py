"""
Who is tried next, and when. Pure; the time is an argument.

Belongs here: active, backoff and unschedulable pods, requeueing by event. Does not: what a plugin decides.
"""
