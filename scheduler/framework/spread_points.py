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
)

#: Tables of points that are kept, one number for each pod that a node may hold.
_KEPT_TABLES: Final = 64


class Kinds(NamedTuple):
    """
    All constraints' points together, by kind of node, rounded once.

    `points`: int64 by kind, or a list where the kinds are few, since numpy takes longer to begin with than for all of
    them. `which`: the kind of each node, shape (n_rows,). `occurring`: the kinds of scored nodes, None where only a
    look at every node tells. `before`: the scores that were given for the same constraints, nodes being of the kinds
    of then but at rows that moved; None where the kinds are others each time.
    """

    points: Amounts | list[int]
    which: Rows | Counts
    occurring: list[int] | None
    before: Recalled[Scores] | None


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
    """
    The emptiest scored node gets 100, the fullest 100 * lowest / highest: int16 array of shape (n_rows,).

    While pods come to a few domains in turn the same scores come again and again, and with them the same array.
    """
    if scored.n == 0:
        return np.zeros(len(kinds.which), dtype=np.int16)
    lowest, highest = _extremes(kinds, scored)
    if highest == 0:
        return np.full(len(kinds.which), MAX_NODE_SCORE, dtype=np.int16)
    by_kind, key = _by_kind(kinds.points, lowest, highest)
    recalled = None if kinds.before is None else kinds.before.recall(key)
    if recalled is not None:
        scores, rows = recalled
        for row in rows:
            scores[row] = by_kind[kinds.which.item(row)]
        return scores
    # Every kind is one of them; other modes look first.
    scores = np.asarray(by_kind, dtype=np.int16).take(kinds.which, mode="clip")
    if kinds.before is not None:
        kinds.before.keep(key, scores)
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
