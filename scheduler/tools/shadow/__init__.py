"""Compares the decisions of another scheduler with ours, on the state as it stood then. Pure."""
