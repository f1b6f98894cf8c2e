"""The daemon as its users run it: a process of its own, against an API server, from which all is read back."""
