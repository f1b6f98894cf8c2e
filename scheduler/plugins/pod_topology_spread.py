"""
PodTopologySpread: pods that a selector selects stay even over the domains of a topology key.

Filter (DoNotSchedule): a node is refused where its domain would lead the emptiest domain by more than maxSkew.
Score (ScheduleAnyway): the fewer such pods in a node's domain the better, weighted by ln(domains + 2).
Only nodes that have all the keys, and that the inclusion policies let in, make domains and hold counted pods; only
pods of the same namespace that are not terminating are counted. A pod without constraints gets the cluster's defaults.

Source: plugins/podtopologyspread/{common,plugin,filtering,scoring}.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from scheduler.framework.by_kind import ByKind
from scheduler.framework.events import Action, Hint, Registration, Resource, never
from scheduler.framework.feasible_domains import FeasibleDomains
from scheduler.framework.feature_gates import FeatureGates
from scheduler.framework.interface import Candidate, Feasible, PreFiltered, PreScored, Rescored
from scheduler.framework.plugin_args import PodTopologySpreadArgs
from scheduler.framework.rules import KeptRules, Rules
from scheduler.framework.spread_constraints import (
    Constraint,
    DefaultSelector,
    SpreadConstraints,
    reads_own_values,
)
from scheduler.framework.spread_counts import Counted, counted
from scheduler.framework.spread_points import Kinds, emptiest_first, points_of, points_up_to
from scheduler.framework.spread_table import SpreadTable
from scheduler.framework.verdicts import SKIP, Code, Refusals, Status, unresolvable, unschedulable
from scheduler.model.nodes import Node, Workload
from scheduler.model.pods import Pod, spread_problem
from scheduler.state.arrays import (
    Amounts,
    Counts,
    Fractions,
    Mask,
    Rows,
    Scores,
    rounded,
)
from scheduler.state.columns import ABSENT, LabelColumn
from scheduler.state.snapshot import Snapshot

NAME: Final = "PodTopologySpread"

SKEWED: Final = unschedulable("node(s) didn't match pod topology spread constraints")
NO_LABEL: Final = unresolvable(f"{SKEWED.reasons[0]} (missing required label)")

#: What default selectors are made of.
_WORKLOADS: Final = (
    Resource.SERVICE,
    Resource.REPLICATION_CONTROLLER,
    Resource.REPLICA_SET,
    Resource.STATEFUL_SET,
)


class PodTopologySpread:
    """Even spreading over topology domains, hard and soft."""

    name = NAME

    def __init__(
        self, args: PodTopologySpreadArgs, gates: FeatureGates, default_selector: DefaultSelector
    ) -> None:
        #: Which constraints a pod has.
        self.constraints = SpreadConstraints(args, gates, default_selector)
        self._system_defaulting = args.defaulting_type == "System"

    def registrations(self) -> Sequence[Registration]:
        """
        Pods and nodes that come, go or change what the rules read of them; what default selectors are made of.

        Upstream hears neither of workloads nor of a running pod that starts to terminate, and lets the pod wait for
        the 5-minute flush; here it is woken. What is decided is the same.
        """
        registered = [
            Registration(
                Resource.POD,
                Action.ADD | Action.UPDATE | Action.DELETE,
                self._hint_after_pod_change,
                _reads_labels,
            ),
            Registration(
                Resource.NODE,
                Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT,
                self._hint_after_node_change,
                _reads_labels,
            ),
        ]
        if self.constraints.has_hard_defaults:
            any_change = Action.ADD | Action.UPDATE | Action.DELETE
            registered += [
                Registration(r, any_change, _hint_after_workload_change, never) for r in _WORKLOADS
            ]
        return registered

    def prefilter(self, candidate: Candidate, snapshot: Snapshot) -> PreFiltered:
        """Nothing to do where no hard constraint applies."""
        if problem := spread_problem(candidate.pod):
            return Status(Code.ERROR, (f"get constraints from pod: {problem}",))
        constraints = self.constraints.of(candidate.pod, hard=True)
        if not constraints:
            return SKIP
        return _SpreadFilter(candidate.pod, snapshot, constraints)

    def prescore(self, candidate: Candidate, snapshot: Snapshot, feasible: Feasible) -> PreScored:
        """Nothing to do where no soft constraint applies."""
        pod = candidate.pod
        if problem := spread_problem(pod):
            return Status(Code.ERROR, (f"calculating preScoreState: {problem}",))
        constraints = self.constraints.of(pod, hard=False)
        if not constraints:
            return SKIP
        needs_all_keys = bool(pod.spec.spread) or not self._system_defaulting
        return _SpreadScorer(pod, snapshot, feasible, constraints, needs_all_keys=needs_all_keys)

    def _hint_after_pod_change(self, pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
        """Source: plugin.go, isSchedulableAfterPodChange (kubernetes 1.36)."""
        changed = new if new is not None else old
        if changed is None:
            return Hint.QUEUE
        if changed.uid == pod.uid:
            return _queue_if(old is None or new is None or self._asks_differently(old, new))
        unassigned = not changed.node_name and not changed.nominated_node_name
        if unassigned or changed.namespace != pod.namespace:
            return Hint.SKIP
        if old is None or new is None:
            return _queue_if(any(c.selects(changed) for c in self.constraints.of(pod, hard=True)))
        if old.labels == new.labels and old.terminating == new.terminating:
            return Hint.SKIP
        constraints = self.constraints.of(pod, hard=True)
        return _queue_if(any(c.counts(old) != c.counts(new) for c in constraints))

    def _asks_differently(self, old: Pod, new: Pod) -> bool:
        """
        Whether a pod's own update changed its constraints, whom they select, or the nodes that its policies let in.

        Labels decide about more than upstream's hint looks at: the values of matchLabelKeys, and default selectors.
        """
        before, after = (
            [(c, c.selects(one)) for c in self.constraints.of(one, hard=True)] for one in (old, new)
        )
        if before != after:
            return True
        taints = old.spec.tolerations != new.spec.tolerations
        nodes = old.spec.node_rule != new.spec.node_rule
        return any((taints and c.honor_node_taints) or (nodes and c.honor_node_affinity) for c, _ in after)

    def _hint_after_node_change(self, pod: Pod, old: Node | None, new: Node | None) -> Hint:
        """
        Source: plugin.go, isSchedulableAfterNodeChange (kubernetes 1.36).

        Upstream overlooks that other labels than the topology keys decide whether a node makes a domain.
        """
        constraints = self.constraints.of(pod, hard=True)
        keys = [c.topology_key for c in constraints]
        had = old is not None and all(key in old.labels for key in keys)
        has = new is not None and all(key in new.labels for key in keys)
        if old is None or new is None:
            return _queue_if(has or had)
        if had != has:
            return Hint.QUEUE
        moved = any(old.labels.get(key) != new.labels.get(key) for key in keys)
        by_labels = any(c.honor_node_affinity for c in constraints) and not pod.spec.node_rule.is_trivial
        relabelled = by_labels and old.labels != new.labels
        return _queue_if(has and (moved or relabelled or old.taints != new.taints))


def _reads_labels(pod: Pod, _old: object, _new: object) -> bool:
    """Default selectors are made of labels and owner, and so are selectors with the pod's own values."""
    return not pod.spec.spread or reads_own_values(pod)


def _hint_after_workload_change(pod: Pod, old: Workload | None, new: Workload | None) -> Hint:
    """Helps a pod that has default constraints alone, if their selector may be another now."""
    changed = new if new is not None else old
    return _queue_if(not pod.spec.spread and (changed is None or changed.namespace == pod.namespace))


def _queue_if(helps: bool) -> Hint:  # noqa: FBT001  (reads as a sentence at each call)
    return Hint.QUEUE if helps else Hint.SKIP


def _keys(constraints: Sequence[Constraint]) -> tuple[str, ...]:
    return tuple(constraint.topology_key for constraint in constraints)


class _SpreadFilter:
    """The hard constraints of one pod over all nodes."""

    def __init__(self, pod: Pod, snapshot: Snapshot, constraints: Sequence[Constraint]) -> None:
        self._n_rows = snapshot.n_rows
        #: In their order; and who has each key, None where all nodes do.
        self._constraints = [
            (one, _labelled(one.column, snapshot))
            for one in counted(pod, snapshot, constraints, _keys(constraints))
        ]
        self._kept = KeptRules(self._rules(), self._n_rows)

    def fits(self) -> Mask:
        """Nodes that have every key and keep every skew; not to be written to."""
        return self._kept.fits()

    def again(self, rows: Sequence[int]) -> Mask:
        """See `PodFilter`. O(1) where no domain is closed or opened by the pods that moved."""
        return self._kept.again(self._rules(), rows)

    def refusals(self) -> Refusals:
        """The first constraint that fails decides the reason."""
        return self._kept.refusals()

    def _rules(self) -> Rules:
        rules: list[tuple[Mask, Status]] = []
        for constraint, labelled in self._constraints:
            if labelled is not None:
                rules.append((labelled, NO_LABEL))
            rules.append((_within_skew(constraint, self._n_rows), SKEWED))
        return rules


def _labelled(column: LabelColumn, snapshot: Snapshot) -> Mask | None:
    """Nodes that have the label, None where all have."""
    return column.ids[: snapshot.n_rows] != ABSENT if column.n_labelled < snapshot.n_nodes else None


def _within_skew(one: Counted, n_rows: int) -> Mask:
    """
    Nodes whose domain would lead the emptiest one by at most maxSkew: bool array of shape (n_rows,).

    A node that is not eligible is judged by its domain's count from eligible nodes, 0 if it has none. With fewer
    domains than minDomains the emptiest domain counts as empty.
    """
    constraint, column, counts, counting, selects = one
    per_domain = one.per_domain()
    floor = 0 if len(per_domain.domains) < constraint.min_domains else per_domain.fewest()
    too_many = constraint.max_skew + floor - int(selects) + 1
    if column.is_unique:
        return counts.reached(column, too_many, n_rows, counting).below
    return per_domain.reached(too_many).below


class _SpreadScorer:
    """The soft constraints of one pod over the feasible nodes."""

    def __init__(
        self,
        pod: Pod,
        snapshot: Snapshot,
        feasible: Feasible,
        constraints: Sequence[Constraint],
        *,
        needs_all_keys: bool,
    ) -> None:
        self._snapshot = snapshot
        self._feasible = feasible
        self._keys = _keys(constraints) if needs_all_keys else ()
        self._constraints = counted(pod, snapshot, constraints, self._keys)
        #: By topology key, the domains of scored nodes; not asked for where nodes are their own.
        self._domains_of: dict[str, FeasibleDomains] = {}
        self._domains: dict[str, Rows] = {}
        self._look_at_feasible()

    @cached_property
    def _table(self) -> SpreadTable | None:
        """For decisions that are repeated; None where the constraints are others than one tells of."""
        if not all(self._has_every_node(one.column) for one in self._constraints):
            return None
        nodes = [one for one in self._constraints if one.is_by_node]
        domains = [one for one in self._constraints if not one.is_by_node]
        if len(domains) != 1 or len(nodes) > 1 or any(one.counts is not domains[0].counts for one in nodes):
            return None
        return SpreadTable(domains[0], nodes[0].constraint if nodes else None, self._snapshot.nodes.moved)

    def _look_at_feasible(self) -> None:
        """What depends on who is feasible alone, and is the same for many pods in a row."""
        snapshot, feasible = self._snapshot, self._feasible
        #: Feasible nodes that are not ignored for lack of a key.
        self._scored = feasible
        if any(snapshot.column(key).n_labelled < snapshot.n_nodes for key in self._keys):
            self._scored = Feasible(feasible.mask & snapshot.eligible(self._keys))
        if self._scored is not feasible or not self._domains_of:
            columns = [one.column for one in self._constraints if not one.is_by_node]
            self._domains_of = {one.key: FeasibleDomains(one, self._scored) for one in columns}
        self._domains = {key: _without_absent(one.ids()) for key, one in self._domains_of.items()}
        self._looked_at = feasible.version

    def raw(self) -> Kinds:
        """The sum over constraints, rounded once, half away from zero: int64 by kind."""
        points, which = self._combined()
        return Kinds(rounded(points), which, None, None)

    def _combined(self) -> tuple[Fractions, Rows | Counts]:
        """The points of every kind of nodes, and the kind of each: shape (n_rows,)."""
        n_rows = self._snapshot.n_rows
        which: Rows | Counts
        points, which = self._part(self._constraints[0])
        for constraint in self._constraints[1:]:
            others, which_other = self._part(constraint)
            if len(points) * len(others) > n_rows:
                points, which = points.take(which) + others.take(which_other), np.arange(n_rows)
            else:
                which = which * len(others) + which_other
                points = np.add.outer(points, others).ravel()
        return points, which

    def _part(self, one: Counted) -> tuple[Fractions, Rows | Counts]:
        """
        One constraint's part: the points of nodes that differ, and which of these each node has.

        A node without the key gets nothing, not even maxSkew - 1.
        """
        n_rows = self._snapshot.n_rows
        ids = one.column.ids[:n_rows]
        if not one.is_by_node:
            return self._in_domain(one), ids
        points, on_node = self._on_node(one), one.counts.rows(n_rows)
        if self._has_every_node(one.column):
            return points, on_node
        return np.append(points, 0.0), np.where(ids != ABSENT, on_node, len(points))

    def _on_node(self, one: Counted) -> Fractions:
        """
        Points by how many pods are on a node itself, from none to the most that are on one.

        Policies are not applied, even where two nodes share a hostname (scoring.go, Score).
        """
        on_node = one.counts.rows(self._snapshot.n_rows)
        max_skew = one.constraint.max_skew
        return points_up_to(on_node.item(on_node.argmax()), self._scored.n, max_skew)

    def _in_domain(self, one: Counted) -> Fractions:
        """Points by domain id, none for nodes without the key."""
        per_domain, size = self._per_domain(one)
        points = points_of(per_domain, size, one.constraint.max_skew)
        points[ABSENT] = 0.0
        return points

    def _per_domain(self, one: Counted) -> tuple[Amounts, int]:
        """Counted pods in each domain, and the number of domains among the scored nodes."""
        _, column, counts, counting, _ = one
        n_rows = self._snapshot.n_rows
        per_domain = one.per_domain().totals
        domains = self._domains[column.key]
        if self._has_every_node(column):
            return per_domain, len(domains)
        # Without the label a node counts as having an empty value (possible with System defaults only).
        lacking = column.ids[:n_rows] == ABSENT
        empty_value = column.id_by_value.get("")
        if empty_value is not None:
            per_domain = per_domain.copy()
            per_domain[empty_value] += int(counts.rows(n_rows)[counting & lacking].sum())
        if not (lacking & self._scored.mask).any():
            return per_domain, len(domains)
        return per_domain, len({*domains.tolist(), empty_value})

    def _has_every_node(self, column: LabelColumn) -> bool:
        """Whether no scored node can lack the label."""
        return bool(self._keys) or column.n_labelled == self._snapshot.n_nodes

    def normalized(self, raw: Kinds) -> Scores:
        """Ignored nodes get 0 (scoring.go, NormalizeScore)."""
        return self._without_ignored(emptiest_first(raw, self._scored))

    def _without_ignored(self, scores: Scores) -> Scores:
        return scores if self._scored is self._feasible else np.where(self._scored.mask, scores, 0)

    def again(self, rows: Sequence[int]) -> Rescored:
        """See `NodeScorer`: other scores for all, since a pod that came to one domain is told by the points of each."""
        if self._looked_at != self._feasible.version:
            self._look_at_feasible()
        table, kinds = self._table, None
        if table is not None:
            kinds = table.again(self._scored, self._domains[table.topology_key], rows)
        if isinstance(kinds, ByKind):
            if self._scored is self._feasible:
                return kinds, rows
            kinds.among(self._scored.kinds(kinds.which))
            return self._without_ignored(kinds.on_nodes()), rows
        return self.normalized(self.raw() if kinds is None else kinds), rows


def _without_absent(ids: Rows) -> Rows:
    return ids[1:] if len(ids) and ids.item(0) == ABSENT else ids
