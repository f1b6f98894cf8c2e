"""
The Score of InterPodAffinity: weights of preferred terms, of the incoming pod and of running pods that select it.

Required affinity of a running pod that selects the incoming pod counts with hardPodAffinityWeight. The worst feasible
node gets 0, the best 100.

Source: plugins/interpodaffinity/scoring.go (kubernetes 1.36).
"""

from __future__ import annotations

from functools import lru_cache, partial, reduce
from operator import add
from typing import Final

import numpy as np

from scheduler.engine.framework.interface import MAX_NODE_SCORE, FeasibleNodes, PodContext
from scheduler.engine.plugins.inter_pod_affinity.terms import IncomingTerms
from scheduler.engine.state.arrays import Amounts, Scores
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.columns import ABSENT, PerDomain
from scheduler.engine.state.counts import TermSums
from scheduler.engine.state.domain_limits import missing_per_domain, n_divided
from scheduler.engine.state.existing_terms import ExistingPodTerm, TermKind

#: The most entries of a table of scores: 8 KB.
_TABLE_SIZE: Final = 4096


def min_max_normalized(raw: Amounts, feasible: FeasibleNodes) -> Scores:
    """Return scores scaled so that the lowest raw score of a feasible node gives 0 and the highest 100; 0 if equal."""
    # int64(100.0 * (float64(raw - lowest) / float64(highest - lowest))): division first, truncated, so that 29 of 100
    # gives 28. Source: interpodaffinity/scoring.go, NormalizeScore (kubernetes 1.36).
    lowest = feasible.lowest(raw)
    span = feasible.highest(raw) - lowest
    if not span:
        return np.zeros(len(raw), dtype=np.int16)
    # Sums of infeasible rows may be outside the span; clip them.
    if span < _TABLE_SIZE:
        return _scores_up_to(span).take(raw - lowest, mode="clip")
    return (MAX_NODE_SCORE * (np.clip(raw - lowest, 0, span) / span)).astype(np.int16)


@lru_cache(maxsize=64)
def _scores_up_to(span: int) -> Scores:
    """Return the score of each difference from 0 to `span`. A look-up costs a third of the division."""
    return (MAX_NODE_SCORE * (np.arange(span + 1) / span)).astype(np.int16)


def preference_sums(
    context: PodContext, view: ClusterView, terms: IncomingTerms, hard_weight: int
) -> Amounts | None:
    """Return the sum of the weights that apply to each node; None if no term applies to any node."""
    # int64 array of shape (n_rows,). It may be 0 everywhere and still not be None: upstream skips the pod only for
    # None.
    weigh = partial(_weight, hard_weight=hard_weight)
    existing = view.state.counts.term_sums(("scoring", hard_weight), context.label_set, weigh)
    by_key = dict(existing.by_key)
    for matcher, key, weight in terms.preferred:
        pods = view.pods_by_domain(matcher, key)
        weighted = weight * pods.amounts
        by_key[key] = PerDomain(by_key[key].amounts + weighted if key in by_key else weighted, pods.ids)
    for matcher, key, shares, weight in terms.shared:
        pods = view.pods_by_domain(matcher, key)
        n_selected = n_divided(view.selected(matcher).by_row, view.alive) + 1
        missing = missing_per_domain(shares, view.column(key), pods.amounts, n_selected, weight)
        by_key[key] = PerDomain(by_key[key].amounts + missing if key in by_key else missing, pods.ids)
    sums = [per_domain.on_nodes() for per_domain in by_key.values() if per_domain.amounts.any()]
    if not sums and not _applies_anywhere(context, view, terms, existing, hard_weight):
        return None
    return reduce(add, sums) if sums else np.zeros(view.n_rows, dtype=np.int64)


def _applies_anywhere(
    context: PodContext, view: ClusterView, terms: IncomingTerms, existing: TermSums, hard_weight: int
) -> bool:
    """Return whether a term applies to some node, for sums that are all 0: weights may cancel out."""
    n_rows = view.n_rows
    for matcher, key, _ in terms.preferred:
        has_key = view.column(key).ids[:n_rows] != ABSENT
        if has_key.any() and view.selected(matcher).by_row[has_key].any():
            return True
    if not existing.by_key:
        return False
    applying = view.state.counts.term_sums(
        ("applying", hard_weight), context.label_set, partial(_applies, hard_weight=hard_weight)
    )
    return any(sums.amounts.any() for sums in applying.by_key.values())


def _applies(term: ExistingPodTerm, *, hard_weight: int) -> int:
    return int(_weight(term, hard_weight=hard_weight) != 0)


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
