"""
The view that an out-of-tree plugin gets: that of the built-in plugins, but with arrays that cannot be written to.

An out-of-tree plugin is code of the user's that runs in our process. Its computed values are kept beside ours, under
keys of its own, and are not audited.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from types import MappingProxyType
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from scheduler.engine.state.arrays import Counts, Mask, RowIndex, Scores
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.columns import LabelColumn, PerDomain
from scheduler.engine.state.counts import Domains, PodCounts
from scheduler.engine.state.kubelet_refusals import Subject
from scheduler.engine.state.matching import PodMatcher
from scheduler.engine.state.read_only_views import (
    NodeColumns,
    NodeView,
    ReadOnlyColumn,
    ReadOnlyCounts,
    VolumesView,
    read_only,
    read_only_amounts,
)
from scheduler.engine.state.topology_rows import TopologyRows

_Scalar = TypeVar("_Scalar", bound=np.generic)
_Parameters = ParamSpec("_Parameters")


class OutOfTreeKey(NamedTuple):
    """
    The key of a value that an out-of-tree plugin computes. `owner`: identifies the plugin, its profile and its
    arguments.
    """

    owner: Hashable
    key: Hashable


def _guarded(
    method: Callable[Concatenate[ClusterView, _Parameters], npt.NDArray[_Scalar]],
) -> Callable[Concatenate[ClusterView, _Parameters], npt.NDArray[_Scalar]]:
    """Return a method with the same array, which cannot be written to."""

    @wraps(method)
    def guarded(
        view: ClusterView, /, *args: _Parameters.args, **kwargs: _Parameters.kwargs
    ) -> npt.NDArray[_Scalar]:
        return read_only(method(view, *args, **kwargs))

    return guarded


class ReadOnlyClusterView(ClusterView):
    """
    The state as an out-of-tree plugin reads it. Arrays have one entry per node row; a row may be dead, which `alive`
    says.

    Arrays cannot be written to, and are valid until the plugin returns.
    """

    def __init__(self, state: ClusterState, owner: Hashable) -> None:
        """`owner`: see `OutOfTreeKey`."""
        super().__init__(state)
        self._owner = owner

    @classmethod
    def of(cls, view: ClusterView, owner: Hashable) -> ReadOnlyClusterView:
        """Return the view as the plugin gets it. 0.5 µs."""
        return cls(view._state, owner)

    # Nodes.

    @property
    def nodes(self) -> NodeColumns:  # type: ignore[override]  # a NodeTable without the methods that change it
        """The node columns."""
        return NodeColumns(self._state.nodes)

    @property
    def alive(self) -> Mask:
        """Rows that hold a live node."""
        return read_only(super().alive)

    def view_at(self, row: int) -> NodeView | None:
        """Return the node of a row and what is on it, None if the row is dead."""
        node = self._state.nodes.nodes[row]
        return None if node is None else NodeView(self._state, row, node)

    def column(self, key: str) -> LabelColumn:
        """Return a node label as a column."""
        return ReadOnlyColumn(super().column(key))

    matching = _guarded(ClusterView.matching)
    matching_term = _guarded(ClusterView.matching_term)
    tolerated = _guarded(ClusterView.tolerated)
    n_untolerated_taints = _guarded(ClusterView.n_untolerated_taints)
    eligible = _guarded(ClusterView.eligible)
    satisfying = _guarded(ClusterView.satisfying)

    # Pods.

    def pods_per_node(self, matcher: PodMatcher) -> Counts:
        """Return how many pods, terminating ones included, the matcher selects on each row."""
        return read_only(super().selected(matcher).by_row)

    def selected(self, matcher: PodMatcher, *, live_only: bool = False) -> PodCounts:
        """Return the number of pods per row that the matcher selects; `live_only` leaves terminating pods out."""
        return ReadOnlyCounts(super().selected(matcher, live_only=live_only))

    def pods_by_domain(self, matcher: PodMatcher, key: str) -> PerDomain:
        """Return how many pods, terminating ones included, the matcher selects in each domain of the topology key."""
        counts = super().selected(matcher)
        return read_only_amounts(counts.per_domain(Domains(self._state.nodes.column(key))))

    declaring = _guarded(ClusterView.declaring)
    has_lower = _guarded(ClusterView.has_lower)

    def kubelet_refusals(self, subject: Subject) -> Mapping[str, str]:
        """Return the names of the nodes that are excluded for the spec or the group, each with the reason."""
        return MappingProxyType(super().kubelet_refusals(subject))

    def existing_terms(self, *_: Any, **__: Any) -> Any:  # noqa: ANN401 - never returns
        """Refused to out-of-tree plugins: a term counts the pods that declare it."""
        raise AttributeError("existing_terms is not part of the plugin contract; use pods_by_domain")

    def term_sums(self, *_: Any, **__: Any) -> Any:  # noqa: ANN401 - never returns
        """Refused to out-of-tree plugins: the sums are patched in place."""
        raise AttributeError("term_sums is not part of the plugin contract; use pods_by_domain")

    # Volumes.

    @property
    def volumes(self) -> VolumesView:  # type: ignore[override]  # Volumes without the methods that change them
        """The volumes, claims and classes of the kinds that the plugin names in `storage_kinds`."""
        return VolumesView(self._state.volumes)

    def topology_rows(self) -> TopologyRows:
        """Refused to out-of-tree plugins: the rows are kept for all volumes."""
        raise AttributeError("topology_rows is not part of the plugin contract; use matching_term")

    # Arrays that plugins compute, cached.

    def per_row(
        self,
        key: Hashable,
        compute: Callable[[RowIndex], npt.NDArray[np.generic] | int],
        dtype: type[_Scalar],
    ) -> npt.NDArray[_Scalar]:
        """
        Return an array of shape (n_rows,), recomputed only at rows whose node or pods changed.

        Args:
            key: identifies the formula and everything that it reads besides these rows.
            compute: returns the value of one row, or the values of several. It reads only these rows.
            dtype: of the array.

        Cost: 1 µs, and `compute` for each changed row; for all rows where a node came, went or got another label.
        """
        return read_only(super().per_row(OutOfTreeKey(self._owner, key), compute, dtype))

    def per_node(self, key: Hashable, compute: Callable[[], npt.NDArray[_Scalar]]) -> npt.NDArray[_Scalar]:
        """
        Return an array that `compute` makes of nodes alone, neither of their pods nor of amounts.

        `key` identifies the formula and its parameters. Recomputed where a node, label, taint or annotation changed.
        """
        return read_only(super().per_node(OutOfTreeKey(self._owner, key), compute))

    def per_asked_node(
        self, key: Hashable, ask: Callable[[NodeView], int], where: Mask
    ) -> npt.NDArray[np.int16]:
        """
        Return what `ask` returns of each node: an array of shape (n_rows,), valid on the rows of `where`.

        Args:
            key: identifies the question and all that it reads besides the node and what is on it.
            ask: returns a number from 0 to 32767. Where there is an earlier answer, it is called again only if the
                node, its pods or its amounts changed since.
            where: live rows.

        Cost: 10 µs, and one call for each of these nodes.
        """
        log = self._state.log
        asked = self._state.derived.kept(OutOfTreeKey(self._owner, key), _AskedNodes)
        answers = asked.current(log.changed_after(asked.version, self.n_rows), log.version)
        for row in np.flatnonzero(where & (answers < 0)).tolist():
            node = self.view_at(row)
            if node is not None:
                answers[row] = ask(node)
        return read_only(answers)

    def per_image(self, key: Hashable, compute: Callable[[], Scores]) -> Scores:
        """Return an array that depends only on nodes and their images; cached until one of them changes."""
        return read_only(super().per_image(OutOfTreeKey(self._owner, key), compute))


@dataclass(slots=True, eq=False)
class _AskedNodes:
    """An out-of-tree plugin's answer for each node at a version of the change log; -1 if it has to be asked."""

    answers: npt.NDArray[np.int16] = field(default_factory=lambda: np.empty(0, np.int16))
    version: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the answers."""
        return self.answers.nbytes

    def current(self, changed: Mask, version: int) -> npt.NDArray[np.int16]:
        """Drop the answers of changed rows; new rows have none. Return all of them."""
        n_new = len(changed) - len(self.answers)
        if n_new:
            self.answers = np.append(self.answers, np.full(n_new, -1, np.int16))
        if version != self.version:
            self.answers[changed] = -1
            self.version = version
        return self.answers
