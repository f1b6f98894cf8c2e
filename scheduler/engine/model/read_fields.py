"""
The fields of each kind's objects that scheduling reads: what snapshots and recordings keep of an object.

They are those of the structs by which objects are decoded, so that no other leaves a cluster. Of metadata each kind
keeps name, namespace, UID and labels beside what it reads; of a pod's annotations those that are named here.
"""

from __future__ import annotations

from typing import Any, Final, cast

from scheduler.engine.model import pod_wire
from scheduler.engine.model.annotations import AFFINITY, MODE
from scheduler.engine.model.device_decoder import DEVICES
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.disruption_budgets import BUDGETS
from scheduler.engine.model.fallback import FALLBACK, RELAXED
from scheduler.engine.model.group_forms import FOREIGN_ANNOTATIONS, GROUP_FROM
from scheduler.engine.model.json_fields import FieldTree, Reader, field_tree
from scheduler.engine.model.kueue import FLAVORS, TOPOLOGIES
from scheduler.engine.model.nodes import NAMESPACES, NODES, SELECTED_BY_LABELS, SELECTED_BY_MAP
from scheduler.engine.model.pod_groups import COSCHEDULING_GROUPS, GROUP_KEYS, KUBERNETES_GROUPS, GroupKind
from scheduler.engine.model.volume_decoder import STORAGE
from scheduler.engine.model.volumes import StorageKind
from scheduler.engine.model.wire import Owner

_META: Final[FieldTree] = {"name": True, "namespace": True, "uid": True, "labels": True}
#: Versions of objects, which a file has no use for but to tell which of two claims is newer.
_VERSIONS: Final = ("resourceVersion", "generation")


def _read(reader: Reader[Any], *versions: str) -> FieldTree:
    """Return the fields of a kind, and of its versions these."""
    found = field_tree(reader.struct)
    meta = cast("FieldTree", found["metadata"])
    kept = {name: tree for name, tree in meta.items() if name in versions or name not in _VERSIONS}
    return {**found, "metadata": {**_META, **kept}}


#: Volumes of pods without one of these sources are left out: their names, and those of `csi`, would name secrets.
VOLUME_SOURCES: Final[FieldTree] = {
    name: tree for name, tree in field_tree(pod_wire.Volume).items() if name not in ("name", "csi")
}
_POD: Final = field_tree(pod_wire.Pod, pod_wire.PARTS)
POD: Final[FieldTree] = {
    **_POD,
    "spec": {**cast("FieldTree", _POD["spec"]), "volumes": {"name": True, **VOLUME_SOURCES}},
    "metadata": {
        **_META,
        "deletionTimestamp": True,
        "creationTimestamp": True,
        "annotations": dict.fromkeys(
            (AFFINITY, MODE, FALLBACK, RELAXED, GROUP_FROM, *sorted(GROUP_KEYS), *FOREIGN_ANNOTATIONS), True
        ),
        "ownerReferences": field_tree(Owner),
    },
}
NODE: Final = _read(NODES)
NAMED: Final = _read(NAMESPACES)
MAP_SELECTED: Final = _read(SELECTED_BY_MAP)
LABEL_SELECTED: Final = _read(SELECTED_BY_LABELS)
STORAGE_CLASS: Final = _read(STORAGE[StorageKind.CLASS])
VOLUME: Final = _read(STORAGE[StorageKind.VOLUME])
CLAIM: Final = _read(STORAGE[StorageKind.CLAIM])
CSI_NODE: Final = _read(STORAGE[StorageKind.CSI_NODE])
CSI_DRIVER: Final = _read(STORAGE[StorageKind.CSI_DRIVER])
CAPACITY: Final = _read(STORAGE[StorageKind.CAPACITY])
ATTACHMENT: Final = _read(STORAGE[StorageKind.ATTACHMENT])
DEVICE_CLASS: Final = _read(DEVICES[DeviceKind.CLASS])
DEVICE_TAINT_RULE: Final = _read(DEVICES[DeviceKind.TAINT_RULE])
RESOURCE_SLICE: Final = _read(DEVICES[DeviceKind.SLICE])
RESOURCE_CLAIM: Final = _read(DEVICES[DeviceKind.CLAIM], "resourceVersion")
DISRUPTION_BUDGET: Final = _read(BUDGETS)
TOPOLOGY: Final = _read(TOPOLOGIES)
RESOURCE_FLAVOR: Final = _read(FLAVORS)
POD_GROUPS: Final = {
    GroupKind.KUBERNETES: _read(KUBERNETES_GROUPS),
    GroupKind.COSCHEDULING: _read(COSCHEDULING_GROUPS),
}
