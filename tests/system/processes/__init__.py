"""The daemon as a process of its own against an API server; every result is read from the server."""
