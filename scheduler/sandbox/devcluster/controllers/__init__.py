"""
Controllers: deployments roll, replica sets and stateful sets keep their pods, claims get volumes, bound pods run.

    deployments, replicasets, statefulsets, daemonsets, jobs, disruption, claims, volumes, device_claims
                         one pure `plan` each: objects and a time in, actions out
    actions, ownership, pods   what plans say, and what they read of objects
    planning             what each plan reads of the store, and which objects a change concerns
    loop, queue          plans, executes and records, each object when it is due
    kubelet              the stand-in for the kubelets of all nodes

Nothing here speaks HTTP.
"""
