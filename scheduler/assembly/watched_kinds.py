"""The kinds that are watched, and the stimuli for their changes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from scheduler.assembly.profiles import preempts, storage_kinds_read, uses_default_spreading
from scheduler.kube.changes import Deleted
from scheduler.kube.requests import LIVE_PODS, Resource
from scheduler.model.disruption_budgets import decode_disruption_budget
from scheduler.model.nodes import decode_namespace, decode_node, decode_workload
from scheduler.model.pod_decoder import PodDecoder
from scheduler.model.pod_groups import GroupKey, GroupKind, decode_pod_group
from scheduler.model.pods import term_problem
from scheduler.model.semantics import DEFAULT_SEMANTICS, Semantics
from scheduler.model.stimuli import (
    DisruptionBudgetGone,
    DisruptionBudgetSeen,
    NamespaceGone,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    PodGone,
    PodGroupGone,
    PodGroupSeen,
    PodGroupsServed,
    PodSeen,
    StorageGone,
    StorageSeen,
    WatchEvent,
    WorkloadGone,
    WorkloadSeen,
)
from scheduler.model.volume_decoder import StorageDecoder
from scheduler.model.volumes import StorageKind
from scheduler.settings.resolved import Settings


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """A kind to watch, and the stimuli for its changes. The functions take the objects that `decode` returns."""

    kind: str
    resource: Resource
    decode: Callable[[msgspec.Raw], Any]
    on_upsert: Callable[[Any], WatchEvent]
    on_delete: Callable[[Deleted], WatchEvent]
    #: Returns the problem of a malformed annotation, which is then ignored; None if there is none.
    find_problem: Callable[[Any], str | None] = lambda _: None
    #: Whether there are servers without the kind: storage.k8s.io can be switched off.
    is_optional: bool = False
    #: Whether the kind may be left out by the roles: those of an earlier release did not have it.
    may_be_forbidden: bool = False
    #: What follows the first complete list, for a kind that not every server has.
    on_served: WatchEvent | None = None

    @property
    def name(self) -> str:
        """Return the kind as objects name it, which kinds of several API groups may share."""
        return self.kind.partition(".")[0]


def kinds_for(settings: Settings) -> tuple[WatchedKind, ...]:
    """Return the kinds that decisions read with this configuration. Which pods are placed as one: `pod_groups`."""
    kinds = required_kinds(settings.node_annotations, settings.semantics)
    if any(map(uses_default_spreading, settings.profiles)):
        kinds += workload_kinds()
    if any(map(preempts, settings.profiles)):
        kinds += (disruption_budgets(),)
    return kinds + storage_kinds(storage_kinds_read(settings))


def required_kinds(
    node_annotations: Collection[str] = (), semantics: Semantics = DEFAULT_SEMANTICS
) -> tuple[WatchedKind, ...]:
    """
    Return nodes, namespaces, and all pods that may still run, whichever scheduler they name.

    `node_annotations`: the keys that a plugin reads.
    """
    nodes, namespaces = Resource("/api/v1/nodes"), Resource("/api/v1/namespaces")
    decode_pod = PodDecoder(semantics).decode
    return (
        WatchedKind(
            "Node",
            nodes,
            partial(decode_node, annotation_keys=node_annotations),
            NodeSeen,
            lambda gone: NodeGone(gone.key.name),
        ),
        WatchedKind(
            "Namespace",
            namespaces,
            decode_namespace,
            NamespaceSeen,
            lambda gone: NamespaceGone(gone.key.name),
        ),
        WatchedKind("Pod", LIVE_PODS, decode_pod, PodSeen, lambda gone: PodGone(gone.uid), term_problem),
    )


_WORKLOADS: Final = (
    ("Service", "/api/v1/services"),
    ("ReplicationController", "/api/v1/replicationcontrollers"),
    ("ReplicaSet", "/apis/apps/v1/replicasets"),
    ("StatefulSet", "/apis/apps/v1/statefulsets"),
)


def workload_kinds() -> tuple[WatchedKind, ...]:
    """Return the kinds whose selectors default spread constraints use; only profiles with these need them."""
    return tuple(
        WatchedKind(
            kind, Resource(path), partial(decode_workload, kind), WorkloadSeen, partial(_workload_gone, kind)
        )
        for kind, path in _WORKLOADS
    )


def _workload_gone(kind: str, deleted: Deleted) -> WatchEvent:
    return WorkloadGone(kind, deleted.key.namespace, deleted.key.name)


def disruption_budgets() -> WatchedKind:
    """Return PodDisruptionBudgets; only profiles that preempt need them."""
    return WatchedKind(
        "PodDisruptionBudget",
        Resource("/apis/policy/v1/poddisruptionbudgets"),
        decode_disruption_budget,
        DisruptionBudgetSeen,
        lambda gone: DisruptionBudgetGone(gone.key.namespace, gone.key.name),
    )


_STORAGE: Final = {
    StorageKind.CLASS: "/apis/storage.k8s.io/v1/storageclasses",
    StorageKind.VOLUME: "/api/v1/persistentvolumes",
    StorageKind.CLAIM: "/api/v1/persistentvolumeclaims",
    StorageKind.CSI_NODE: "/apis/storage.k8s.io/v1/csinodes",
    StorageKind.CSI_DRIVER: "/apis/storage.k8s.io/v1/csidrivers",
    StorageKind.CAPACITY: "/apis/storage.k8s.io/v1/csistoragecapacities",
    StorageKind.ATTACHMENT: "/apis/storage.k8s.io/v1/volumeattachments",
}


def storage_kinds(read: Collection[StorageKind] = tuple(StorageKind)) -> tuple[WatchedKind, ...]:
    """Return the kinds of which volumes are made, as far as they are read."""
    decode = StorageDecoder().decode
    return tuple(
        WatchedKind(
            kind.value,
            Resource(path),
            partial(decode, kind),
            StorageSeen,
            partial(_storage_gone, kind),
            is_optional=path.startswith("/apis/"),
        )
        for kind, path in _STORAGE.items()
        if kind in read
    )


_POD_GROUPS: Final = (
    (GroupKind.KUBERNETES, "v1alpha2"),
    (GroupKind.KUBERNETES, "v1beta1"),
    (GroupKind.COSCHEDULING, "v1alpha1"),
)


def recorded_kinds() -> tuple[WatchedKind, ...]:
    """Return every kind that any configuration reads, as snapshots and recordings have them."""
    return (*required_kinds(), *workload_kinds(), *storage_kinds(), disruption_budgets(), *pod_groups())


def pod_groups() -> tuple[WatchedKind, ...]:
    """Return the PodGroups of kubernetes 1.36 and 1.37 and of scheduler-plugins; a server has one of them, or none."""
    return tuple(
        WatchedKind(
            f"PodGroup.{version}.{kind}",
            Resource(f"/apis/{kind}/{version}/podgroups"),
            partial(decode_pod_group, kind, version),
            PodGroupSeen,
            partial(_pod_group_gone, kind),
            is_optional=True,
            may_be_forbidden=True,
            on_served=PodGroupsServed(kind),
        )
        for kind, version in _POD_GROUPS
    )


def _pod_group_gone(kind: GroupKind, deleted: Deleted) -> WatchEvent:
    return PodGroupGone(GroupKey(kind, deleted.key.namespace, deleted.key.name))


def _storage_gone(kind: StorageKind, deleted: Deleted) -> WatchEvent:
    return StorageGone(kind, str(deleted.key))
