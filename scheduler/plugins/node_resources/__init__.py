"""NodeResourcesFit and NodeResourcesBalancedAllocation: what pods request against what nodes have."""
