"""
Points by the pods on a node and the domain that it is in, kept up to date pod by pod.

For the constraints that most pods have, those of the cluster's defaults: one on domains, and one on nodes beside it or
none. A pod that came to a node changes that node's kind and the points of one domain, whatever the number of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from scheduler.framework.by_kind import MAX_KINDS, ByKind
from scheduler.framework.interface import Feasible
from scheduler.framework.recalling import Recalled
from scheduler.framework.spread_constraints import Constraint
from scheduler.framework.spread_counts import Counted
from scheduler.framework.spread_points import Kinds, emptiest_kinds_first, points_of, points_up_to
from scheduler.state.arrays import Amounts, Fractions, Rows, Scores, nearest, rounded
from scheduler.state.columns import ABSENT
from scheduler.state.row_log import RowLog


class SpreadTable:
    """
    The points of one soft constraint on domains that every node is in, and of one on nodes where there is one.

    Both count the same pods. A kind is `pods on the node * n_ids + domain id`, the domain id alone where nothing asks
    for the former.
    """

    def __init__(self, domains: Counted, nodes: Constraint | None, moved: RowLog) -> None:
        """Nothing is known yet. `moved`: told of every row to which a pod came or that one left."""
        self._domains = domains
        #: Of the constraint on domains.
        self.topology_key = domains.column.key
        self._nodes = nodes
        self._n_rows = n_rows = len(domains.counting)
        self._ids = domains.column.ids[:n_rows]
        self._n_ids = domains.column.n_ids
        #: Of kinds that are domains no node is ever of another.
        self._before: Recalled[Scores] = Recalled(RowLog() if nodes is None else moved)
        #: Points of a node by the pods on it, for as many as the table knows; none where there is no table.
        self._on_node: Fractions = np.zeros(0)
        self._points: Amounts | list[int] = []
        #: How many nodes are scored, and the domains that they are in, as the points know them.
        self._n_scored = 0
        self._in_domains: Rows = np.zeros(0, dtype=np.intp)
        #: Counted pods of each domain: its own where a constraint is on nodes, whose kinds tell what has changed.
        self._totals: Amounts = domains.per_domain().totals
        #: The kind of each node, where a constraint is on nodes.
        self._which: Rows | None = None
        #: What was told last, where kinds are few: the points that it reads are moved in place.
        self._by_kind: ByKind | None = None

    def kinds(self, scored: Feasible, in_domains: Rows) -> Kinds | ByKind | None:
        """
        As of now, from the counts; scores where kinds are few. O(n_rows).

        None where the table were larger than the number of nodes. `in_domains`: of the scored nodes, the same array
        for the same ones.
        """
        self._which = None
        return self._told() if self._begin(scored, in_domains) else None

    def again(self, scored: Feasible, in_domains: Rows, rows: Sequence[int]) -> Kinds | ByKind | None:
        """The same where pods came only to these rows, or left them, since anything was asked. O(rows)."""
        if not len(self._on_node):
            return self.kinds(scored, in_domains)
        is_known = in_domains is self._in_domains
        if self._which is None:
            self._totals = self._domains.per_domain().totals
        else:
            is_known &= self._follow_nodes(rows, self._which) and scored.n == self._n_scored
        if is_known:
            self._follow_domains(rows)
        elif not self._begin(scored, in_domains):
            return None
        return self._told()

    def _begin(self, scored: Feasible, in_domains: Rows) -> bool:
        """The points are of now. False where they are too many."""
        nodes, (constraint, _, _, _, _) = self._nodes, self._domains
        self._totals = self._domains.per_domain().totals
        on_node: Fractions = np.zeros(1)
        if nodes is not None:
            pods = self._domains.counts.rows(self._n_rows)
            on_node = points_up_to(pods.item(pods.argmax()), scored.n, nodes.max_skew)
            self._totals = self._totals.copy()
        if len(on_node) * self._n_ids > self._n_rows:
            self._on_node = np.zeros(0)
            return False
        in_domain = points_of(self._totals, len(in_domains), constraint.max_skew)
        in_domain[ABSENT] = 0.0
        points = rounded(np.add.outer(on_node, in_domain)).ravel()
        self._points, self._by_kind = points.tolist() if len(points) <= MAX_KINDS else points, None
        self._on_node, self._n_scored, self._in_domains = on_node, scored.n, in_domains
        return True

    def _follow_nodes(self, rows: Sequence[int], which: Rows) -> bool:
        """
        The kinds of these rows are of now, with the pods in their domains.

        False where one of them has more pods than there are points for.
        """
        _, _, counts, counting, _ = self._domains
        n_ids, totals, highest = self._n_ids, self._totals, 0
        for row in rows:
            n_before, domain = divmod(which.item(row), n_ids)
            n_now = counts.at(row)
            if n_now != n_before:
                which[row] = n_now * n_ids + domain
                highest = max(highest, n_now)
                if counting.item(row):
                    totals[domain] = totals.item(domain) + n_now - n_before
        return highest < len(self._on_node)

    def _follow_domains(self, rows: Sequence[int]) -> None:
        """The points of the domains of these rows are of now. O(rows * len(on_node))."""
        points, n_domains, max_skew = self._points, len(self._in_domains), self._domains.constraint.max_skew
        for row in rows:
            kind = self._ids.item(row)
            if kind == ABSENT:
                continue
            in_domain = points_of(self._totals.item(kind), n_domains, max_skew)
            if isinstance(points, list):
                for on_node in self._on_node.tolist():
                    points[kind] = nearest(on_node + in_domain)
                    kind += self._n_ids
            else:
                points[kind :: self._n_ids] = rounded(self._on_node + in_domain)

    def _told(self) -> Kinds | ByKind:
        if self._by_kind is not None:
            return self._by_kind
        which = self._ids if self._nodes is None else self._of_nodes()
        points = self._points
        if isinstance(points, list):
            self._by_kind = ByKind(which, partial(emptiest_kinds_first, points))
            return self._by_kind
        return Kinds(points, which, self._in_domains.tolist() if self._nodes is None else None, self._before)

    def _of_nodes(self) -> Rows:
        """The kind of each node."""
        if self._which is None:
            pods = self._domains.counts.rows(self._n_rows)
            self._which = np.multiply(pods, self._n_ids, dtype=np.intp) + self._ids
        return self._which
