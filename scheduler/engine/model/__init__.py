"""
Kubernetes objects as the scheduler reads them, parsed once and immutable, and the core's stimuli and instructions.

Pure. Contains affinity terms, pods, nodes, stimuli, instructions and changes; counts and rows belong to `state`.
"""
