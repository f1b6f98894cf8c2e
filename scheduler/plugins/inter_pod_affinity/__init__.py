"""InterPodAffinity: which pods must, must not, should or should not share a topology domain with this one."""
