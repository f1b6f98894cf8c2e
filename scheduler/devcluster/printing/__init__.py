"""
What kubectl shows: the server words every cell of `kubectl get`.

    tables      the columns of each kind
    pod_cells   READY, STATUS and RESTARTS of a pod
    ages        `4m5s`, `2d3h`
"""
