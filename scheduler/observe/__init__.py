"""
What operators see: metrics, logs, and the observer that times plugins from outside.

The rooms that decide know nothing of this one: what they keep as plain numbers is read here when Prometheus asks.
Imported by `shell` and `cli` only.
"""
