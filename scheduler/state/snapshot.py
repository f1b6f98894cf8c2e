"""
The read-only view of the state that a decision gets.

Nothing is copied: with one writer and no await inside a cycle, the state cannot move while a plugin looks at it.
Arrays handed out must not be written to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scheduler.model.labels import Selector
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, PodSpec
from scheduler.model.terms import NodeRule, NodeTerm, Toleration
from scheduler.state.arrays import Amounts, Counts, Mask
from scheduler.state.cluster import ClusterState
from scheduler.state.columns import LabelColumn
from scheduler.state.declared import DeclaredTerm
from scheduler.state.matching import PodMatcher
from scheduler.state.node_masks import HARD_EFFECTS
from scheduler.state.node_table import NodeTable
from scheduler.state.row_counts import RowCounts
from scheduler.state.selection import LabelSet


class Snapshot:
    """What plugins may ask. Every array has one entry per node row; rows that are not `alive` hold no node."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    @property
    def nodes(self) -> NodeTable:
        """The node columns; readers call no mutator."""
        return self._state.nodes

    @property
    def epoch(self) -> int:
        """See `ClusterState.epoch`."""
        return self._state.epoch

    @property
    def n_rows(self) -> int:
        """Length of every per-node array."""
        return self._state.nodes.n_rows

    @property
    def n_nodes(self) -> int:
        """Live nodes."""
        return self._state.nodes.n_live

    @property
    def alive(self) -> Mask:
        """Rows that hold a live node."""
        return self._state.nodes.alive

    def node_at(self, row: int) -> Node | None:
        """The node of a row."""
        return self._state.nodes.nodes[row]

    def column(self, key: str) -> LabelColumn:
        """A node label as a column."""
        return self._state.nodes.column(key)

    def matching(self, rule: NodeRule) -> Mask:
        """Rows whose node satisfies nodeSelector and required node affinity."""
        return self._state.masks.matching(rule)

    def matching_term(self, term: NodeTerm) -> Mask:
        """Rows whose node matches one node selector term."""
        return self._state.masks.matching_term(term)

    def tolerated(self, tolerations: tuple[Toleration, ...], effects: tuple[str, ...] = HARD_EFFECTS) -> Mask:
        """Rows all of whose taints of these effects are tolerated."""
        return self._state.masks.tolerated(tolerations, effects)

    def eligible(
        self,
        keys: tuple[str, ...],
        rule: NodeRule | None = None,
        tolerations: tuple[Toleration, ...] | None = None,
    ) -> Mask:
        """Live nodes with every label of `keys`, that the rule and the tolerations let in; kept until nodes change."""
        return self._state.masks.eligible(keys, rule, tolerations)

    def label_set(self, pod: Pod) -> LabelSet:
        """The pod's label set, matched with every selection."""
        return self._state.selections.label_set(pod.namespace, pod.labels)

    def selected(self, matcher: PodMatcher) -> RowCounts:
        """Pods per row that the matcher selects, terminating ones included."""
        return self._state.selections.counted(matcher)

    def selected_live(self, matcher: PodMatcher) -> RowCounts:
        """Pods per row that the matcher selects and that are not terminating."""
        return self._state.selections.counted_live(matcher)

    def per_node(self, counts: RowCounts, key: str) -> Amounts:
        """For every node the pods counted in its domain of the topology key; 0 where it lacks the label."""
        return counts.per_node(self.column(key), self.n_rows)

    def rows_of(self, counts: RowCounts) -> Counts:
        """The counts per row as an array."""
        return counts.rows(self.n_rows)

    def forbidding_terms(self, label_set: LabelSet) -> Iterator[DeclaredTerm]:
        """Required anti-affinity terms of placed pods that select pods of the label set."""
        for selection in label_set.selections:
            yield from selection.forbidding_terms

    def limiting_terms(self, label_set: LabelSet) -> Iterator[DeclaredTerm]:
        """Required anti-affinity terms that let more than one pod be in a domain and select pods of the label set."""
        # A copy: whoever reads this counts, which may forget another selection.
        for selection in tuple(label_set.selections):
            yield from selection.limiting_terms

    def scoring_terms(self, label_set: LabelSet) -> Iterator[DeclaredTerm]:
        """All other terms of placed pods that select pods of the label set."""
        for selection in label_set.selections:
            yield from selection.scoring_terms

    def closed_by_kubelets(self, spec: PodSpec) -> Mapping[str, str]:
        """Names of nodes that refused pods of the spec and are left out for them, each with its kubelet's reason."""
        return self._state.kubelet_refusals.closed(spec)

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Labels of the namespace, None where it is not known."""
        return self._state.selections.namespace_labels.get(namespace)

    def default_selector(self, pod: Pod) -> Selector | None:
        """What the pod is spread by where it has no constraints of its own."""
        return self._state.workloads.default_selector(pod.namespace, pod.labels, pod.owner)
