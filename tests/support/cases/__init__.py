"""
The edge cases of the rules as plain data, to be put to the reference and to the product alike.

A `row.Row` is a cluster, a pod and what one plugin has to say; the other modules are lists of them.
"""
