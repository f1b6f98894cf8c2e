"""
The read-only view of the state that a decision gets.

Nothing is copied: with one writer and no await inside a cycle, the state cannot move while a plugin looks at it.
Arrays handed out must not be written to, and are valid until the next stimulus.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, PodSpec
from scheduler.model.terms import NodeTerm, RequiredNodeAffinity, Toleration
from scheduler.state.arrays import Amounts, Counts, Mask, Scores, Where
from scheduler.state.change_log import Change
from scheduler.state.cluster import ClusterState
from scheduler.state.columns import LabelColumn, PerDomain
from scheduler.state.counts import Domains, PodCounts, TermSums
from scheduler.state.existing_terms import ExistingPodTerm
from scheduler.state.label_sets import LabelSet
from scheduler.state.matching import PodMatcher
from scheduler.state.node_masks import HARD_EFFECTS
from scheduler.state.node_table import NodeTable
from scheduler.syntax.selectors import Selector

_Scalar = TypeVar("_Scalar", bound=np.generic)

#: Rows up to which a formula is computed row by row, 2 to 5 µs each; arrays take 20 to 30 µs, however short.
_ONE_BY_ONE: Final = 6


@dataclass(slots=True, eq=False)
class _ImageScores:
    """Scores by images, and the version of the images that they were computed from."""

    scores: Scores
    images_version: int

    def same_as(self, other: _ImageScores) -> bool:
        """Return whether the scores are equal; for the audit."""
        return np.array_equal(self.scores, other.scores)

    @property
    def nbytes(self) -> int:
        """Bytes of the scores."""
        return self.scores.nbytes


class Snapshot:
    """What plugins may ask. Every array has one entry per node row; rows that are not `alive` hold no node."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    # Nodes.

    @property
    def nodes(self) -> NodeTable:
        """The node columns; a plugin calls no method that changes them."""
        return self._state.nodes

    @property
    def n_rows(self) -> int:
        """Length of every per-node array."""
        return self._state.nodes.n_rows

    @property
    def n_nodes(self) -> int:
        """Number of live nodes."""
        return self._state.nodes.n_live

    @property
    def alive(self) -> Mask:
        """Rows that hold a live node."""
        return self._state.nodes.alive

    def node_at(self, row: int) -> Node | None:
        """Return the node of a row."""
        return self._state.nodes.nodes[row]

    def column(self, key: str) -> LabelColumn:
        """Return a node label as a column."""
        return self._state.nodes.column(key)

    def matching(self, rule: RequiredNodeAffinity) -> Mask:
        """Return the rows whose node satisfies nodeSelector and required node affinity."""
        return self._state.masks.matching(rule)

    def matching_term(self, term: NodeTerm) -> Mask:
        """Return the rows whose node matches one node selector term."""
        return self._state.masks.matching_term(term)

    def tolerated(self, tolerations: tuple[Toleration, ...], effects: tuple[str, ...] = HARD_EFFECTS) -> Mask:
        """Return the rows all of whose taints of these effects are tolerated."""
        return self._state.masks.tolerated(tolerations, effects)

    def intolerable(self, tolerations: tuple[Toleration, ...], effects: tuple[str, ...]) -> Amounts:
        """Return how many taints of these effects are not tolerated on each row."""
        return self._state.masks.intolerable(tolerations, effects)

    def eligible(
        self,
        keys: tuple[str, ...],
        rule: RequiredNodeAffinity | None = None,
        tolerations: tuple[Toleration, ...] | None = None,
    ) -> Mask:
        """Return the live nodes with every label of `keys` that the rule and the tolerations let in."""
        return self._state.masks.eligible(keys, rule, tolerations)

    def closed_by_kubelets(self, spec: PodSpec) -> Mapping[str, str]:
        """Return the names of nodes that refused pods of the spec and are left out, each with its kubelet's reason."""
        return self._state.kubelet_refusals.closed(spec)

    # Pods.

    def label_set(self, pod: Pod) -> LabelSet:
        """Return the pod's label set."""
        return self._state.label_sets.of(pod.namespace, pod.labels)

    def selected(self, matcher: PodMatcher, *, live_only: bool = False) -> PodCounts:
        """Return the pods per row that the matcher selects; `live_only` leaves terminating ones out."""
        return self._state.counts.selected(matcher, live_only=live_only)

    def pods_by_domain(self, matcher: PodMatcher, key: str) -> PerDomain:
        """Return the pods that the matcher selects in each domain of the topology key, terminating ones included."""
        return self.selected(matcher).per_domain(Domains(self.column(key)))

    def existing_terms(self, label_set: LabelSet) -> Iterator[ExistingPodTerm]:
        """Yield the affinity terms of placed pods that select pods of the label set."""
        return self._state.terms.selecting(label_set)

    @property
    def has_limits(self) -> bool:
        """Whether a placed pod declares a term that lets more than one pod be in a domain."""
        return self._state.terms.n_limiting > 0

    def declaring(self, term: ExistingPodTerm) -> Counts:
        """Return the pods per row that declare the term."""
        return self._state.counts.declaring(term)

    def term_sums(
        self, purpose: Hashable, label_set: LabelSet, weight_of: Callable[[ExistingPodTerm], int]
    ) -> TermSums:
        """Return the weighted sum of the existing terms that select the label set; see `PodCounter.term_sums`."""
        return self._state.counts.term_sums(purpose, label_set, weight_of)

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of the namespace, None if it is not known."""
        return self._state.label_sets.namespace_labels.get(namespace)

    def default_selector(self, pod: Pod) -> Selector | None:
        """Return what the pod is spread by if it has no constraints of its own."""
        return self._state.workloads.default_selector(pod.namespace, pod.labels, pod.owner)

    # What plugins derive from the amounts of nodes.

    def per_row(
        self, key: Hashable, compute: Callable[[Where], npt.NDArray[np.generic] | int], dtype: type[_Scalar]
    ) -> npt.NDArray[_Scalar]:
        """
        Return an array of shape (n_rows,) that is computed again at no rows but those whose pods or amounts changed.

        Args:
            key: names the formula and its parameters; the plugin itself may be a part of it.
            compute: returns the value of one row, or the values of several. It reads no row but these, and neither
                labels nor taints.
            dtype: of the array.

        Cost: 1 µs, and `compute` for each changed row.
        """

        def compute_all() -> npt.NDArray[_Scalar]:
            return np.array(np.broadcast_to(compute(slice(0, self.n_rows)), self.n_rows), dtype=dtype)

        def patch(array: npt.NDArray[_Scalar], changes: Sequence[Change]) -> None:
            rows = {change.row for change in changes}
            # Python numbers do not wrap as Go's do.
            if len(rows) > _ONE_BY_ONE or self.nodes.may_wrap:
                several = np.array(list(rows), dtype=np.intp)
                array[several] = compute(several)
            else:
                for row in rows:
                    array[row] = compute(row)

        return self._state.derived.get(key, compute_all, patch)

    def scores_per_row(
        self, key: Hashable, compute: Callable[[Where], npt.NDArray[np.generic] | int]
    ) -> Scores:
        """Return what `per_row` does, as int16; as int64 once amounts are so large that scores may wrap as Go's do."""
        dtype = np.int64 if self.nodes.may_wrap else np.int16
        scores: Scores = self.per_row(key, compute, dtype)
        return scores

    def per_node(self, key: Hashable, compute: Callable[[], npt.NDArray[_Scalar]]) -> npt.NDArray[_Scalar]:
        """Return an array that depends on nodes alone, and on no amount: kept until a node, label or taint changes."""
        return self._state.derived.get(key, compute)

    def per_image(self, key: Hashable, compute: Callable[[], Scores]) -> Scores:
        """Return an array that depends on nodes and their images alone: kept until a node or an image changes."""
        nodes = self._state.nodes

        def patch(kept: _ImageScores, _changes: Sequence[Change]) -> None:
            if kept.images_version != nodes.images_version:
                kept.scores, kept.images_version = compute(), nodes.images_version

        return self._state.derived.get(
            key, lambda: _ImageScores(compute(), nodes.images_version), patch
        ).scores
