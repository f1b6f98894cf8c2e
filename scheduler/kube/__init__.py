"""
The only room that speaks HTTP to Kubernetes: requests, responses, list-watch, credentials.
"""
