"""
The plugin contract. Pure.

Belongs here: a base class for each extension point, statuses, cluster events, profiles, the diagnosis text.
Does not: any plugin by name, any metric. `engine.core.decide` runs the plugins.
"""
