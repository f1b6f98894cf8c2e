"""
The format of a recording: what a watch of a cluster showed, one change per line, for `shadow --recording`.

    {"apiVersion": "affinity-scheduler.io/v1", "kind": "ClusterRecording"}
    {"atS": 0.0, "kind": "Node", "object": {...}}
    {"atS": 0.4, "kind": "Pod", "deleted": {"namespace": "shop", "name": "web-1", "uid": "..."}}
    {"atS": 0.5, "kind": "Synced"}

`Synced` ends the first lists. `Interrupted` says that a watch failed: what it missed follows later, all at once.
Objects have the fields of a snapshot (`snapshot_file`), which leave out secrets and environments, and why a pod is not
scheduled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from scheduler.tools.explain.formats.explanation import Document, JsonStruct
from scheduler.tools.explain.formats.snapshot_file import scheduling_fields

KIND: Final = "ClusterRecording"


class Mark(StrEnum):
    """The kind of a line that is no change."""

    SYNCED = "Synced"
    INTERRUPTED = "Interrupted"


_CONDITION: Final = "PodScheduled"


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


def recorded_fields(
    kind: str, document: Mapping[str, object], node_annotations: Collection[str] = ()
) -> dict[str, object]:
    """Return the fields of a snapshot, and the message of a pod that is not scheduled."""
    found = scheduling_fields(kind, document, node_annotations)
    status, reduced = document.get("status"), found.get("status")
    if kind != "Pod" or not isinstance(status, Mapping) or not isinstance(reduced, dict):
        return found
    conditions = status.get("conditions")
    if isinstance(conditions, list) and isinstance(reduced.get("conditions"), list):
        reduced["conditions"] = [_condition(one) for one in conditions if isinstance(one, Mapping)]
    return found


def _condition(document: Mapping[str, object]) -> dict[str, object]:
    fields = ("type", "status", "reason") + (("message",) if document.get("type") == _CONDITION else ())
    return {field: document[field] for field in fields if field in document}
