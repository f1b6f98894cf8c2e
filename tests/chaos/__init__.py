"""Seeded runs of the scheduler on an embedded cluster while everything that can fail does, judged by the write log."""
