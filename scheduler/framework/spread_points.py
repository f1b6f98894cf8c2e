"""
Points of soft spread constraints, and scores from them.

A constraint gives a node `pods * ln(domains + 2) + maxSkew - 1`, and the fewer points the better. Nodes that cannot
differ in their points are of one kind: so many numbers are computed, and no more.

Source: plugins/podtopologyspread/scoring.go (kubernetes 1.36).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
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

    `points`: int64 by kind. `which`: the kind of each node, shape (n_rows,). `occurring`: the kinds of scored nodes,
    None where only a look at every node tells. `before`: the scores that were given for the same constraints, nodes
    being of the kinds of then but at rows that moved; None where the kinds are others each time.
    """

    points: Amounts
    which: Rows | Counts
    occurring: Sequence[int] | None
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

    Others have something from 0 to 100. While pods come to a few domains in turn the same scores come again and again,
    and with them the same array.
    """
    if scored.n == 0:
        return np.zeros(len(kinds.which), dtype=np.int16)
    lowest, highest = _extremes(kinds, scored)
    if highest == 0:
        return np.full(len(kinds.which), MAX_NODE_SCORE, dtype=np.int16)
    # np.clip takes twice as long for so few.
    counting = np.minimum(np.maximum(kinds.points, lowest), highest)
    by_kind = (MAX_NODE_SCORE * (highest + lowest - counting) // highest).astype(np.int16)
    if kinds.before is None:
        # Every kind is one of them; other modes look first.
        return by_kind.take(kinds.which, mode="clip")
    key = by_kind.tobytes()
    recalled = kinds.before.recall(key)
    if recalled is None:
        scores = by_kind.take(kinds.which, mode="clip")
        kinds.before.keep(key, scores)
        return scores
    scores, rows = recalled
    for row in rows:
        scores[row] = by_kind.item(kinds.which.item(row))
    return scores


def emptiest_kinds_first(points: Sequence[int], occurring: Collection[int]) -> dict[int, int]:
    """What `emptiest_first` gives to nodes of these kinds, so few that numpy would take longer to begin with."""
    if not occurring:
        return {}
    some = list(map(points.__getitem__, occurring))
    highest = max(some)
    if highest == 0:
        return dict.fromkeys(occurring, MAX_NODE_SCORE)
    most = MAX_NODE_SCORE * (highest + min(some))
    return dict(zip(occurring, [(most - MAX_NODE_SCORE * one) // highest for one in some], strict=True))


def _extremes(kinds: Kinds, scored: Feasible) -> tuple[int, int]:
    """The lowest and the highest points of a scored node."""
    if kinds.occurring is None:
        of_nodes = kinds.points.take(kinds.which, mode="clip")
        return scored.lowest(of_nodes), scored.highest(of_nodes)
    found = kinds.points.take(kinds.occurring)
    return found.item(found.argmin()), found.item(found.argmax())
