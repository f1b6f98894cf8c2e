"""
The API over HTTP.

    server          the meaning of every path
    routes          from method and path to verb, kind, namespace and name
    authorization   the rights of the sender
    handlers        every verb but watch
    watches         streams of changes
    negotiation, protobuf   bodies: from bytes to objects and back
    discovery, openapi      kubectl's first requests
    faults          misbehaviour on demand, for tests
"""
