"""
Columnar cluster state with exactly one writer. Pure.

Belongs here: interning, node columns, label sets, selectors, counts per node row, the audit that recounts them.
Does not: any rule of a plugin, any order to the outside.
"""
