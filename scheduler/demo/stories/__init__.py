"""
The stories of `affinity-scheduler demo`: one file each, and what they share.

A story is a user of the cluster: it applies manifests, reads objects and judges by them alone, over HTTP. It knows
nothing of the scheduler but its /metrics, and imports none of the rooms that decide.
"""
