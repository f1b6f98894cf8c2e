"""
The fields of each kind's objects that scheduling reads: what snapshots and recordings keep of an object.

They are those of the structs by which objects are decoded, so that no other leaves a cluster. Of metadata each kind
keeps name, namespace, UID and labels beside what it reads; of a pod's annotations those that are named here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, cast

from scheduler.engine.model import pod_wire
from scheduler.engine.model.annotations import AFFINITY, MODE
from scheduler.engine.model.device_requests import DEVICES
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.fallback import FALLBACK, RELAXED
from scheduler.engine.model.group_forms import FOREIGN_ANNOTATIONS, GROUP_FROM
from scheduler.engine.model.json_fields import FieldTree, Reader, field_tree
from scheduler.engine.model.pod_groups import GROUP_KEYS
from scheduler.engine.model.wire import Owner

_META: Final[FieldTree] = {"name": True, "namespace": True, "uid": True, "labels": True}
#: Versions of objects, for which a file has no use.
_VERSIONS: Final = ("resourceVersion", "generation")


@lru_cache(maxsize=64)
def kept_fields(reader: Reader[Any]) -> FieldTree:
    """Return what files keep of the objects that the reader decodes; of claims the version, by which one is newer."""
    found = field_tree(reader.struct)
    meta = cast("FieldTree", found["metadata"])
    dropped = ("generation",) if reader is DEVICES[DeviceKind.CLAIM] else _VERSIONS
    kept = {name: tree for name, tree in meta.items() if name not in dropped}
    return {**found, "metadata": {**_META, **kept}}


#: Volumes of pods with other sources are left out: their names, and the names of `csi`, would name secrets.
VOLUME_SOURCES: Final[FieldTree] = {
    name: tree for name, tree in field_tree(pod_wire.Volume).items() if name not in ("name", "csi")
}
_POD: Final = field_tree(pod_wire.WirePod, pod_wire.PARTS)
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
