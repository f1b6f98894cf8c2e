"""
The state of the cluster: nodes, placed pods and everything counted from them. The only door to change any of it.

A pod's life here (framework/cache in kube-scheduler; assumed pods never expire):

    unknown --assume--> assumed --upsert_pod--> placed --remove_pod--> unknown
       |                   `------forget------> unknown
       `--------------upsert_pod--------------> placed

House rules: one writer; pods are keyed by UID; every change moves counts by +1 or -1 at one row; whatever can be
recounted is recounted by `state.audit` and equal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakKeyDictionary

from scheduler.errors import InvariantViolation
from scheduler.model.nodes import Namespace, Node, Workload
from scheduler.model.pods import HostPort, Pod, PodSpec
from scheduler.model.requests import non_zero_on_node, on_node_request
from scheduler.state.declared import DeclaredTerm, DeclaredTerms
from scheduler.state.kubelet_refusals import KubeletRefusals
from scheduler.state.node_masks import NodeMasks
from scheduler.state.node_table import NodeTable, Usage
from scheduler.state.parted import Parted
from scheduler.state.selection import MAX_COUNTED, LabelSet, SelectionIndex
from scheduler.state.workloads import Workloads


@dataclass(slots=True)
class PlacedPod:
    """A pod on a node row, with what it was counted as, so that exactly that is taken back."""

    pod: Pod
    row: int
    label_set: LabelSet
    usage: Usage
    declared: tuple[DeclaredTerm, ...]
    assumed: bool


_NO_PODS: Final[Mapping[str, PlacedPod]] = {}


class ClusterState:
    """Everything known about the cluster, as columns and counts."""

    def __init__(
        self, exempt_namespaces: frozenset[str] = frozenset(), *, max_counted: int | None = MAX_COUNTED
    ) -> None:
        """Nothing is known. `max_counted`: see `SelectionIndex`."""
        self.nodes = NodeTable()
        self.masks = NodeMasks(self.nodes)
        self.selections = SelectionIndex(max_counted)
        self.declared = DeclaredTerms(self.selections, self.nodes, exempt_namespaces)
        self.workloads = Workloads()
        self.kubelet_refusals = KubeletRefusals()
        #: Every placed or assumed pod by UID.
        self.placed: Parted[PlacedPod] = Parted()
        #: The same by row: UID -> pod. No row without pods.
        self._on_row: dict[int, dict[str, PlacedPod]] = {}
        #: Pods in `placed` that await their confirmation by the API server.
        self.n_assumed = 0
        self._usage_by_spec: WeakKeyDictionary[PodSpec, Usage] = WeakKeyDictionary()
        self._n_changes = 0

    @property
    def epoch(self) -> int:
        """
        The same for as long as nothing changed but pods that came to rows and left them, which `nodes.moved` tells.

        Nodes, namespaces, workloads, refusals of kubelets, and which terms are declared and counted are as they were;
        images may have come and gone, which `nodes.images_version` tells.
        """
        return (
            self._n_changes + self.selections.version + self.declared.version + self.kubelet_refusals.version
        )

    def upsert_node(self, node: Node) -> None:
        """The node is there with these facts; pods that waited for it count from now on."""
        known = self.node(node.name)
        # Heartbeats come all the time, and images with the first pods of every rollout.
        if known is None or _without_images(known) != _without_images(node):
            self._n_changes += 1
        self.nodes.upsert(node)
        if known is None or known.labels != node.labels:
            row = self.nodes.row_by_name[node.name]
            self.declared.limits.relabel(row, known.labels if known else {}, node.labels)

    def remove_node(self, name: str) -> None:
        """The node is gone; pods still on it count nowhere until it returns."""
        self._n_changes += 1
        known = self.node(name)
        if known is not None:
            row = self.nodes.row_by_name[name]
            self.nodes.remove(name)
            self.declared.limits.relabel(row, known.labels, {})

    def node(self, name: str) -> Node | None:
        """The live node of that name."""
        row = self.nodes.row_by_name.get(name)
        return None if row is None else self.nodes.nodes[row]

    def upsert_namespace(self, namespace: Namespace) -> None:
        """The namespace has these labels from now on."""
        if self.selections.namespace_labels.get(namespace.name) != namespace.labels:
            self._relabel_namespace(namespace.name, namespace.labels)

    def remove_namespace(self, name: str) -> None:
        """The namespace is gone: its pods, if any, are in an unknown namespace."""
        self._relabel_namespace(name, None)

    def _relabel_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        self.declared.limits.rematch(self.selections.relabel_namespace(name, labels))
        if not self.declared.has_any_limits():
            return
        for placed in self.placed.values():
            # Whether such a pod counts among those that it limits may have changed. O(placed pods), like few others.
            if placed.pod.namespace == name and self.declared.has_limits(placed.pod.spec):
                self.declared.lift(placed.declared, placed.row)
                placed.declared = self.declared.place(placed.label_set, placed.pod.spec, placed.row)

    def upsert_workload(self, workload: Workload) -> None:
        """The workload selects these pods."""
        # Replica sets are seen with every change of their status.
        known = self.workloads.selector_of(workload.kind, workload.namespace, workload.name)
        if known != workload.selector:
            self._n_changes += 1
        self.workloads.upsert(workload)

    def remove_workload(self, kind: str, namespace: str, name: str) -> None:
        """The workload is gone."""
        self._n_changes += 1
        self.workloads.remove(kind, namespace, name)

    def upsert_pod(self, pod: Pod) -> None:
        """
        The API server has the pod on `pod.node_name`; an assumed pod is confirmed, or follows where it differs.

        O(selections that match the pod's labels + terms it declares).
        """
        known = self.placed.get(pod.uid)
        if known is not None:
            if self._taken_over(known, pod):
                self.n_assumed -= known.assumed
                known.assumed = False
                return
            self._lift(known)
        self._put(pod, pod.node_name, assumed=False)

    def remove_pod(self, uid: str) -> Pod | None:
        """The pod is gone from its node. Returns the pod as it was counted, None where it was not placed."""
        known = self.placed.get(uid)
        if known is None:
            return None
        self._lift(known)
        return known.pod

    def assume(self, pod: Pod, node_name: str) -> None:
        """
        The pod counts on the node before the API server confirms it; ends in `upsert_pod` or `forget`.

        Raises InvariantViolation if the pod is placed already: a second assume would count it twice.
        """
        if pod.uid in self.placed:
            raise InvariantViolation(f"assume {pod.key} on {node_name}: uid {pod.uid} is placed already")
        self._put(pod, node_name, assumed=True)

    def reassume(self, pod: Pod) -> None:
        """
        The API server shows the assumed pod unbound, as `pod` says: it counts as that, where it is assumed.

        Raises InvariantViolation if the pod is not assumed.
        """
        known = self.placed.get(pod.uid)
        if known is None or not known.assumed:
            raise InvariantViolation(f"reassume {pod.key}: uid {pod.uid} is not assumed")
        counted = replace(pod, node_name=self.nodes.name_of(known.row))
        if self._taken_over(known, counted):
            return
        self._lift(known)
        self._put(counted, counted.node_name, assumed=True)

    def forget(self, uid: str) -> Pod | None:
        """An assumed pod counts no more. None where it was not assumed (it may have been confirmed meanwhile)."""
        known = self.placed.get(uid)
        if known is None or not known.assumed:
            return None
        self._lift(known)
        return known.pod

    def is_assumed(self, uid: str) -> bool:
        """Whether the pod is assumed and not confirmed yet."""
        known = self.placed.get(uid)
        return known is not None and known.assumed

    def see_refused(self, uid: str, reason: str, now_s: float) -> None:
        """The kubelet of the placed pod's node refused it; nothing happens where the pod is not placed."""
        known = self.placed.get(uid)
        if known is not None:
            node_name = self.nodes.name_of(known.row)
            self.kubelet_refusals.refuse(known.pod.spec, node_name, reason, now_s)

    def sweep(self) -> None:
        """What nobody has used for a while is dropped, so that memory is bounded under churn. O(all that is kept)."""
        self._n_changes += 1
        self.selections.sweep()
        self.nodes.sweep()

    def pods_on(self, row: int) -> Iterable[Pod]:
        """Pods on the row. O(those)."""
        return [placed.pod for placed in self.placed_on(row)]

    def placed_on(self, row: int) -> Collection[PlacedPod]:
        """What is placed on the row; a view, to be read before the next change."""
        return self._on_row.get(row, _NO_PODS).values()

    def usage_of(self, pod: Pod) -> Usage:
        """What the pod takes from its node; shared by all pods of a spec unless one is being resized."""
        if pod.resize is not None:
            return _usage(pod)
        usage = self._usage_by_spec.get(pod.spec)
        if usage is None:
            usage = _usage(pod)
            self._usage_by_spec[pod.spec] = usage
        return usage

    def _taken_over(self, known: PlacedPod, pod: Pod) -> bool:
        """
        The new object counts in the known one's place, where it takes and declares the same on the same node.

        So with most updates of the status, and with every bind: it gives the pod its node's topology labels
        (PodTopologyLabelsAdmission, kubernetes 1.35), and what selects both label sets need not be told.
        Returns: False where nothing was done.
        """
        if not (
            known.pod.spec is pod.spec
            and known.pod.terminating == pod.terminating
            and self.nodes.name_of(known.row) == pod.node_name
            and known.pod.resize == pod.resize
        ):
            return False
        if known.pod.labels != pod.labels:
            if self.declared.has_any_limits():
                # Whom a limit counts, and whether its declarer is one of them, depends on the labels.
                return False
            label_set = self.selections.label_set(pod.namespace, pod.labels)
            if self.selections.relabel(known.label_set, label_set, known.row, live=not pod.terminating):
                self.nodes.moved.note(known.row)
            known.label_set = label_set
        known.pod = pod
        return True

    def _put(self, pod: Pod, node_name: str, *, assumed: bool) -> None:
        placed = PlacedPod(
            pod=pod,
            row=self.nodes.row_for(node_name),
            label_set=self.selections.label_set(pod.namespace, pod.labels),
            usage=self.usage_of(pod),
            declared=(),
            assumed=assumed,
        )
        self.placed[pod.uid] = placed
        on_row = self._on_row.get(placed.row)
        if on_row is None:
            on_row = self._on_row[placed.row] = {}
        on_row[pod.uid] = placed
        self.n_assumed += assumed
        self.nodes.take(placed.row, placed.usage)
        self.selections.place(placed.label_set, placed.row, live=not pod.terminating, delta=1)
        if placed.label_set.limits:
            self.declared.limits.select(placed.label_set, placed.row, 1)
        placed.declared = self.declared.place(placed.label_set, pod.spec, placed.row)

    def _lift(self, placed: PlacedPod) -> None:
        uid = placed.pod.uid
        del self.placed[uid]
        on_row = self._on_row[placed.row]
        del on_row[uid]
        if not on_row:
            del self._on_row[placed.row]
        self.n_assumed -= placed.assumed
        self.declared.lift(placed.declared, placed.row)
        self.selections.place(placed.label_set, placed.row, live=not placed.pod.terminating, delta=-1)
        if placed.label_set.limits:
            self.declared.limits.select(placed.label_set, placed.row, -1)
        self.nodes.give_back(placed.row, placed.usage)


def _without_images(node: Node) -> tuple[object, ...]:
    """All that a decision reads of a node but its images."""
    return node.labels, node.taints, node.unschedulable, node.allocatable, node.declared_features


def _usage(pod: Pod) -> Usage:
    return Usage(
        requested={name: amount for name, amount in on_node_request(pod).items() if amount},
        non_zero=non_zero_on_node(pod),
        host_ports=host_ports(pod.spec),
    )


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """
    Host ports that a pod of the spec takes: its containers' and its sidecars', not those of plain init containers.

    Source: pkg/scheduler/util GetHostPorts (kubernetes 1.36).
    """
    return tuple(
        port
        for container in (*spec.containers, *(c for c in spec.init_containers if c.restart_always))
        for port in container.host_ports
    )
