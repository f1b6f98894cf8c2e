"""
The only room that speaks HTTP to Kubernetes.

Belongs here: requests and responses as values, list-watch reflectors, credentials, transport, event series. Does not
belong here: the meaning of a pod or node, the decision to bind, a failure that outlasts a reconnect.
"""
