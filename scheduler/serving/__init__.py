"""
The ports of every command: metrics and health over HTTP, certificates, and who may ask.

A port that leaves the pod is HTTPS, and whoever asks is known to the API server; on loopback it is plain HTTP.
Imported by `shell`, `webhook` and `cli`; knows nothing of what is scheduled.
"""
