"""
Controllers: deployments roll, replica sets and stateful sets keep their pods, bound pods run.

    deployments, replicasets, statefulsets, daemonsets, jobs, disruption, quotas, claims, volumes
                         one `plan` each: objects and a time in, actions out
    provisioning         the provisioner of every storage class
    actions, execution   the actions of a plan, and their execution as writes
    planning             what each plan reads
    loop, index, volume_index   which object is planned when
    kubelet, kubelet_loop   the stand-in for the kubelets of all nodes

Nothing here speaks HTTP.
"""
