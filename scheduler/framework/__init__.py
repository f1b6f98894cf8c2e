"""
The plugin contract. Pure.

Belongs here: protocols of the extension points, statuses, cluster events, profiles, the diagnosis text.
Does not: any plugin by name, any metric. `core.decide` runs the plugins.
"""
