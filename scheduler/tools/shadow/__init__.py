"""
Compares the decisions of another scheduler with ours, on the state as it stood then.

The comparison is pure; `loop` watches a cluster, `cluster_recording` saves what a watch shows.
"""
