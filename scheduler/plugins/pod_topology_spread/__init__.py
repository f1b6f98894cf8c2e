"""PodTopologySpread: pods that a selector selects stay even over the domains of a topology key."""
