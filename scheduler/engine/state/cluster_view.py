"""
The read-only view of the state that a decision gets; rules of the user's get the same.

Nothing is copied: with one writer and no await inside a cycle, the state cannot change during a decision. Returned
arrays cannot be written to, and are valid until the next stimulus.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from scheduler.engine.model.disruption_budgets import DisruptionBudget
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.volumes import PersistentVolumeClaim
from scheduler.engine.state.arrays import Amounts, Counts, Mask, RowIndex, Rows, Scores, read_only
from scheduler.engine.state.change_log import RowChange
from scheduler.engine.state.class_devices import class_devices
from scheduler.engine.state.cluster import ClusterState, PlacedPod
from scheduler.engine.state.columns import LabelColumn, PerDomain
from scheduler.engine.state.counts import KeyDomains, PodCounts
from scheduler.engine.state.derived import Sized
from scheduler.engine.state.label_sets import LabelSet
from scheduler.engine.state.matching import NamespaceRule, PodMatcher
from scheduler.engine.state.node_masks import NodeMasks
from scheduler.engine.state.node_view import NodeView
from scheduler.engine.state.rule_guard import not_for_rules
from scheduler.engine.state.topology_rows import TopologyRows
from scheduler.engine.syntax.selectors import NOTHING, Selector

_Scalar = TypeVar("_Scalar", bound=np.generic)
_Kept = TypeVar("_Kept", bound=Sized)

#: More volumes than any node attaches.
UNLIMITED: Final = 1 << 40

#: Rows up to which a formula is computed row by row: on arrays it takes 20 to 30 µs, however short.
_ONE_BY_ONE: Final = 6


@dataclass(slots=True, eq=False)
class _ImageScores:
    """Scores that depend on images, and the version of the images that they were computed from."""

    scores: Scores
    images_version: int

    def same_as(self, other: _ImageScores) -> bool:
        """Return whether the scores are equal; for the audit."""
        return np.array_equal(self.scores, other.scores)

    @property
    def nbytes(self) -> int:
        """Bytes of the scores."""
        return self.scores.nbytes


class OutOfTreeKey(NamedTuple):
    """The key of a value of an out-of-tree plugin; `owner`: the plugin, its profile and its arguments."""

    owner: Hashable
    key: Hashable


class ClusterView(NodeMasks):
    """The read-only state. Arrays have one entry per node row unless they say otherwise; dead rows hold no node."""

    def __init__(self, state: ClusterState, owner: Hashable = None) -> None:
        """`owner`: see `OutOfTreeKey`; None for the built-in plugins, whose values are audited."""
        super().__init__(state.nodes, state.derived)
        self.state = state
        self._owner = owner
        #: The node columns; the volumes, claims and classes; the claims, slices and classes of devices.
        self.nodes, self.volumes, self.devices = state.nodes, state.volumes, state.devices

    def owned_by(self, owner: Hashable) -> ClusterView:
        """Return the view as an out-of-tree plugin gets it."""
        return ClusterView(self.state, owner)

    # Nodes.

    @property
    def n_rows(self) -> int:
        """Length of every per-node array."""
        return self.state.nodes.n_rows

    @property
    def n_nodes(self) -> int:
        """Number of live nodes."""
        return self.state.nodes.n_live

    @property
    def alive(self) -> Mask:
        """Rows that hold a live node."""
        return self.state.nodes.alive

    def node_at(self, row: int) -> Node | None:
        """Return the node of a row, None if the row is dead."""
        return self.state.nodes.nodes[row]

    def view_at(self, row: int) -> NodeView | None:
        """Return the node of a row and what is on it, None if the row is dead."""
        node = self.state.nodes.nodes[row]
        return None if node is None else NodeView(self.state, row, node)

    def column(self, key: str) -> LabelColumn:
        """Return a node label as a column."""
        return self.state.nodes.column(key)

    # Pods.

    def label_set(self, pod: Pod) -> LabelSet:
        """Return the pod's label set."""
        return self.state.label_sets.of(pod.namespace, pod.labels)

    def selected(self, matcher: PodMatcher, *, live_only: bool = False) -> PodCounts:
        """Return the number of pods per row that the matcher selects; `live_only` leaves terminating pods out."""
        return self.state.counts.selected(matcher, live_only=live_only)

    def pods_per_node(self, matcher: PodMatcher) -> Counts:
        """Return how many pods, terminating ones included, the matcher selects on each row."""
        return self.selected(matcher).by_row

    def pods_by_domain(self, matcher: PodMatcher, key: str) -> PerDomain:
        """Return how many pods, terminating ones included, the matcher selects in each domain of the topology key."""
        column = self.column(key)
        if not column.id_by_value:
            # Pods name keys as they like: nothing is counted for a key that no node has.
            return PerDomain(np.zeros(column.n_ids, dtype=np.int64), column.ids[: self.n_rows])
        return self.selected(matcher).per_domain(KeyDomains(column))

    def selects(self, matcher: PodMatcher, pod: Pod) -> bool:
        """Return whether the matcher selects the pod, placed or not."""
        return matcher.matches(pod.namespace, pod.labels, self.namespace_labels(pod.namespace))

    def is_kept_apart(self, pod: Pod, keys: Collection[str]) -> bool:
        """Return whether anti-affinity of a running pod by one of these keys may select the pod."""
        return self.state.terms.keeps_apart(self.label_set(pod), keys)

    def has_lower(self, priority: int) -> Mask:
        """Return the rows with a pod that pods of the priority evict. O(pods)."""
        mask = self.state.pods.has_below(priority, self.n_rows)
        for row in self.rows_of_unequal_priority():
            mask[row] = any(
                self.state.groups.victim_priority(placed.pod) < priority
                for placed in self.state.placed_on(row)
            )
        return read_only(mask)

    def rows_evicted_otherwise(self, preemptor: Pod) -> set[int]:
        """Return the rows with pods of `PodGroups.evicted_otherwise`. O(such pods)."""
        return self._rows_of(self.state.groups.evicted_otherwise(preemptor))

    def rows_of_unequal_priority(self) -> set[int]:
        """Return the rows with members of another priority than their group's. O(members of such groups)."""
        return self._rows_of(self.state.groups.of_unequal_priority())

    def _rows_of(self, pods: Iterable[Pod]) -> set[int]:
        return {self.state.placed[pod.uid].row for pod in pods}

    def is_lower(self, victim: Pod, preemptor: Pod) -> bool:
        """Return whether the preemptor may evict the victim, as far as priorities say."""
        groups = self.state.groups
        if groups.victim_priority(victim) >= groups.preemptor_priority(preemptor):
            return False
        # The priority of their group is no reason for a member to take the place of another one.
        own, its = preemptor.group, victim.group
        are_siblings = own is not None and its is not None and own.key == its.key
        return not are_siblings or victim.priority < preemptor.priority

    def evicted_with(self, placed: PlacedPod) -> tuple[PlacedPod, ...]:
        """Return the pods that are only evicted together: the pod, or all members of a group that says so."""
        pod, state = placed.pod, self.state
        if pod.group is None or pod.terminating or not state.groups.is_disrupted_whole(pod):
            return (placed,)
        return tuple(state.placed[member.uid] for member in state.groups.placed(pod.group.key))

    def nominated_above(self, pod: Pod) -> Iterator[tuple[int, Sequence[Pod]]]:
        """Yield the rows with nominated pods of at least the pod's priority, and these pods, without itself."""
        nominated = self.state.nominated
        for name, pods in nominated.by_node() if nominated else ():
            row = self.state.nodes.row_by_name.get(name)
            if row is not None and (above := _above(pod, pods)):
                yield row, above

    def nominated_room(self, pod: Pod) -> tuple[Rows, Amounts]:
        """Return the row of each pod of `nominated_above`, and what each takes, as in `PodsByRow.taken`."""
        state = self.state
        return state.nominated.room_above(pod, state.nodes.row_by_name, state.log.restarted_at)

    def nominated_above_on(self, row: int, pod: Pod) -> Sequence[Pod]:
        """Return the pods of at least the pod's priority that are nominated to the row, without itself."""
        nominated = self.state.nominated
        return _above(pod, nominated.on(self.state.nodes.name_of(row))) if nominated else ()

    def budgets_of(self, label_set: LabelSet) -> Sequence[DisruptionBudget]:
        """
        Return the budgets that select pods of the label set.

        Quirk of kubernetes 1.36 (filterPodsWithPDBViolation): an empty selector selects no pod, and no budget selects a
        pod without labels.
        """
        budgets = self.state.budgets.within(label_set.namespace)
        if not budgets or not label_set.labels:
            return ()
        return [
            budget
            for budget in budgets
            if not budget.selector.is_empty and budget.selector.matches(label_set.labels)
        ]

    def label_sets_of(self, budget: DisruptionBudget) -> Rows:
        """Return the numbers of the label sets that the budget selects, as `budgets_of`. See `LabelSets.selected`."""
        label_sets, rule = self.state.label_sets, NamespaceRule(frozenset({budget.namespace}), NOTHING)
        if budget.selector.is_empty:
            return np.zeros(0, dtype=np.intp)
        is_selected = label_sets.selected(PodMatcher(((rule, budget.selector),)))
        if (without_labels := label_sets.get(budget.namespace, {})) is not None:
            is_selected[without_labels.number] = False
        return is_selected.nonzero()[0]

    # Volumes.

    def are_of_its_group(self, uids: Collection[str], pod: Pod) -> bool:
        """Return whether all these placed pods are of the pod's group; False if it has none."""
        placed = [self.state.placed.get(uid) for uid in uids]
        return pod.group is not None and all(
            other is not None and other.pod.group is not None and other.pod.group.key == pod.group.key
            for other in placed
        )

    def class_devices(self, resource: str) -> tuple[Amounts, Amounts] | None:
        """Return what `class_devices` does for the class that provides the resource; None if none does."""
        devices = self.state.devices
        provider = devices.extended_resources.class_of(resource) if devices.is_served else None
        return None if provider is None else class_devices(provider, devices, self.state.nodes, self)

    @not_for_rules
    def topology_rows(self) -> TopologyRows:
        """Return the rows that reach the topologies of volumes, each kept until nodes change."""
        return self.state.derived.get("topology rows", lambda: TopologyRows(self.nodes, self))

    def is_claim_used(self, claim: PersistentVolumeClaim) -> bool:
        """Return whether a pod on a live node names the claim. O(pods on the nodes with pods that use it)."""
        row_by_name, volumes = self.state.nodes.row_by_name, self.state.volumes
        rows = (row_by_name[name] for name in volumes.users(claim.key))
        return any(
            placed.pod.namespace == claim.namespace and claim.name in placed.pod.spec.claims
            for row in rows
            if self.alive[row]
            for placed in self.state.placed_on(row)
        )

    def volume_room(self, driver: str) -> Amounts:
        """Return how many more volumes of the CSI driver each row can attach; `UNLIMITED` without a limit."""
        volumes = self.state.volumes

        def room_at(row: int) -> int:
            # The limits of a dead row are not updated.
            name = "" if self.node_at(row) is None else self.nodes.name_of(row)
            limit = volumes.limits(driver).get(name)
            return UNLIMITED if limit is None else limit - volumes.attached.n_on(driver).get(name, 0)

        return self._row_by_row(("volume room", driver), room_at, np.int64)

    def has_driver(self, driver: str) -> Mask:
        """Return the rows that have the CSI driver."""
        volumes = self.state.volumes

        def has_at(row: int) -> bool:
            return self.node_at(row) is not None and self.nodes.name_of(row) in volumes.installed.get(
                driver, ()
            )

        return self._row_by_row(("has driver", driver), has_at, np.bool_)

    def _row_by_row(
        self, key: Hashable, compute: Callable[[int], int], dtype: type[_Scalar]
    ) -> npt.NDArray[_Scalar]:
        """As `per_row`, where `compute` takes one row."""

        def compute_some(where: RowIndex) -> npt.NDArray[_Scalar] | int:
            if isinstance(where, int):
                return compute(where)
            rows = range(self.n_rows)[where] if isinstance(where, slice) else where.tolist()
            return np.fromiter(map(compute, rows), dtype, len(rows))

        return self.per_row(key, compute_some, dtype)

    def migrated_rows(self, plugin: str) -> Mask:
        """Return the rows where the in-tree plugin was migrated to its CSI driver. O(these rows)."""
        return self._rows_named(self.volumes.migrated.get(plugin, ()))

    def csi_node_rows(self) -> Mask:
        """Return the rows with a CSINode. O(these rows)."""
        return self._rows_named(self.volumes.csi_nodes)

    def _rows_named(self, names: Iterable[str]) -> Mask:
        row_by_name, mask = self.nodes.row_by_name, np.zeros(self.n_rows, dtype=np.bool_)
        mask[[row_by_name[name] for name in names if name in row_by_name]] = True
        return mask

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of the namespace, None if it is not known."""
        return self.state.label_sets.namespace_labels.get(namespace)

    def default_selector(self, pod: Pod) -> Selector | None:
        """Return the selector of the default spread constraints for the pod; None if no workload selects it."""
        return self.state.workloads.default_selector(pod.namespace, pod.labels, pod.owner)

    # Arrays that plugins compute from node columns, cached.

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

        All rows are computed once a node came, went or got another label.
        """

        def compute_all() -> npt.NDArray[_Scalar]:
            return np.array(np.broadcast_to(compute(slice(0, self.n_rows)), self.n_rows), dtype=dtype)

        def patch(array: npt.NDArray[_Scalar], changes: Sequence[RowChange]) -> None:
            rows = {change.row for change in changes}
            if len(rows) > _ONE_BY_ONE:
                several = np.array(list(rows), dtype=np.intp)
                array[several] = compute(several)
            else:
                for row in rows:
                    array[row] = compute(row)

        return self.state.derived.get(self._owned(key), compute_all, patch)

    def per_node(self, key: Hashable, compute: Callable[[], npt.NDArray[_Scalar]]) -> npt.NDArray[_Scalar]:
        """
        Return an array that `compute` makes from nodes alone, not from their pods or amounts.

        `key` identifies the formula and its parameters. Recomputed after a node, label, taint or annotation changed.
        """
        return self.state.derived.get(self._owned(key), compute)

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
        """
        log = self.state.log
        asked = self.state.derived.kept(self._owned(key), _AskedNodes)
        answers = asked.current(log.changed_after(asked.version, self.n_rows), log.version)
        for row in np.flatnonzero(where & (answers < 0)).tolist():
            node = self.view_at(row)
            if node is not None:
                answers[row] = ask(node)
        return read_only(answers)

    def _owned(self, key: Hashable) -> Hashable:
        return key if self._owner is None else OutOfTreeKey(self._owner, key)

    def per_image(self, key: Hashable, compute: Callable[[], Scores]) -> Scores:
        """Return an array that depends only on nodes and their images; cached until one of them changes."""
        nodes = self.state.nodes

        def patch(cached: _ImageScores, _changes: Sequence[RowChange]) -> None:
            if cached.images_version != nodes.images_version:
                cached.scores, cached.images_version = read_only(compute()), nodes.images_version

        return self.state.derived.get(
            self._owned(key), lambda: _ImageScores(read_only(compute()), nodes.images_version), patch
        ).scores


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


def _above(pod: Pod, others: Collection[Pod]) -> Sequence[Pod]:
    return [other for other in others if other.priority >= pod.priority and other.uid != pod.uid]
