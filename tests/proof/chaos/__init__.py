"""Seeded runs of the scheduler on a failing embedded cluster, judged by the write log."""
