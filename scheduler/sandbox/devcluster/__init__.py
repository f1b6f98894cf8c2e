"""
The embedded cluster: a Kubernetes API in memory, for trying the scheduler, for the demo and for tests.

It is not the product; of the product it imports `scheduler.engine.syntax` and `scheduler.errors` alone. See README.md.
"""
