"""
What Kubernetes said, parsed once and frozen. Pure.

Belongs here: quantities, labels and selectors, affinity terms, pods, nodes, stimuli and instructions.
Does not: counts, rows, ids. Every room may import it; it imports only `errors`.
"""
