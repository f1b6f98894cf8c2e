"""
A scheduling decision of Kubernetes 1.36, worked out the plain way: the oracle of the property tests.

Written from the rules alone, on API objects as JSON. Imports nothing of the product, keeps no counts between two
questions, and prefers loops that read like the rule to anything quicker. Start at `cluster.Cluster`.
"""
