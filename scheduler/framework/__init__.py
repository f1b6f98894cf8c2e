"""
The plugin contract and the thing that runs it. Pure.

Belongs here: stage protocols, verdicts, cluster events, the runner, the diagnosis text.
Does not: any plugin by name, any metric.
"""
