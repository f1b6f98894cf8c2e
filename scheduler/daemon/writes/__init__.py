"""Carries out what the machine decides: binds, claims, evictions, conditions, events."""
