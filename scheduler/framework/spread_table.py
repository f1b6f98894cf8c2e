"""
Points by the pods on a node and the domain that it is in, kept up to date pod by pod.

For the constraints that most pods have, those of the cluster's defaults: one on domains, and one on nodes beside it or
none. A pod that came to a node changes that node's kind and the points of one domain, whatever the number of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduler.framework.interface import Feasible
from scheduler.framework.recalling import Recalled
from scheduler.framework.spread_counts import Counted
from scheduler.framework.spread_points import Kinds, points_of, points_up_to
from scheduler.state.arrays import Amounts, Fractions, Rows, Scores, nearest, rounded
from scheduler.state.columns import ABSENT
from scheduler.state.row_log import RowLog

#: Kinds of nodes that are computed one by one.
_FEW_KINDS: Final = 32

#: Kinds of scored nodes that are listed.
_FEW_OCCURRING: Final = 64


class SpreadTable:
    """
    The points of one soft constraint on domains that every node is in, and of one on nodes where there is one.

    A kind is `pods on the node * n_ids + domain id`, the domain id alone where nothing asks for the former.
    """

    def __init__(self, domains: Counted, nodes: Counted | None, moved: RowLog) -> None:
        """Nothing is known yet. `moved`: told of every row to which a pod came or that one left."""
        self._domains = domains
        self._nodes = nodes
        self._n_rows = len(domains.counting)
        self._n_ids = domains.column.n_ids
        self._before: Recalled[Scores] = Recalled(moved)
        #: Points of a node by the pods on it, for as many as the table knows; none where there is no table.
        self._on_node: Fractions = np.zeros(0)
        self._points: Amounts | list[int] = []
        #: How many nodes are scored, and the domains that they are in, as the points know them.
        self._n_scored = 0
        self._in_domains: Rows = np.zeros(0, dtype=np.intp)
        #: The kind of each node, where a constraint is on nodes.
        self._which: Rows | None = None
        #: How many nodes are of each kind of those that are scored, as of a generation and so many that turned in it.
        self._n_of: dict[int, int] = {}
        self._counted: Feasible | None = None
        self._generation = self._n_seen = 0
        #: These kinds; None before anybody asks for them, or where they are many.
        self._occurring: list[int] | None = None

    @property
    def topology_key(self) -> str:
        """Of the constraint on domains."""
        return self._domains.column.key

    def kinds(self, scored: Feasible, in_domains: Rows) -> Kinds | None:
        """
        As of now, from the counts. O(n_rows).

        None where the table were larger than the number of nodes. `in_domains`: of the scored nodes, the same array
        for the same ones.
        """
        self._which = self._counted = None
        return self._told(scored) if self._begin(scored, in_domains) else None

    def again(self, scored: Feasible, in_domains: Rows, rows: Sequence[int]) -> Kinds | None:
        """The same where pods came only to these rows, or left them, since anything was asked. O(rows)."""
        if not len(self._on_node):
            return self.kinds(scored, in_domains)
        is_known = self._follow_nodes(scored, rows)
        are_as_many = self._nodes is None or scored.n == self._n_scored
        if is_known and are_as_many and in_domains is self._in_domains:
            self._follow_domains(rows)
        elif not self._begin(scored, in_domains):
            return None
        return self._told(scored)

    def _begin(self, scored: Feasible, in_domains: Rows) -> bool:
        """The points are of now. False where they are too many."""
        nodes, (constraint, _, _, _, _) = self._nodes, self._domains
        on_node: Fractions = np.zeros(1)
        if nodes is not None:
            pods = nodes.counts.rows(self._n_rows)
            on_node = points_up_to(pods.item(pods.argmax()), scored.n, nodes.constraint.max_skew)
        if len(on_node) * self._n_ids > self._n_rows:
            self._on_node = np.zeros(0)
            return False
        in_domain = points_of(self._domains.per_domain().totals, len(in_domains), constraint.max_skew)
        in_domain[ABSENT] = 0.0
        points = rounded(np.add.outer(on_node, in_domain)).ravel()
        self._points = points.tolist() if len(points) <= _FEW_KINDS else points
        self._on_node, self._n_scored, self._in_domains = on_node, scored.n, in_domains
        return True

    def _follow_domains(self, rows: Sequence[int]) -> None:
        """The points of the domains of these rows are of now. O(rows * len(on_node))."""
        constraint, column, _, _, _ = self._domains
        totals = self._domains.per_domain().totals
        n_domains, points, n_ids = len(self._in_domains), self._points, self._n_ids
        for row in rows:
            domain = column.ids.item(row)
            if domain == ABSENT:
                continue
            in_domain = points_of(totals.item(domain), n_domains, constraint.max_skew)
            if isinstance(points, list):
                for pods, on_node in enumerate(self._on_node.tolist()):
                    points[pods * n_ids + domain] = nearest(on_node + in_domain)
            else:
                points[domain::n_ids] = rounded(self._on_node + in_domain)

    def _follow_nodes(self, scored: Feasible, rows: Sequence[int]) -> bool:
        """Kinds are of now, with the nodes that are of them. False where a node has more pods than the table knows."""
        nodes, which = self._nodes, self._which
        if nodes is None or which is None:
            return True
        if self._counted is scored and self._generation == scored.generation:
            for row, fits in scored.turned[self._n_seen :]:
                self._move(which.item(row), 1 if fits else -1)
            self._n_seen = len(scored.turned)
        else:
            self._counted = None
        ids, n_ids, most, is_known = self._domains.column.ids, self._n_ids, len(self._on_node), True
        for row in rows:
            pods = nodes.counts.at(row)
            is_known = is_known and pods < most
            kind, before = pods * n_ids + ids.item(row), which.item(row)
            if kind != before:
                which[row] = kind
                if scored.mask.item(row):
                    self._move(before, -1)
                    self._move(kind, 1)
        return is_known

    def _move(self, kind: int, n_nodes: int) -> None:
        """So many more scored nodes are of the kind."""
        n_before = self._n_of.get(kind, 0)
        self._n_of[kind] = n_after = n_before + n_nodes
        if not (n_before and n_after):
            self._occurring = None
            if not n_after:
                del self._n_of[kind]

    def _told(self, scored: Feasible) -> Kinds:
        column, nodes = self._domains.column, self._nodes
        if nodes is None:
            ids = column.ids[: self._n_rows]
            return Kinds(self._points, ids, self._in_domains.tolist(), self._before)
        if self._which is None:
            pods = nodes.counts.rows(self._n_rows)
            self._which = np.multiply(pods, self._n_ids, dtype=np.intp) + column.ids[: self._n_rows]
        if self._counted is None:
            self._count(scored, self._which)
        if self._occurring is None and len(self._n_of) <= _FEW_OCCURRING:
            self._occurring = list(self._n_of)
        return Kinds(self._points, self._which, self._occurring, self._before)

    def _count(self, scored: Feasible, which: Rows) -> None:
        n_of = np.bincount(which if scored.n == self._n_rows else which[scored.mask])
        kinds = np.flatnonzero(n_of)
        self._n_of = dict(zip(kinds.tolist(), n_of.take(kinds).tolist(), strict=True))
        self._occurring = None
        self._counted, self._generation, self._n_seen = scored, scored.generation, len(scored.turned)
