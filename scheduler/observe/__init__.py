"""
What operators see: metrics, logs, and the observer that times plugins from outside.

The pure rooms do not know this one: it reads their plain numbers at every scrape. Imported by `serving`, `shell`,
`webhook` and `cli`.
"""
