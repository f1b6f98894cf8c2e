"""NodeResourcesFit and NodeResourcesBalancedAllocation: requests of pods compared with allocatable of nodes."""
