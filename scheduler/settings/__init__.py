"""
Reads KubeSchedulerConfiguration files into frozen, validated values; every error names file and field.
"""
