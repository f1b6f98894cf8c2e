"""
Kubernetes objects as the scheduler reads them, parsed once and immutable, and what the core receives and orders.

Pure. Contains affinity terms, pods, nodes, stimuli, instructions and changes; counts and rows belong to `state`.
"""
