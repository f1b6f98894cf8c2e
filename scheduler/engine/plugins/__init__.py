"""
The plugins, one file or package each. Pure.

A plugin gets a read-only view and returns arrays. It does not see other plugins, log or count. `registry` has the
only list of plugins.
"""
