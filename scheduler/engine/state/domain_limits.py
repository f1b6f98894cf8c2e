"""The most pods that an anti-affinity term allows in each domain, where that is a share of the selected pods."""

from __future__ import annotations

import numpy as np

from scheduler.engine.model.terms import Shares
from scheduler.engine.state.arrays import Amounts, Counts, Mask
from scheduler.engine.state.columns import LabelColumn


def n_divided(by_row: Counts, alive: Mask) -> int:
    """Return how many pods domains share: the selected ones on live nodes. Pods elsewhere are in no domain."""
    return int(by_row.sum(where=alive))


def most_per_domain(shares: Shares, column: LabelColumn, n_selected: int) -> Amounts:
    """
    Return the most selected pods of each domain: int64 array of shape (n_ids,).

    A share of `n_selected`, all pods that the term selects, is rounded up: some domain has room for one more pod if
    every domain with a share has a node. Weights of domains without a node do not count. O(weights).
    """
    whole = max(n_selected, shares.least_whole)
    if not shares.weights:
        return np.full(column.n_ids, -(-shares.percent * whole // 100), dtype=np.int64)
    most = np.zeros(column.n_ids, dtype=np.int64)
    weights = weights_in_use(shares, column)
    total = sum(weights.values())
    for domain, weight in weights.items():
        most[column.id_by_value[domain]] = -(-weight * whole // total)
    return most


def missing_per_domain(
    shares: Shares, column: LabelColumn, present: Amounts, n_selected: int, weight: int
) -> Amounts:
    """
    Return for each domain `weight` times the pods that it lacks of its share of `n_selected`, rounded down.

    Negative if it has more than its share. int64 array of shape (n_ids,); like `present`, 0 without the label.
    """
    weights = weights_in_use(shares, column)
    total = max(1, sum(weights.values()))
    missing: Amounts = -present * total
    for domain, of_domain in weights.items():
        missing[column.id_by_value[domain]] += of_domain * n_selected
    return weight * missing // total


def weights_in_use(shares: Shares, column: LabelColumn) -> dict[str, int]:
    """Return the weights of the domains that have a node."""
    return {domain: weight for domain, weight in shares.weights if domain in column.id_by_value}
