"""
The tables of `kubectl get`: the server writes the text of every cell.

    tables      the columns of each kind
    pod_cells   READY, STATUS and RESTARTS of a pod
    ages        `4m5s`, `2d3h`
"""
