"""
Controllers: deployments roll, workloads keep their pods, claims get volumes and devices, bound pods run.

    deployments, workloads, disruption, volumes, device_claims, kubelet
                         the plans: an object and the store in, actions out; nothing is written
    actions, objects     what plans say, and what they read of objects
    planning             which plan a kind has, and which objects a change concerns
    loop                 plans, executes and records, each object when it is due

Nothing here speaks HTTP.
"""
