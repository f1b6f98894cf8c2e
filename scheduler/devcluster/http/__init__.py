"""
The API over HTTP.

    server          the meaning of every path
    routes          from method and path to verb, kind, namespace and name
    authorization   may the sender do it?
    handlers        every verb but watch
    watches         streams of changes
    negotiation, protobuf   bodies: from bytes to objects and back
    discovery, openapi      what kubectl asks before anything else
    faults          misbehaviour on demand, for tests
"""
