"""
The grammar of names, labels, selectors and quantities in Kubernetes' objects, and the errors for what breaks it.

The product and the embedded cluster both import this room. It is pure and imports no other.
"""
