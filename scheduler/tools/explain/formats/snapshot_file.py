"""
The format of a cluster snapshot file, which has only what scheduling reads.

    {"apiVersion": "affinity-scheduler.io/v1", "kind": "ClusterSnapshot",
     "nodes": [...], "namespaces": [...], "pods": [...], "services": [...], "persistentVolumes": [...], ...,
     "leases": {"found": [...], "unknown": {"kube-scheduler": "403 Forbidden: ..."}, "readAt": "2026-01-02T03:04:05Z"},
     "forbidden": {"DeviceClass": "403 Forbidden: ..."}}

Objects are API JSON with only the fields of `engine.model.read_fields`, so that an unknown field stays out of the
file. It has no environment variables, no commands, no names of secrets, no annotations but affinity rules, the state
of claims and those of nodes that a plugin reads, and of volumes only size, topology and the name at their driver. A
list that the file lacks is empty; of PodGroups, which have a list for each version of their API, the cluster does
not have the kind. `leases` has who holds the Leases of schedulers until when (`tools.explain.serving`), or why that is
not known. `forbidden` has the kinds that the user was not allowed to list, with the server's answer, which
names the user.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.read_fields import VOLUME_SOURCES, FieldTree
from scheduler.tools.explain.formats.explanation import API_VERSION

KIND: Final = "ClusterSnapshot"
#: The field with the kinds that could not be listed.
FORBIDDEN: Final = "forbidden"
#: The field with the Leases of schedulers.
LEASES: Final = "leases"


def scheduling_fields(
    kind: str, document: Mapping[str, object], node_annotations: Collection[str] = ()
) -> dict[str, object]:
    """Return a copy of the object with only the fields that scheduling reads, and these annotations of a node."""
    found = select(document, KINDS[kind].fields)
    if kind == "Node" and node_annotations:
        kept = dict.fromkeys(node_annotations, True)
        annotations = select(document, {"metadata": {"annotations": kept}}).get("metadata")
        if annotations:
            found["metadata"] = {**_mapping(found.get("metadata")), **_mapping(annotations)}
    spec = found.get("spec")
    if kind == "Pod" and isinstance(spec, dict) and isinstance(spec.get("volumes"), list):
        spec["volumes"] = [v for v in spec["volumes"] if any(source in v for source in VOLUME_SOURCES)]
    return found


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def header() -> dict[str, str]:
    """Return the first fields of a snapshot file."""
    return {"apiVersion": API_VERSION, "kind": KIND}


def select(document: Mapping[str, object], shape: FieldTree) -> dict[str, object]:
    """Return a copy of the document with only the fields of `shape`."""
    found: dict[str, object] = {}
    for field, inner in shape.items():
        value = document.get(field)
        if value is None:
            continue
        if isinstance(inner, bool):
            found[field] = value
        elif isinstance(value, Mapping):
            found[field] = select(value, inner)
        elif isinstance(value, list):
            found[field] = [select(one, inner) for one in value if isinstance(one, Mapping)]
    return found
