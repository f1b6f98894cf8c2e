"""
Metrics, logs, and the observer that times plugins.

The rooms that decide do not import this one: it reads their numbers at every scrape. Imported by `port`, `loop`,
`webhook` and `cli`.
"""
