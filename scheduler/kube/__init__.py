"""
The only room that speaks HTTP to Kubernetes.

Belongs here: requests and answers as values, list-watch reflectors, credentials, transport, event series.
Does not: what a pod or a node means, when to bind, what to do about a failure that outlasts a reconnect.
"""
