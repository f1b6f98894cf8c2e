"""
The format of a recording: what a watch of a cluster showed, one change per line; and of a snapshot, which is the first
lists alone.

    {"apiVersion": "affinity-scheduler.io/v1", "kind": "ClusterRecording"}
    {"atS": 0.0, "kind": "Node", "object": {...}}
    {"atS": 0.1, "kind": "Node", "listed": true}
    {"atS": 0.4, "kind": "Pod", "deleted": {"namespace": "shop", "name": "web-1", "uid": "..."}}
    {"atS": 0.5, "kind": "Synced"}

`listed` ends the first list of a kind that the server has. `Synced` ends all of them. `Interrupted` says that a watch
failed: what it missed follows later, all at once.

A snapshot also has who holds the Leases of schedulers until when (`tools.explain.serving`), or why that is not known,
and the kinds that its author was not allowed to list, with the server's answer, which names the user:

    {"atS": 0.5, "kind": "Leases", "object": {"found": [...], "unknown": {...}, "readAt": "2026-01-02T03:04:05Z"}}
    {"atS": 0.5, "kind": "Forbidden", "object": {"DeviceClass": "403 Forbidden: ..."}}

Objects are API JSON with only the fields of `engine.model.read_fields`, so that an unknown field stays out of the file:
it has no environment variables, no commands, no names of secrets, no annotations but affinity rules, the state of
claims and those of nodes that a plugin reads, of volumes only size, topology and the name at their driver, and of
conditions only the message why a pod is not scheduled, and of devices no parameters for their drivers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.json_fields import FieldTree
from scheduler.engine.model.read_fields import VOLUME_SOURCES
from scheduler.tools.explain.formats.explanation import Document, JsonStruct
from scheduler.tools.explain.formats.json_values import mapping_or_empty

KIND: Final = "ClusterRecording"
#: The kinds of lines that only a snapshot has.
LEASES: Final = "Leases"
FORBIDDEN: Final = "Forbidden"
_CONDITION: Final = "PodScheduled"


class Mark(StrEnum):
    """The kind of a line that is no change."""

    SYNCED = "Synced"
    INTERRUPTED = "Interrupted"


class Header(Document, frozen=True, kw_only=True):
    """The first line."""

    kind: str = KIND


class DeletedObject(JsonStruct, frozen=True, kw_only=True):
    """The identity of a deleted object."""

    namespace: str
    name: str
    uid: str


class Line(JsonStruct, frozen=True, kw_only=True, omit_defaults=True):
    """One change: an object as it is from then on, or its end. `at_s`: seconds since the recording began."""

    at_s: float
    kind: str
    #: Empty for no object.
    object: msgspec.Raw = msgspec.Raw()
    deleted: DeletedObject | None = None
    listed: bool = False


def recorded_fields(
    kind: str, document: Mapping[str, object], node_annotations: Collection[str] = ()
) -> dict[str, object]:
    """Return a copy of the object with only the fields of a recording, and these annotations of a node."""
    found = select(document, KINDS[kind].fields)
    if kind == "Node" and node_annotations:
        kept = dict.fromkeys(node_annotations, True)
        annotations = select(document, {"metadata": {"annotations": kept}}).get("metadata")
        if annotations:
            found["metadata"] = {**mapping_or_empty(found.get("metadata")), **mapping_or_empty(annotations)}
    if kind != "Pod":
        return found
    spec, status = found.get("spec"), found.get("status")
    if isinstance(spec, dict) and isinstance(spec.get("volumes"), list):
        spec["volumes"] = [v for v in spec["volumes"] if any(source in v for source in VOLUME_SOURCES)]
    conditions = mapping_or_empty(document.get("status")).get("conditions")
    if isinstance(status, dict) and isinstance(conditions, list) and "conditions" in status:
        status["conditions"] = [_condition(one) for one in conditions if isinstance(one, Mapping)]
    return found


def _condition(document: Mapping[str, object]) -> dict[str, object]:
    fields = ("type", "status", "reason") + (("message",) if document.get("type") == _CONDITION else ())
    return {field: document[field] for field in fields if field in document}


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
