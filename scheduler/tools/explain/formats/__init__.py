"""
The files and values that are read and printed: manifests, snapshots, recordings and explanations.

Pure: bytes in, values out. Reading files and printing belongs to `cli`.
"""
