"""
The Score of InterPodAffinity: weights of preferred terms, the pod's own and those of running pods that match it.

Every required affinity of a running pod counts as a preference in reverse (hardPodAffinityWeight). The worst feasible
node gets 0, the best 100.

Source: plugins/interpodaffinity/scoring.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial, reduce
from operator import add

import numpy as np

from scheduler.framework.interface import Feasible, PodContext
from scheduler.framework.normalizing import min_max_normalized
from scheduler.plugins.inter_pod_affinity.terms import IncomingTerms
from scheduler.state.arrays import Amounts, Scores
from scheduler.state.columns import ABSENT, PerDomain
from scheduler.state.counts import TermSums
from scheduler.state.existing_terms import ExistingPodTerm, TermKind
from scheduler.state.snapshot import Snapshot


class AffinityScorer:
    """Weighted sums per node, and their normalisation."""

    def __init__(self, sums: Amounts, feasible: Feasible) -> None:
        self._sums = sums
        self._feasible = feasible

    def raw(self) -> Amounts:
        """Return the sums: int64 array of shape (n_rows,), may be negative."""
        return self._sums

    def normalized(self, raw: Amounts) -> Scores:
        """Return 0 for the lowest sum of a feasible node and 100 for the highest."""
        return min_max_normalized(raw, self._feasible)


def preference_sums(
    context: PodContext, snapshot: Snapshot, terms: IncomingTerms, hard_weight: int
) -> Amounts | None:
    """
    Return the weights that apply on each node, added up; None if no term reaches any node.

    int64 array of shape (n_rows,). It may be 0 everywhere and still not be None: upstream skips only the latter.
    Cost: 10 µs per topology key at 5,000 rows.
    """
    weigh = partial(_weight, hard_weight=hard_weight)
    existing = snapshot.term_sums(("scoring", hard_weight), context.label_set, weigh)
    by_key = dict(existing.by_key)
    for matcher, key, weight in terms.preferred:
        pods = snapshot.pods_by_domain(matcher, key)
        weighted = weight * pods.amounts
        by_key[key] = PerDomain(by_key[key].amounts + weighted if key in by_key else weighted, pods.ids)
    reaching = [one.on_nodes() for one in by_key.values() if one.amounts.any()]
    if not reaching and not _reaches_any(snapshot, terms, existing):
        return None
    return reduce(add, reaching) if reaching else np.zeros(snapshot.n_rows, dtype=np.int64)


def _reaches_any(snapshot: Snapshot, terms: IncomingTerms, existing: TermSums) -> bool:
    """Return whether weights that cancel out apply on some node. Only asked if all sums are 0."""
    n_rows = snapshot.n_rows
    for matcher, key, _ in terms.preferred:
        has_key = snapshot.column(key).ids[:n_rows] != ABSENT
        if snapshot.selected(matcher).by_row[has_key].any():
            return True
    return any(
        bool((snapshot.column(term.key.topology_key).ids[list(term.pods_by_row)] != ABSENT).any())
        for term in _counting(existing.weights)
    )


def _counting(weights: Mapping[ExistingPodTerm, int]) -> list[ExistingPodTerm]:
    return [term for term, weight in weights.items() if weight and term.pods_by_row]


def _weight(term: ExistingPodTerm, *, hard_weight: int) -> int:
    match term.key.kind:
        case TermKind.REQUIRED:
            return hard_weight
        case TermKind.PREFERRED:
            return term.key.weight
        case TermKind.PREFERRED_ANTI:
            return -term.key.weight
        case TermKind.REQUIRED_ANTI:
            return 0
