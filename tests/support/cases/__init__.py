"""
The edge cases of the rules as plain data; the reference and the product have to agree with each.

A `row.Row` is a cluster, a pod and what one plugin has to say; the other modules are lists of them.
"""
