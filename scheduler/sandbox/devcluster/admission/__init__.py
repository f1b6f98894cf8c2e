"""
The rules of stored objects, and the fields that the server writes into them.

Pure: objects in; objects, errors or a StatusError out.

    strategies, strategy   one `Strategy` per kind: defaults, preparation, validation; most are rows of a table
    shapes           the JSON types of the fields that are read, and fields that a kind does not have
    metadata         the rules of names and labels
    pods, affinity   what the server writes into a pod, and its rules
    workloads, volumes, device_claims, definitions   the rules of those kinds
"""
