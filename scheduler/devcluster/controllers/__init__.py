"""
Controllers: deployments roll, replica sets and stateful sets keep their pods, bound pods run.

    deployments, replicasets, statefulsets, disruption, quotas   one `plan` each: objects and a time in, actions out
    actions, execution   what a plan may order, and the writes it becomes
    loop, index          which object is planned when
    kubelet, kubelet_loop   the stand-in for the kubelets of all nodes

Nothing here speaks HTTP.
"""
