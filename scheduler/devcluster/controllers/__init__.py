"""
Controllers: deployments roll, replica sets and stateful sets keep their pods, bound pods run.

    deployments, replicasets, statefulsets, disruption, quotas   one `plan` each: objects and a time in, actions out
    actions, execution   the actions of a plan, and their execution as writes
    loop, index          which object is planned when
    kubelet, kubelet_loop   the stand-in for the kubelets of all nodes

Nothing here speaks HTTP.
"""
