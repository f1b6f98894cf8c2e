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
from scheduler.framework.spread_constraints import Constraint
from scheduler.framework.spread_counts import Counted
from scheduler.framework.spread_points import FewKinds, Kinds, points_of, points_up_to
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
        self._totals: Amounts = np.zeros(0, dtype=np.int64)
        #: The kind of each node, where a constraint is on nodes.
        self._which: Rows | None = None
        #: How many nodes are of each kind of those that are scored, as of a generation and so many that turned in it.
        self._n_of: dict[int, int] = {}
        self._counted: Feasible | None = None
        self._generation = self._n_seen = 0
        #: These kinds; None before anybody asks for them, or where they are many.
        self._occurring: tuple[int, ...] | None = None

    def kinds(self, scored: Feasible, in_domains: Rows) -> Kinds | FewKinds | None:
        """
        As of now, from the counts. O(n_rows).

        None where the table were larger than the number of nodes. `in_domains`: of the scored nodes, the same array
        for the same ones.
        """
        self._which = self._counted = None
        return self._told(scored) if self._begin(scored, in_domains) else None

    def again(self, scored: Feasible, in_domains: Rows, rows: Sequence[int]) -> Kinds | FewKinds | None:
        """The same where pods came only to these rows, or left them, since anything was asked. O(rows)."""
        if not len(self._on_node):
            return self.kinds(scored, in_domains)
        is_known = in_domains is self._in_domains
        if self._which is None:
            self._totals = self._domains.per_domain().totals
        else:
            is_known &= self._follow_nodes(scored, rows, self._which)
        if is_known:
            self._follow_domains(rows)
        elif not self._begin(scored, in_domains):
            return None
        return self._told(scored)

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
        self._points = points.tolist() if len(points) <= _FEW_KINDS else points
        self._on_node, self._n_scored, self._in_domains = on_node, scored.n, in_domains
        if nodes is None:
            self._occurring = tuple(in_domains.tolist())
        return True

    def _follow_nodes(self, scored: Feasible, rows: Sequence[int], which: Rows) -> bool:
        """
        Kinds are of now, with the nodes that are of them and the pods in their domains.

        False where the points are not those of so many nodes, or of so many pods as one of them has.
        """
        if self._counted is scored and self._generation == scored.generation:
            if len(scored.turned) != self._n_seen:
                for row, fits in scored.turned[self._n_seen :]:
                    self._move(which.item(row), 1 if fits else -1)
                self._n_seen = len(scored.turned)
        else:
            self._counted = None
        is_known = scored.n == self._n_scored
        _, _, counts, counting, _ = self._domains
        n_ids = self._n_ids
        for row in rows:
            before = which.item(row)
            more = (counts.at(row) - before // n_ids) * n_ids
            if not more:
                continue
            which[row] = kind = before + more
            if counting.item(row):
                self._totals[before % n_ids] += more // n_ids
            if kind >= len(self._points):
                is_known = False
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

    def _told(self, scored: Feasible) -> Kinds | FewKinds:
        which = self._ids if self._nodes is None else self._of_nodes(scored)
        if isinstance(self._points, list) and self._occurring is not None:
            return FewKinds(self._points, which, self._occurring, self._before)
        return Kinds(np.asarray(self._points), which, self._occurring, self._before)

    def _of_nodes(self, scored: Feasible) -> Rows:
        """The kind of each node; which kinds there are is known afterwards, where they are few."""
        if self._which is None:
            pods = self._domains.counts.rows(self._n_rows)
            self._which = np.multiply(pods, self._n_ids, dtype=np.intp) + self._ids
        if self._counted is None:
            n_of = scored.count(self._which, len(self._points))
            kinds = np.flatnonzero(n_of)
            self._n_of = dict(zip(kinds.tolist(), n_of.take(kinds).tolist(), strict=True))
            self._occurring = None
            self._counted, self._generation, self._n_seen = scored, scored.generation, len(scored.turned)
        if self._occurring is None and len(self._n_of) <= _FEW_OCCURRING:
            self._occurring = tuple(self._n_of)
        return self._which
