"""
The embedded cluster: an in-memory Kubernetes API for trying, for demos and for tests.

It is not the product and imports nothing of it.
"""
