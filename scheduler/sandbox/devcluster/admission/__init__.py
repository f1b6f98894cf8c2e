"""
The rules of stored objects, and the fields that the server writes into them.

Pure: objects in; objects, errors or a StatusError out.

    strategies       one `Strategy` per kind: defaults, preparation, validation
    shapes           the JSON types of the fields that are read
    defaults         the fields that the server fills in
    metadata         the rules of names, labels and owners
    pods             what the server writes into a pod; its rules: pod_validation, pod_parts, affinity
    *_rules          the rules of events, quotas, roles and webhook configurations
    workloads        the rules of Deployments, ReplicaSets and StatefulSets
    quotas           what a pod uses of ResourceQuotas
"""
