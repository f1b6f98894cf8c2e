"""The pods that a constraint counts, and the eligible nodes: they form the domains, and only their pods count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scheduler.engine.model.pods import Pod
from scheduler.engine.plugins.pod_topology_spread.constraints import MergedConstraint
from scheduler.engine.state.arrays import Counts, Mask, Rows
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.columns import LabelColumn, PerDomain
from scheduler.engine.state.counts import KeyDomains, PodCounts


@dataclass(eq=False)
class CountedPods:
    """
    A constraint, the domains of its topology key, and the pods that it counts.

    `counts`: selected pods that are not terminating; None if no pod counts. `eligible`: the nodes that form the domains
    and whose pods count, bool array of shape (n_rows,).
    """

    constraint: MergedConstraint
    column: LabelColumn
    counts: PodCounts | None
    eligible: Mask

    def by_row(self) -> Counts:
        """Return the counted pods on each row, eligible or not: int32 array of shape (n_rows,)."""
        return np.zeros(len(self.eligible), dtype=np.int32) if self.counts is None else self.counts.by_row

    def per_domain(self) -> PerDomain:
        """Return the counted pods of each domain, not to be written to."""
        if self.counts is None:
            return self.column.per_domain(self.by_row())
        return self.counts.per_domain(KeyDomains(self.column, self.eligible))

    def domains(self) -> Rows:
        """Return the ids of the domains of eligible nodes."""
        return self.column.per_domain(self.eligible).amounts.nonzero()[0]

    def fewest(self) -> int:
        """Return the fewest pods of a domain; 0 if there are fewer domains than minDomains."""
        domains = self.domains()
        return int(self.per_domain().amounts[domains].min()) if self._has_enough(len(domains)) else 0

    def fewest_beside(self, domain: int, n_here: int) -> int:
        """Return what `fewest` would be if the domain had so many pods. O(n_rows) at first, then O(1)."""
        domains, emptiest = self._emptiest
        elsewhere = [n_pods for n_pods, other in emptiest if other != domain]
        # A node that is not eligible may have a domain that does not count.
        return (
            min([*elsewhere, n_here] if domain in domains else elsewhere)
            if self._has_enough(len(domains))
            else 0
        )

    def _has_enough(self, n_domains: int) -> bool:
        return n_domains >= max(1, self.constraint.declared.min_domains)

    @cached_property
    def _emptiest(self) -> tuple[frozenset[int], Sequence[tuple[int, int]]]:
        """The ids of the domains; for the two with the fewest pods, that number and the id."""
        ids = self.domains()
        n_pods = self.per_domain().amounts[ids]
        two = np.argsort(n_pods, kind="stable")[:2]
        return frozenset(ids.tolist()), list(zip(n_pods[two].tolist(), ids[two].tolist(), strict=True))

    def most(self, pod: Pod, fewest: int) -> int:
        """Return how many pods a domain may have before the pod comes, if the emptiest one has `fewest`."""
        return fewest + self.constraint.declared.max_skew - int(self.constraint.selects(pod))


def counted_pods(
    pod: Pod, view: ClusterView, constraints: Sequence[MergedConstraint], keys: tuple[str, ...]
) -> list[CountedPods]:
    """Return the counted pods of each constraint. `keys`: labels that an eligible node must have."""
    rule, tolerations = pod.spec.required_node_affinity, pod.spec.tolerations
    return [
        CountedPods(
            constraint,
            view.column(constraint.declared.topology_key),
            None if constraint.matcher is None else view.selected(constraint.matcher, live_only=True),
            view.eligible(
                keys,
                rule if constraint.declared.honor_node_affinity and not rule.matches_all_nodes else None,
                tolerations if constraint.declared.honor_node_taints else None,
            ),
        )
        for constraint in constraints
    ]


def topology_keys(constraints: Sequence[MergedConstraint]) -> tuple[str, ...]:
    """Return the key of each constraint."""
    return tuple(constraint.declared.topology_key for constraint in constraints)
