"""
Reads KubeSchedulerConfiguration files into frozen, validated values; every error names file and field.

Belongs here: the YAML reader, strict decoding, upstream's defaults and validation, merging of plugin lists, feature
gates, writing the completed configuration. Does not belong here: flags of commands, the effect of a setting. The pure
rooms never import it: the daemon passes them plain values.
"""
