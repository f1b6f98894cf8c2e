"""
The state of the cluster as columns, with exactly one writer. Pure.

Belongs here: node and pod columns, label sets, counts per node row, derived values, the audit that recounts them.
Does not: any rule of a plugin, any instruction to the daemon.
"""
