"""
Points of soft spread constraints, and scores from them.

A constraint gives a node `pods * ln(domains + 2) + maxSkew - 1`, and the fewer points the better. Nodes that cannot
differ in their points are of one kind: so many numbers are computed, and no more.

Source: plugins/podtopologyspread/scoring.go (kubernetes 1.36).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final, NamedTuple, overload

import numpy as np

from scheduler.framework.interface import Feasible
from scheduler.framework.normalizing import MAX_NODE_SCORE
from scheduler.state.arrays import Amount, Amounts, Counts, Fraction, Fractions, Rows, Scores, rounded

#: Tables of points that are kept, one number for each pod that a node may hold.
_KEPT_TABLES: Final = 64

#: Points by pods on a node where no constraint asks for them.
NO_POINTS: Final[Fractions] = np.zeros(1)


class Kinds(NamedTuple):
    """
    All constraints' points together, by kind of node, rounded once.

    `points`: int64 by kind. `which`: the kind of each node, shape (n_rows,). `occurring`: the kinds of scored nodes,
    None where only a look at every node tells.
    """

    points: Amounts
    which: Rows | Counts
    occurring: Rows | None


class PointTable:
    """
    The points of a constraint on domains, and of one on nodes beside it where there is one: the default constraints.

    `points`: int64 by pods on the node, and for each number of those by domain id. `on_node`: the part of the former.
    """

    def __init__(self, on_node: Fractions, in_domain: Fractions) -> None:
        self.on_node = on_node
        self._n_ids = len(in_domain)
        self.points = rounded(np.add.outer(on_node, in_domain)).ravel()

    def move(self, domain: int, points: float) -> None:
        """The domain has these points now."""
        self.points[domain :: self._n_ids] = rounded(self.on_node + points)


@overload
def points_of(pods: int, n_domains: int, max_skew: int) -> float: ...
@overload
def points_of(pods: Amounts, n_domains: int, max_skew: int) -> Fractions: ...
def points_of(pods: Amount, n_domains: int, max_skew: int) -> Fraction:
    """What one constraint gives to nodes in domains of so many pods."""
    return pods * math.log(n_domains + 2) + float(max_skew - 1)


@lru_cache(maxsize=_KEPT_TABLES)
def points_up_to(highest: int, n_domains: int, max_skew: int) -> Fractions:
    """The points of 0 to `highest` pods, not to be written to: many pods in a row find the same."""
    return points_of(np.arange(highest + 1), n_domains, max_skew)


def emptiest_first(kinds: Kinds, scored: Feasible) -> Scores:
    """The emptiest scored node gets 100, the fullest 100 * lowest / highest: int16 array of shape (n_rows,)."""
    if scored.n == 0:
        return np.zeros(len(kinds.which), dtype=np.int16)
    lowest, highest = _extremes(kinds, scored)
    if highest == 0:
        return np.full(len(kinds.which), MAX_NODE_SCORE, dtype=np.int16)
    by_kind = (MAX_NODE_SCORE * (highest + lowest - kinds.points) // highest).astype(np.int16)
    # Every kind is one of them; other modes look first.
    return by_kind.take(kinds.which, mode="clip")


def _extremes(kinds: Kinds, scored: Feasible) -> tuple[int, int]:
    """The lowest and the highest points of a scored node."""
    if kinds.occurring is None:
        of_nodes = kinds.points.take(kinds.which, mode="clip")
        return scored.lowest(of_nodes), scored.highest(of_nodes)
    points = kinds.points.take(kinds.occurring)
    return points.item(points.argmin()), points.item(points.argmax())
