"""Actions of a plan; `execution` executes them on the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scheduler.sandbox.devcluster.kinds import JsonObject, Kind


@dataclass(frozen=True, slots=True)
class Create:
    """Create `obj`, and record that on `owner` if there is one."""

    kind: Kind
    obj: JsonObject
    owner: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """Write spec and metadata of `obj`, unless the stored object has another uid."""

    kind: Kind
    obj: JsonObject


@dataclass(frozen=True, slots=True)
class UpdateStatus:
    """Write the status of `obj`, unless the stored object has another uid."""

    kind: Kind
    obj: JsonObject


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object with this name and uid, and record that on `owner` if there is one."""

    kind: Kind
    obj: JsonObject
    owner: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Emit:
    """Record an Event about `about`."""

    about: JsonObject
    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


@dataclass(frozen=True, slots=True)
class Revisit:
    """Plan the same object again in `after_s` seconds, even if nothing happens until then."""

    after_s: float


Action = Create | Update | UpdateStatus | Delete | Emit | Revisit


def status_written(kind: Kind, obj: JsonObject, status: JsonObject) -> list[Action]:
    """Return the write of the object's status; nothing if the object has that status."""
    if status == (obj.get("status") or {}):
        return []
    return [UpdateStatus(kind, {**obj, "status": status})]
