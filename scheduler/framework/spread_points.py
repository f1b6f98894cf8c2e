"""
Points of soft spread constraints, and scores from them.

A constraint gives a node `pods * ln(domains + 2) + maxSkew - 1`, and the fewer points the better. Nodes that cannot
differ in their points are of one kind: so many numbers are computed, and no more.

Source: plugins/podtopologyspread/scoring.go (kubernetes 1.36).
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from functools import lru_cache
from typing import Final, NamedTuple, overload

import numpy as np

from scheduler.framework.interface import Feasible
from scheduler.framework.normalizing import MAX_NODE_SCORE
from scheduler.framework.recalling import Recalled
from scheduler.state.arrays import (
    Amount,
    Amounts,
    Counts,
    Fraction,
    Fractions,
    Rows,
    Scores,
    nearest,
    rounded,
)

#: Tables of points that are kept, one number for each pod that a node may hold.
_KEPT_TABLES: Final = 64

#: Kinds of nodes that are computed one by one.
_FEW_KINDS: Final = 32

#: Points by pods on a node where no constraint asks for them.
NO_POINTS: Final[Fractions] = np.zeros(1)


class Kinds(NamedTuple):
    """
    All constraints' points together, by kind of node, rounded once.

    `points`: int64 by kind, or a list where the kinds are few. `which`: the kind of each node, shape (n_rows,).
    `occurring`: the kinds of scored nodes, None where only a look at every node tells.
    """

    points: Amounts | list[int]
    which: Rows | Counts
    occurring: list[int] | None


class PointTable:
    """
    The points of a constraint on domains, and of one on nodes beside it where there is one: the default constraints.

    `points`: int64 by pods on the node, and for each number of those by domain id; a list where they are few, since
    numpy takes longer to begin with than for all of them. `on_node`: the part of the former.
    """

    def __init__(self, on_node: Fractions, in_domain: Fractions) -> None:
        self.on_node = on_node
        self._n_ids = len(in_domain)
        points = rounded(np.add.outer(on_node, in_domain)).ravel()
        self.points: Amounts | list[int] = points.tolist() if len(points) <= _FEW_KINDS else points

    def move(self, domain: int, points: float) -> None:
        """The domain has these points now. O(len(on_node))."""
        if isinstance(self.points, list):
            for kind, on_node in zip(
                range(domain, len(self.points), self._n_ids), self.on_node.tolist(), strict=True
            ):
                self.points[kind] = nearest(on_node + points)
        else:
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


def emptiest_first(kinds: Kinds, scored: Feasible, before: Recalled[Scores] | None) -> Scores:
    """
    The emptiest scored node gets 100, the fullest 100 * lowest / highest: int16 array of shape (n_rows,).

    `before`: what was given for the same constraints, nodes being of the kinds of then but at rows that moved. While
    pods come to a few domains in turn the same scores come again and again, and with them the same array.
    """
    if scored.n == 0:
        return np.zeros(len(kinds.which), dtype=np.int16)
    lowest, highest = _extremes(kinds, scored)
    if highest == 0:
        return np.full(len(kinds.which), MAX_NODE_SCORE, dtype=np.int16)
    by_kind, key = _by_kind(kinds.points, lowest, highest)
    recalled = None if before is None else before.recall(key)
    if recalled is not None:
        scores, rows = recalled
        for row in rows:
            scores[row] = by_kind[kinds.which.item(row)]
        return scores
    # Every kind is one of them; other modes look first.
    scores = np.asarray(by_kind, dtype=np.int16).take(kinds.which, mode="clip")
    if before is not None:
        before.keep(key, scores)
    return scores


def _by_kind(points: Amounts | list[int], lowest: int, highest: int) -> tuple[Scores | list[int], Hashable]:
    """The score of each kind, any from 0 to 100 where no scored node is of it; and what tells them from others."""
    if isinstance(points, list):
        most = highest + lowest
        few = [MAX_NODE_SCORE * (most - one) // highest if lowest <= one <= highest else 0 for one in points]
        return few, tuple(few)
    counting = np.clip(points, lowest, highest)
    many = (MAX_NODE_SCORE * (highest + lowest - counting) // highest).astype(np.int16)
    return many, many.tobytes()


def _extremes(kinds: Kinds, scored: Feasible) -> tuple[int, int]:
    """The lowest and the highest points of a scored node."""
    points = kinds.points
    if kinds.occurring is None:
        of_nodes = np.asarray(points).take(kinds.which, mode="clip")
        return scored.lowest(of_nodes), scored.highest(of_nodes)
    if isinstance(points, list):
        some = [points[kind] for kind in kinds.occurring]
        return min(some), max(some)
    found = points.take(kinds.occurring)
    return found.item(found.argmin()), found.item(found.argmax())
