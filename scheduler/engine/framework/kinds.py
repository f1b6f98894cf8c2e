"""
The table of kinds: each kind of object that a scheduler may watch, and what is done with its objects.

A new kind is a row, its reader in `model`, and a `KindStore` of the state. Informers, stimuli, event handlers,
snapshots, recordings and the checks of rights read the table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from scheduler.engine.framework.events import Action, ClusterEvent, Resource
from scheduler.engine.model.device_requests import DEVICES
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.disruption_budgets import BUDGETS
from scheduler.engine.model.json_fields import FieldTree, Reader
from scheduler.engine.model.kueue import KUEUE, KueueKind
from scheduler.engine.model.nodes import (
    NAMESPACES,
    NODES,
    SELECTED_BY_LABELS,
    SELECTED_BY_MAP,
    decode_node,
)
from scheduler.engine.model.object_writes import WatchedObject
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pod_groups import GROUPS, GroupKey, GroupKind
from scheduler.engine.model.pods import term_problem
from scheduler.engine.model.read_fields import POD, kept_fields
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Semantics, Version
from scheduler.engine.model.stimuli import (
    DevicesRelisted,
    DevicesServed,
    NodeGone,
    NodeSeen,
    ObjectGone,
    ObjectSeen,
    PodGone,
    PodGroupGone,
    PodGroupSeen,
    PodGroupsServed,
    PodSeen,
    WatchEvent,
)
from scheduler.engine.model.volumes import STORAGE, StorageKind, storage_reader
from scheduler.engine.state.cluster import ClusterState
from scheduler.errors import ApiError, Forbidden, NotFound


class Asker(Enum):
    """What asks for a kind to be watched."""

    EVERY_CONFIGURATION = auto()
    #: A profile with default spread constraints.
    DEFAULT_SPREADING = auto()
    #: A profile that preempts.
    PREEMPTION = auto()
    #: A plugin that names the kind in `storage_kinds`.
    PLUGINS = auto()
    #: Whatever places pods, or tells how they would be placed, in groups.
    POD_GROUPS = auto()


@dataclass(frozen=True, slots=True)
class KindStore:
    """What a state does with the objects of a kind. `seen`: returns one as watches show it, None if it is not known."""

    seen: Callable[[ClusterState, str, str], WatchedObject | None]
    upsert: Callable[[ClusterState, Any], None]
    remove: Callable[[ClusterState, str, str], None]


class _Objects(Protocol):
    """The part of a state that has the objects of some kinds."""

    def seen(self, kind: Any, key: str) -> WatchedObject | None: ...  # noqa: ANN401 - one of its kinds
    def upsert(self, obj: Any) -> None: ...  # noqa: ANN401 - as above
    def remove(self, kind: Any, key: str) -> None: ...  # noqa: ANN401 - as above


def _part(objects: Callable[[ClusterState], _Objects]) -> KindStore:
    return KindStore(
        lambda state, kind, key: objects(state).seen(kind, key),
        lambda state, obj: objects(state).upsert(obj),
        lambda state, kind, key: objects(state).remove(kind, key),
    )


_NAMESPACES: Final = KindStore(
    lambda state, _, name: state.namespace(name),
    lambda state, namespace: state.relabel_namespace(namespace.name, namespace.labels),
    lambda state, _, name: state.relabel_namespace(name, None),
)
_WORKLOADS: Final = _part(lambda state: state.workloads)
_DEVICES: Final = _part(lambda state: state.devices)
_HIERARCHIES: Final = _part(lambda state: state.hierarchies)
_VOLUMES: Final = _part(lambda state: state.volumes)
_BUDGETS: Final = _part(lambda state: state.budgets)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedKind:
    """
    A row: a kind, and how it is watched, kept and written to files.

    Attributes:
        kind: as its objects name it; with version and group if several kinds have the name.
        path: of its collection, such as `/api/v1/pods`.
        section: the name of its list in a snapshot.
        fields: what snapshots and recordings keep of an object.
        decode: raises MalformedObjectError.
        store: None if the objects have stimuli of their own.
        resource: of the event that wakes pods; None if no change of an object lets a pod in.
        on_delete: takes namespace, name and UID.
        find_problem: returns the problem of a malformed annotation, which is then ignored.
        is_optional: whether there are servers without the kind: storage.k8s.io can be switched off.
        may_be_forbidden: whether roles may leave the kind out, as the roles of an earlier release did.
        on_served: what follows a complete list; for a kind that not every server has.
        on_unserved: what follows when the server no longer has the kind.
        on_relist: what precedes a list after the first, for a kind whose order of changes matters.
    """

    kind: str
    path: str
    section: str
    fields: FieldTree
    asked_by: Asker
    decode: Callable[[bytes | msgspec.Raw], Any]
    on_upsert: Callable[[Any], WatchEvent] = ObjectSeen
    on_delete: Callable[[str, str, str], WatchEvent]
    field_selector: str = ""
    store: KindStore | None = None
    resource: Resource | None = None
    find_problem: Callable[[Any], str | None] = lambda _: None
    is_optional: bool = False
    may_be_forbidden: bool = False
    on_served: WatchEvent | None = None
    on_unserved: WatchEvent | None = None
    on_relist: WatchEvent | None = None

    @property
    def name(self) -> str:
        """Return the kind as objects name it, which kinds of several API groups may share."""
        return self.kind.partition(".")[0]

    @property
    def api_version(self) -> str:
        """Return the `apiVersion` of its objects: `v1`, `apps/v1`."""
        return self.path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]

    def may_lack(self, error: ApiError) -> bool:
        """Return whether a list error means that the kind is not served, or that it is forbidden and may be."""
        return self.is_unserved(error) or (self.may_be_forbidden and isinstance(error, Forbidden))

    def is_unserved(self, error: ApiError) -> bool:
        """Return whether the error of a list says that the server does not have the kind, or no longer has it."""
        return self.is_optional and isinstance(error, NotFound)


_CORE: Final = "/api/v1"
_APPS: Final = "/apis/apps/v1"
_POLICY: Final = "/apis/policy/v1"
_STORAGE: Final = "/apis/storage.k8s.io/v1"
_RESOURCE: Final = "/apis/resource.k8s.io/v1"
#: Of DeviceTaintRules, until the version of Kubernetes that serves them in v1.
_RESOURCE_BETA: Final = "/apis/resource.k8s.io/v1beta2"
_TAINT_RULES_GA: Final = Version(1, 37)
_DEVICE_APIS: Final = (_RESOURCE, _RESOURCE_BETA)
#: The API groups that a server can do without.
_OPTIONAL: Final = frozenset({_STORAGE, *_DEVICE_APIS})
#: Kind -> the resource of its events, whose value may begin with the API group.
_RESOURCES: Final = {resource.rpartition("/")[2]: resource for resource in Resource}

_WORKLOAD_ROWS: Final = (
    ("Service", _CORE, "services", SELECTED_BY_MAP),
    ("ReplicationController", _CORE, "replicationControllers", SELECTED_BY_MAP),
    ("ReplicaSet", _APPS, "replicaSets", SELECTED_BY_LABELS),
    ("StatefulSet", _APPS, "statefulSets", SELECTED_BY_LABELS),
)
_STORAGE_ROWS: Final = (
    (StorageKind.CLASS, _STORAGE, "storageClasses"),
    (StorageKind.VOLUME, _CORE, "persistentVolumes"),
    (StorageKind.CLAIM, _CORE, "persistentVolumeClaims"),
    (StorageKind.CSI_NODE, _STORAGE, "csiNodes"),
    (StorageKind.CSI_DRIVER, _STORAGE, "csiDrivers"),
    (StorageKind.CAPACITY, _STORAGE, "csiStorageCapacities"),
    (StorageKind.ATTACHMENT, _STORAGE, "volumeAttachments"),
)
#: Claims come last: once they are all seen, pods with claims are placed.
_DEVICE_ROWS: Final = (
    (DeviceKind.CLASS, "deviceClasses"),
    (DeviceKind.TAINT_RULE, "deviceTaintRules"),
    (DeviceKind.SLICE, "resourceSlices"),
    (DeviceKind.CLAIM, "resourceClaims"),
)


def _stored(
    kind: str,
    api: str,
    section: str,
    reader: Reader[Any],
    asked_by: Asker,
    store: KindStore,
) -> WatchedKind:
    """Return the row of a kind without stimuli of its own."""
    return WatchedKind(
        kind=kind,
        path=f"{api}/{section.lower()}",
        section=section,
        fields=kept_fields(reader),
        asked_by=asked_by,
        decode=partial(reader.decode, kind),
        on_delete=lambda namespace, name, _: ObjectGone(kind, f"{namespace}/{name}" if namespace else name),
        store=store,
        resource=_RESOURCES.get(kind),
        is_optional=api in _OPTIONAL,
        may_be_forbidden=api in _DEVICE_APIS,
    )


def _pod_group(kind: GroupKind, version: str, section: str) -> WatchedKind:
    """Return a row of PodGroups. Kubernetes 1.36 and 1.37 and scheduler-plugins have one each, a server one or none."""
    return WatchedKind(
        kind=f"PodGroup.{version}.{kind}",
        path=f"/apis/{kind}/{version}/podgroups",
        section=section,
        fields=kept_fields(GROUPS[kind]),
        asked_by=Asker.POD_GROUPS,
        decode=partial(
            GROUPS[kind].decode, "PodGroup", api_version=version if kind is GroupKind.KUBERNETES else ""
        ),
        on_upsert=PodGroupSeen,
        on_delete=lambda namespace, name, _: PodGroupGone(GroupKey(kind, namespace, name)),
        is_optional=True,
        may_be_forbidden=True,
        on_served=PodGroupsServed(kind),
        on_unserved=PodGroupsServed(kind, is_served=False),
    )


def _kueue(kind: KueueKind, section: str) -> WatchedKind:
    """Return a row of Kueue's objects; newer releases serve two versions of them, older ones one."""
    name, version, api_group = kind.split(".", 2)
    api = f"/apis/{api_group}/{version}"
    return replace(
        _stored(kind, api, section, KUEUE[name], Asker.POD_GROUPS, _HIERARCHIES),
        path=f"{api}/{'topologies' if name == 'Topology' else 'resourceflavors'}",
        decode=partial(KUEUE[name].decode, name, kind=kind),
        resource=_RESOURCES[name],
        is_optional=True,
        may_be_forbidden=True,
    )


def _node(annotation_keys: Collection[str]) -> WatchedKind:
    return WatchedKind(
        kind="Node",
        path="/api/v1/nodes",
        section="nodes",
        fields=kept_fields(NODES),
        asked_by=Asker.EVERY_CONFIGURATION,
        decode=partial(decode_node, annotation_keys=annotation_keys),
        resource=Resource.NODE,
        on_upsert=NodeSeen,
        on_delete=lambda _namespace, name, _uid: NodeGone(name),
    )


def _pod(semantics: Semantics) -> WatchedKind:
    """
    Return the row of pods of every scheduler, except succeeded ones: a pod that succeeds looks deleted.

    Failed pods are included, unlike upstream (scheduler.go, NewInformerFactory), because a kubelet rejects a pod by
    failing it, and the event of a pod that leaves the selection has the pod's previous state.
    """
    return WatchedKind(
        kind="Pod",
        path="/api/v1/pods",
        field_selector="status.phase!=Succeeded",
        section="pods",
        fields=POD,
        asked_by=Asker.EVERY_CONFIGURATION,
        decode=PodDecoder(semantics).decode,
        resource=Resource.POD,
        on_upsert=PodSeen,
        on_delete=lambda _namespace, _name, uid: PodGone(uid),
        find_problem=term_problem,
    )


def kinds(
    node_annotations: Collection[str] = (), semantics: Semantics = DEFAULT_SEMANTICS
) -> tuple[WatchedKind, ...]:
    """Return the table, with decoders of its own, in the order of snapshots. `node_annotations`: what plugins read."""
    namespaces = ("Namespace", _CORE, "namespaces", NAMESPACES)
    budgets = ("PodDisruptionBudget", _POLICY, "podDisruptionBudgets", BUDGETS)
    of_taint_rules = _RESOURCE_BETA if semantics.version < _TAINT_RULES_GA else _RESOURCE
    return (
        _node(node_annotations),
        _stored(*namespaces, Asker.EVERY_CONFIGURATION, _NAMESPACES),
        _pod(semantics),
        *(
            replace(
                _stored(*row, Asker.DEFAULT_SPREADING, _WORKLOADS),
                decode=partial(row[3].decode, row[0], kind=row[0]),
            )
            for row in _WORKLOAD_ROWS
        ),
        *(
            replace(
                _stored(*row, STORAGE[row[0]], Asker.PLUGINS, _VOLUMES),
                decode=partial(storage_reader(row[0], semantics).decode, row[0]),
            )
            for row in _STORAGE_ROWS
        ),
        *(
            replace(
                _stored(
                    kind,
                    of_taint_rules if kind == DeviceKind.TAINT_RULE else _RESOURCE,
                    section,
                    DEVICES[kind],
                    Asker.PLUGINS,
                    _DEVICES,
                ),
                on_served=DevicesServed(kind),
                on_unserved=DevicesServed(kind, is_served=False),
                on_relist=DevicesRelisted(kind),
            )
            for kind, section in _DEVICE_ROWS
        ),
        _stored(*budgets, Asker.PREEMPTION, _BUDGETS),
        _pod_group(GroupKind.KUBERNETES, "v1alpha2", "podGroups"),
        _pod_group(GroupKind.KUBERNETES, "v1beta1", "podGroupsV1beta1"),
        _pod_group(GroupKind.COSCHEDULING, "v1alpha1", "coschedulingPodGroups"),
        _kueue(KueueKind.TOPOLOGY_V1BETA1, "topologiesV1beta1"),
        _kueue(KueueKind.TOPOLOGY, "topologies"),
        _kueue(KueueKind.FLAVOR_V1BETA1, "resourceFlavorsV1beta1"),
        _kueue(KueueKind.FLAVOR, "resourceFlavors"),
    )


#: The rows by kind, for readers that decode no pods.
KINDS: Final[Mapping[str, WatchedKind]] = {row.kind: row for row in kinds()}
STORES: Final[Mapping[str, KindStore]] = {
    row.kind: row.store for row in KINDS.values() if row.store is not None
}


def event_of(kind: str, action: Action) -> ClusterEvent | None:
    """Return the event by which a change of an object wakes pods, None if it lets no pod in."""
    resource = KINDS[kind].resource
    return None if resource is None else ClusterEvent(resource, action)
