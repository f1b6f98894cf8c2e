"""
The state of the cluster: nodes, placed pods and everything counted from them. Every change goes through it.

The life of a pod here, as in kube-scheduler's cache, except that assumed pods never expire:

    unknown --assume--> assumed --upsert_pod--> placed --remove_pod--> unknown
       |                   `------forget------> unknown
       `--------------upsert_pod--------------> placed

Invariants: one writer; pods are keyed by UID; every pod that comes or goes is one entry of the change log, by which
derived counts are patched; `engine.state.audit` recounts everything.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from scheduler.engine.model.annotations import MARKED_NAMESPACES
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.frozen_dict import FrozenDict
from scheduler.engine.model.nodes import Namespace, Node
from scheduler.engine.model.object_writes import StoredObject
from scheduler.engine.model.pods import MemoBySpec, Pod
from scheduler.engine.model.requests import non_zero_on_node, on_node_request
from scheduler.engine.state.assumed_objects import StoredObjects
from scheduler.engine.state.batches import Pieces, batches
from scheduler.engine.state.change_log import ChangeLog, RowChange
from scheduler.engine.state.counts import PodCounter
from scheduler.engine.state.derived import MAX_BYTES, DerivedValues
from scheduler.engine.state.devices import Devices
from scheduler.engine.state.disks import MountedDisks
from scheduler.engine.state.existing_terms import ExistingPodTerm, ExistingTerms, has_limits
from scheduler.engine.state.hierarchies import Hierarchies
from scheduler.engine.state.kubelet_refusals import KubeletRefusals
from scheduler.engine.state.label_sets import LabelSet, LabelSets
from scheduler.engine.state.matching import NamespaceRule
from scheduler.engine.state.node_table import NodeTable, Usage
from scheduler.engine.state.nominated_pods import NominatedPods
from scheduler.engine.state.object_table import DisruptionBudgets
from scheduler.engine.state.partitioned_dict import PartitionedDict
from scheduler.engine.state.pod_columns import PodColumns
from scheduler.engine.state.pod_groups import PodGroups
from scheduler.engine.state.rule_guard import not_for_rules
from scheduler.engine.state.sparse_dicts import discard_entry
from scheduler.engine.state.volumes import Volumes
from scheduler.engine.state.workloads import Workloads
from scheduler.errors import InvariantViolation


@dataclass(slots=True)
class PlacedPod:
    """A pod on a node row, and the values it was counted with: the same are subtracted when it leaves."""

    pod: Pod
    row: int
    slot: int
    label_set: LabelSet
    usage: Usage
    terms: tuple[ExistingPodTerm, ...]
    assumed: bool


#: By default, an administrator marks namespaces with a label.
MARKED_BY_LABEL: Final = NamespaceRule(frozenset(), MARKED_NAMESPACES)
_NO_PODS: Final[Mapping[str, PlacedPod]] = {}


class ClusterState:
    """The cluster as columns, and the counts derived from them."""

    def __init__(
        self,
        exempt_namespaces: frozenset[str] = frozenset(),
        *,
        annotating: NamespaceRule = MARKED_BY_LABEL,
        max_derived_bytes: int | None = MAX_BYTES,
        decides: bool = True,
    ) -> None:
        """`decides`: whether pods are to be placed, for which the affinity terms of placed pods are kept."""
        self._options = (exempt_namespaces, annotating, max_derived_bytes, decides)
        self.log = ChangeLog()
        self.derived = DerivedValues(self.log, max_derived_bytes)
        self.nodes = NodeTable(self.log)
        self.label_sets = LabelSets()
        self.terms = ExistingTerms(self.label_sets, exempt_namespaces, annotating, is_read=decides)
        self.pods = PodColumns()
        self.counts = PodCounter(self.log, self.derived, self.nodes, self.pods, self.label_sets, self.terms)
        self.workloads = Workloads()
        self.kubelet_refusals = KubeletRefusals()
        self.disks = MountedDisks()
        self.volumes = Volumes(self.nodes, self.log)
        self.devices = Devices()
        self.budgets = DisruptionBudgets()
        self.nominated = NominatedPods()
        self.groups = PodGroups()
        self.hierarchies = Hierarchies()
        #: Pods that are not tried meanwhile, by UID: the pod for whose victims they wait, the same or a sibling.
        self.held_for_evictions: dict[str, str] = {}
        #: Every placed or assumed pod by UID.
        self.placed: PartitionedDict[PlacedPod] = PartitionedDict()
        #: The same pods by row, then UID; a row without pods has no entry.
        self._on_row: dict[int, dict[str, PlacedPod]] = {}
        #: Pods in `placed` that no watch has confirmed yet.
        self.n_assumed = 0
        #: Whether a cycle is not over: places of a group's members may be assumed that are taken back later, and the
        #: queue does not hold the pods of the cycle. Only the machine may read the state meanwhile.
        self.is_provisional = False
        self._usage_by_spec = MemoBySpec(_usage)

    @contextmanager
    def provisional(self) -> Iterator[None]:
        """Let `is_provisional` be true within the block."""
        self.is_provisional = True
        try:
            yield
        finally:
            self.is_provisional = False

    def copy(self) -> ClusterState:
        """Return a copy that changes on its own. O(pods + nodes)."""
        copy = self.empty_copy()
        for _ in self.copy_pieces(copy):
            pass
        return copy

    def empty_copy(self) -> ClusterState:
        """Return an empty state with the same configuration."""
        exempt_namespaces, annotating, max_derived_bytes, decides = self._options
        return ClusterState(
            exempt_namespaces, annotating=annotating, max_derived_bytes=max_derived_bytes, decides=decides
        )

    def copy_pieces(self, copy: ClusterState) -> Generator[None, None, None]:
        """
        Fill the empty `copy`, and yield every 0.5 ms. Pods that come or go meanwhile may be left out.

        Pending members of groups are not copied: they are in a queue, and a copy has none.
        """
        copy.workloads, copy.budgets = self.workloads.copy(), self.budgets.copy()
        copy.kubelet_refusals = self.kubelet_refusals.copy()
        copy.held_for_evictions = dict(self.held_for_evictions)
        copy.groups, copy.hierarchies = self.groups.without_members(), self.hierarchies.copy()
        for name, labels in list(self.label_sets.namespace_labels.items()):
            copy.relabel_namespace(name, labels)
        for node_name, pods in list(self.nominated.by_node()):
            for pod in pods:
                copy.nominate(pod, node_name)
        yield from self.volumes.copy_pieces(copy.volumes)
        yield from self.devices.copy_pieces(copy.devices)
        for nodes in batches(list(self.nodes.nodes)):
            for node in nodes:
                if node is not None:
                    copy.nodes.upsert(node)
            yield
        for part in self.placed.parts():
            located = [(known.pod, self.nodes.name_of(known.row), known.assumed) for known in part.values()]
            for few in batches(located):
                for pod, node_name, assumed in few:
                    copy._count(pod, node_name, assumed=assumed)
                yield

    def node(self, name: str) -> Node | None:
        """Return the live node of that name, None if there is none."""
        row = self.nodes.row_by_name.get(name)
        return None if row is None else self.nodes.nodes[row]

    def namespace(self, name: str) -> Namespace | None:
        """Return the namespace, without its version; None if it is not known."""
        labels = self.label_sets.namespace_labels.get(name)
        return None if labels is None else Namespace(name, "", labels)

    @not_for_rules
    def relabel_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Give the namespace these labels; None removes it: pods in it are then in an unknown namespace."""
        known = self.label_sets.namespace_labels
        if known.get(name) == labels:
            return
        did_cross = self.terms.may_cross(name)
        if labels is None:
            del known[name]
        else:
            known[name] = labels
        self.log.restart()
        changes_reach = self.terms.may_cross(name) != did_cross
        if not self.terms.n_limiting and not changes_reach:
            return
        for placed in self.placed.values():
            # A limiting term may select its own pod by namespace labels: its key may have changed. O(placed pods).
            if placed.pod.namespace != name:
                continue
            spec = placed.pod.spec
            if has_limits(spec) or (changes_reach and spec.affinity.crosses_by_annotation()):
                self.terms.forget_spec(spec)
                self.terms.remove(placed.terms, placed.row)
                placed.terms = self.terms.add(placed.label_set, placed.pod.spec, placed.row)

    @not_for_rules
    def nominate(self, pod: Pod, node_name: str) -> None:
        """Count the pending pod as nominated to the node, for pods of its priority or lower; an empty name ends it."""
        if node_name and pod.uid not in self.placed:
            row = self.nodes.row_by_name.get(node_name)
            self.nominated.nominate(pod, node_name, row, self.usage_of(pod).requested)
        else:
            self.nominated.remove(pod.uid)

    @contextmanager
    def without_nominations(self, uids: Collection[str]) -> Iterator[None]:
        """Let these pods count as not nominated inside the block. O(nominated pods) if any of them is."""
        nominated = self.nominated
        if any(map(nominated.node_of, uids)):
            self.nominated = NominatedPods()
            for node_name, pods in nominated.by_node():
                for pod in pods:
                    if pod.uid not in uids:
                        self.nominate(pod, node_name)
        try:
            yield
        finally:
            self.nominated = nominated

    def stored_with(self, obj: StoredObject) -> StoredObjects:
        """Return the objects of the kinds among which the object's is."""
        return self.devices if isinstance(obj.kind, DeviceKind) else self.volumes

    @not_for_rules
    def upsert_pod(self, pod: Pod) -> None:
        """Place the pod on `pod.node_name`, as a watch shows it. An assumed pod is thereby confirmed, or moved."""
        known = self.placed.get(pod.uid)
        if known is not None:
            if self._update_in_place(known, pod):
                self.n_assumed -= known.assumed
                known.assumed = False
                return
            self._uncount(known)
        self._count(pod, pod.node_name, assumed=False)

    @not_for_rules
    def remove_pod(self, uid: str) -> Pod | None:
        """Take the pod off its node. Return the pod as it was counted, None if it was not placed."""
        known = self.placed.get(uid)
        if known is None:
            return None
        self._uncount(known)
        return known.pod

    @not_for_rules
    def assume(self, pod: Pod, node_name: str) -> None:
        """
        Count the pod on the node before the API server confirms it, until `upsert_pod`, `forget` or `remove_pod`.

        Raises InvariantViolation if the pod is placed already: a second assume would count it twice.
        """
        if pod.uid in self.placed:
            raise InvariantViolation(f"assume {pod.key} on {node_name}: uid {pod.uid} is placed already")
        self._count(pod, node_name, assumed=True)

    @not_for_rules
    def update_assumed(self, pod: Pod) -> None:
        """
        Replace the assumed pod by `pod`, which a watch shows still unbound; it stays on its node.

        Raises InvariantViolation if the pod is not assumed.
        """
        known = self.placed.get(pod.uid)
        if known is None or not known.assumed:
            raise InvariantViolation(f"update_assumed {pod.key}: uid {pod.uid} is not assumed")
        counted = replace(pod, node_name=self.nodes.name_of(known.row))
        if self._update_in_place(known, counted):
            return
        self._uncount(known)
        self._count(counted, counted.node_name, assumed=True)

    @not_for_rules
    def forget(self, uid: str) -> Pod | None:
        """Take an assumed pod off its node and return it; None if it is not assumed, or confirmed meanwhile."""
        known = self.placed.get(uid)
        if known is None or not known.assumed:
            return None
        self._uncount(known)
        return known.pod

    def is_assumed(self, uid: str) -> bool:
        """Return whether the pod is assumed and no watch has confirmed it."""
        known = self.placed.get(uid)
        return known is not None and known.assumed

    def sweeping(self) -> Pieces[None]:
        """
        Drop what nothing has used for a while, so that memory is bounded. O(label sets + derived values).

        Yield after every few milliseconds; the state may change meanwhile.
        """
        self.nodes.sweep()
        self.log.sweep()
        self.terms.sweep()
        yield from self.derived.sweeping()
        yield from self.label_sets.sweeping()

    def placed_on(self, row: int) -> Collection[PlacedPod]:
        """Return a view of the pods on the row; read it before the next change."""
        return self._on_row.get(row, _NO_PODS).values()

    def usage_of(self, pod: Pod) -> Usage:
        """Return what the pod takes from its node; pods of one spec share it unless the pod is being resized."""
        return self._usage_by_spec.of(pod) if pod.resize is None else _usage(pod)

    def _update_in_place(self, known: PlacedPod, pod: Pod) -> bool:
        """
        Replace the known object by the new one if node, usage and declared terms are the same; return whether they are.

        They are the same in most updates of the status, when a pod begins to terminate, and in a bind, which gives the
        pod its node's topology labels (PodTopologyLabelsAdmission, kubernetes 1.35).
        """
        ends = known.pod.terminating != pod.terminating
        if not (
            known.pod.spec is pod.spec
            and not (ends and pod.group is not None)
            and self.nodes.name_of(known.row) == pod.node_name
            and known.pod.resize == pod.resize
            and known.pod.priority == pod.priority
            and known.pod.group == pod.group
        ):
            return False
        relabeled = known.pod.labels != pod.labels
        if relabeled and self.terms.n_limiting:
            # A limiting term may select the pod that declares it, which depends on the labels.
            return False
        if relabeled or ends:
            self._recount(known, pod)
        if known.pod.started != pod.started:
            self.pods.restart(known.slot, pod.start_rank)
        known.pod = pod
        return True

    def _recount(self, placed: PlacedPod, pod: Pod) -> None:
        """Count the pod by its new labels, and as terminating or not."""
        label_set, live = self.label_sets.of(pod.namespace, pod.labels), not pod.terminating
        for counted, was_live, delta in (
            (placed.label_set, not placed.pod.terminating, -1),
            (label_set, live, 1),
        ):
            counted.n_pods += delta
            self.log.append(RowChange(placed.row, delta, counted, was_live))
        self.pods.recount(placed.slot, label_set.number, live=live)
        placed.label_set = label_set

    def _count(self, pod: Pod, node_name: str, *, assumed: bool) -> None:
        row, live = self.nodes.row_for(node_name), not pod.terminating
        label_set, usage = self.label_sets.of(pod.namespace, pod.labels), self.usage_of(pod)
        terms = self.terms.add(label_set, pod.spec, row)
        slot = self.pods.add(label_set.number, row, pod.priority, pod.start_rank, usage.requested, live=live)
        placed = self.placed[pod.uid] = PlacedPod(pod, row, slot, label_set, usage, terms, assumed)
        self._on_row.setdefault(row, {})[pod.uid] = placed
        label_set.n_pods += 1
        self.nominated.remove(pod.uid)
        self.n_assumed += assumed
        self.nodes.count_usage(row, usage, 1)
        if pod.spec.disks or pod.spec.claim_volumes:
            self.disks.count(row, pod.spec.disks, 1)
            self.volumes.count_pod(pod, node_name, 1)
        if pod.group is not None:
            self.groups.place(pod)
        self.log.append(RowChange(row, 1, label_set, live, terms))

    def _uncount(self, placed: PlacedPod) -> None:
        uid, row, live = placed.pod.uid, placed.row, not placed.pod.terminating
        del self.placed[uid]
        discard_entry(self._on_row, row, uid)
        self.terms.remove(placed.terms, row)
        spec = placed.pod.spec
        if spec.disks or spec.claim_volumes:
            self.disks.count(row, spec.disks, -1)
            self.volumes.count_pod(placed.pod, self.nodes.name_of(row), -1)
        if placed.pod.group is not None:
            self.groups.displace(placed.pod)
        self.pods.remove(placed.slot)
        placed.label_set.n_pods -= 1
        self.n_assumed -= placed.assumed
        # Before count_usage, which may free the row.
        self.log.append(RowChange(row, -1, placed.label_set, live, placed.terms))
        self.nodes.count_usage(row, placed.usage, -1)


def _usage(pod: Pod) -> Usage:
    return Usage(
        requested=FrozenDict({name: amount for name, amount in on_node_request(pod).items() if amount}),
        non_zero=non_zero_on_node(pod),
        host_ports=pod.spec.host_ports,
    )
