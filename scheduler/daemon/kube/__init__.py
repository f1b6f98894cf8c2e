"""
The only room that speaks HTTP to Kubernetes.

Belongs here: requests and responses as values, list-watch reflectors, credentials, transport, event series. Does not
belong here: the meaning of a pod or node, the decision to bind, a failure that outlasts a reconnect.

kubernetes-asyncio (36.1) renews ID tokens (`login`) and does nothing else here. It costs too much:
- Its import takes 0.5 s and 48 MB, at every start.
- It sends with aiohttp's client: 77 µs of CPU a request, of which a pod takes two, instead of a third (`transport`).
Its loader of kubeconfig files differs from client-go 1.36. Each difference was reproduced:
- The last current-context of several files wins. A user without an entry is anonymous; an unknown auth-provider, too.
- A token has precedence over a token file. The header contains the newline at the file's end.
- An exec plugin beside the kubeconfig is not found, hangs if it writes 300 KB to stderr, runs on after the deadline.
- It renews an ID token without a check of the issuer's TLS certificate, and never if the issuer's CA is configured.
- Private keys are written to files that stay until the process ends.
- Invalid YAML, an empty file and a cluster without a server are a ParserError, a TypeError and an AssertionError.
Its leader election writes local times as UTC, waits for ever on a hung request, continues to lead after a lost
connection, and never releases.
"""
