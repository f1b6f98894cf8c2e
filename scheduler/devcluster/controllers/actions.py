"""What a controller may order: values that `loop.py` carries out on the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scheduler.devcluster.kinds import JsonObject, Kind


@dataclass(frozen=True, slots=True)
class Create:
    """`obj` exists. An event on `owner` tells of it where `owner` is given."""

    kind: Kind
    obj: JsonObject
    owner: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """Spec and metadata of the stored object are those of `obj`; nothing happens where the uid is another."""

    kind: Kind
    obj: JsonObject


@dataclass(frozen=True, slots=True)
class UpdateStatus:
    """The status of the stored object is that of `obj`; nothing happens where the uid is another."""

    kind: Kind
    obj: JsonObject


@dataclass(frozen=True, slots=True)
class Delete:
    """The object with this name and uid is deleted. An event on `owner`, where given, tells of it."""

    kind: Kind
    obj: JsonObject
    grace_s: int | None = None
    owner: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Emit:
    """An Event about `about` is recorded."""

    about: JsonObject
    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


@dataclass(frozen=True, slots=True)
class Revisit:
    """The same object is planned again `after_s` seconds from now, whatever happens until then."""

    after_s: float


Action = Create | Update | UpdateStatus | Delete | Emit | Revisit
