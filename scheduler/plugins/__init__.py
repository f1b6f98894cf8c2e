"""
One plugin, one file, readable top to bottom. Pure.

A plugin gets a read-only snapshot and returns arrays. It never loops over nodes, sees another plugin, logs or
counts. `registry` holds the only list of them.
"""
