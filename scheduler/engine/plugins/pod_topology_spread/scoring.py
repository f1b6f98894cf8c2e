"""
The Score of PodTopologySpread: the fewer selected pods in a node's domain the better.

A constraint gives a node `pods * ln(domains + 2) + maxSkew - 1` points, and fewer points are better.

Source: plugins/podtopologyspread/scoring.go (kubernetes 1.36).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from operator import iadd

import numpy as np

from scheduler.engine.framework.interface import MAX_NODE_SCORE, FeasibleNodes
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.terms import HOSTNAME_KEY
from scheduler.engine.plugins.pod_topology_spread.constraints import MergedConstraint
from scheduler.engine.plugins.pod_topology_spread.counting import CountedPods, counted_pods, topology_keys
from scheduler.engine.state.arrays import Amounts, Counts, Fractions, Scores, rounded
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.columns import ABSENT, LabelColumn


class SpreadScorer:
    """Scores the feasible nodes by the soft constraints of one pod."""

    def __init__(
        self,
        pod: Pod,
        view: ClusterView,
        feasible: FeasibleNodes,
        constraints: Sequence[MergedConstraint],
        *,
        needs_all_keys: bool,
    ) -> None:
        self._view = view
        self._feasible = feasible
        self._keys = topology_keys(constraints) if needs_all_keys else ()
        self._counted = counted_pods(pod, view, constraints, self._keys)
        #: Feasible nodes that have all keys, if all are needed; upstream ignores the others.
        self._scored = feasible
        if any(view.column(key).n_labelled < view.n_nodes for key in self._keys):
            self._scored = FeasibleNodes(feasible.mask & view.eligible(self._keys))

    def raw(self) -> Amounts:
        """Return the sum of all constraints' points, rounded half up: int64 array of shape (n_rows,)."""
        # Each node is a domain of the hostname, even if it lacks the label.
        each = (
            self._points_by_node(counted)
            if counted.constraint.declared.topology_key == HOSTNAME_KEY
            else self._points_by_domain(counted)
            for counted in self._counted
        )
        return rounded(reduce(iadd, each))

    def normalized(self, raw: Amounts) -> Scores:
        """Return 100 for the emptiest node and 100 * lowest / highest for the fullest; 0 for an ignored node."""
        # Source: scoring.go, NormalizeScore (kubernetes 1.36).
        scored = self._scored
        if scored.n == 0:
            return np.zeros(len(raw), dtype=np.int16)
        lowest, highest = scored.lowest(raw), scored.highest(raw)
        if highest == 0:
            scores = np.full(len(raw), MAX_NODE_SCORE, dtype=np.int16)
        else:
            scores = (MAX_NODE_SCORE * (highest + lowest - raw) // highest).astype(np.int16)
        return scores if scored is self._feasible else np.where(scored.mask, scores, 0)

    def _points_by_node(self, counted: CountedPods) -> Fractions:
        """Return points by the pods on each node. Inclusion policies do not apply here, as upstream."""
        points = points_of(counted.by_row(), self._scored.n, counted.constraint.declared.max_skew)
        if self._has_every_node(counted.column):
            return points
        return np.where(counted.column.ids[: len(points)] != ABSENT, points, 0.0)

    def _points_by_domain(self, counted: CountedPods) -> Fractions:
        column, scored = counted.column, self._scored
        ids = column.ids[: self._view.n_rows]
        pods = counted.per_domain().amounts.copy()
        has_every_node = self._has_every_node(column)
        if has_every_node and scored.n == self._view.n_nodes:
            n_domains = column.n_domains
        else:
            n_scored = scored.n_per_domain(ids, column.n_ids)
            n_domains = int(np.count_nonzero(n_scored[ABSENT + 1 :]))
        if not has_every_node:
            # A node without the label counts as if its value were empty; only System defaults allow such nodes.
            empty_value = column.id_by_value.get("")
            if empty_value is not None:
                pods[empty_value] += int(counted.by_row()[counted.eligible & (ids == ABSENT)].sum())
            is_new = empty_value is None or not n_scored[empty_value]
            n_domains += bool(n_scored[ABSENT]) and is_new
        points = points_of(pods, n_domains, counted.constraint.declared.max_skew)
        # A node without the key gets no points, not even maxSkew - 1.
        points[ABSENT] = 0.0
        return points.take(ids, mode="clip")

    def _has_every_node(self, column: LabelColumn) -> bool:
        """Return whether no scored node can lack the label."""
        return bool(self._keys) or column.n_labelled == self._view.n_nodes


def points_of(pods: Amounts | Counts, n_domains: int, max_skew: int) -> Fractions:
    """Return the points of one constraint for nodes in domains with these numbers of pods."""
    points = np.multiply(pods, math.log(n_domains + 2))
    points += float(max_skew - 1)
    return points
