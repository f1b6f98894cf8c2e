"""The arguments of DefaultPreemption, complete."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DefaultPreemptionArgs:
    """
    How many candidates to look for: a share of the nodes where victims may help, but at least a number.

    `prefer_fewer_victims`: whether pods of equal priority are reprieved by their use for the pod too (not upstream).
    """

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100
    prefer_fewer_victims: bool = False

    def n_wanted(self, n_nodes: int) -> int:
        """Return how many candidates are enough, among so many nodes."""
        share = n_nodes * self.min_candidate_nodes_percentage // 100
        return min(n_nodes, max(share, self.min_candidate_nodes_absolute))
