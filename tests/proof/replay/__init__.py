"""Plays a trace of a cluster's jobs in virtual time: what groups on the topology of a machine room gain."""
