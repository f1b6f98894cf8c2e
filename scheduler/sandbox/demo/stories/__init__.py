"""
The stories of `affinity-scheduler demo`, one file each.

A story is a user of the cluster: it applies manifests, reads objects over HTTP and judges by them alone. Of the
scheduler it knows only what its page shows.
"""
