"""Actions of a plan; `loop` executes them on the store. And changed copies of objects, which are shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from scheduler.sandbox.devcluster.kinds import JsonObject, Kind


@dataclass(frozen=True, slots=True)
class Create:
    """Create `obj`; an event says so if that is refused."""

    kind: Kind
    obj: JsonObject


@dataclass(frozen=True, slots=True)
class Update:
    """Write spec and metadata of `obj`, or its status, unless the stored object has another uid."""

    kind: Kind
    obj: JsonObject
    subresource: Literal["status"] | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object with this name and uid; `grace_s` None leaves the grace to the object."""

    kind: Kind
    obj: JsonObject
    grace_s: int | None = None


@dataclass(frozen=True, slots=True)
class Emit:
    """Record an Event about the planned object, which says why something cannot be made."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Revisit:
    """Plan the same object again in `after_s` seconds, even if nothing happens until then."""

    after_s: float


Action = Create | Update | Delete | Emit | Revisit


def status_written(kind: Kind, obj: JsonObject, status: JsonObject) -> list[Action]:
    """Return the write of the object's status; nothing if the object has that status."""
    if status == (obj.get("status") or {}):
        return []
    return [Update(kind, {**obj, "status": status}, "status")]


def finalizer_removed(kind: Kind, obj: JsonObject, name: str) -> list[Action]:
    """Return the write that takes a finalizer away; nothing if the object has none of this name."""
    finalizers = obj["metadata"].get("finalizers") or []
    if name not in finalizers:
        return []
    left = [one for one in finalizers if one != name]
    return [Update(kind, replaced(obj, ("metadata", "finalizers"), left))]


def replaced(obj: Mapping[str, Any], path: Sequence[str], value: object) -> JsonObject:
    """Return a copy of `obj` with `value` at `path`; the other parts are shared."""
    head, *rest = path
    return {**obj, head: replaced(obj.get(head) or {}, rest, value) if rest else value}


def without(mapping: Mapping[str, Any] | None, *keys: str) -> JsonObject:
    """Return a copy of `mapping` that lacks `keys`."""
    return {key: value for key, value in (mapping or {}).items() if key not in keys}


def positive(counts: Mapping[str, int]) -> JsonObject:
    """Return the counts above 0: Go leaves the others out."""
    return {name: count for name, count in counts.items() if count}
