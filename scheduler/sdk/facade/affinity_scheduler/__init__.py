"""
The names that users import: `affinity_scheduler.plugin` and `affinity_scheduler.testing`.

Other projects have a package `scheduler` too, as this one's modules are called. These names lead to the same objects;
the old ones, `scheduler.sdk.plugin` and `scheduler.sdk.testing`, stay.
"""
