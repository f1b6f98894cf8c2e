"""
Recorded decisions of Kubernetes 1.36, asked again and compared: `python -m tests.conformance FILE...`.

`traces` reads the files, `subject` holds what may be asked, `compare` tells where two answers differ.
"""
