"""
The ports of every command: metrics and health over HTTP, TLS, authentication and authorization of clients.

A port that is reachable from outside the machine uses HTTPS and authenticates its clients; a port on loopback uses
plain HTTP. Imported by `loop`, tools and `cli`; knows nothing of scheduling.
"""
