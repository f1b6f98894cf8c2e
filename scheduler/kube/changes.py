"""
What a reflector tells: changes of one collection, in the order in which to apply them.

They say nothing of pods or nodes: `T` is what the reflector's decode function returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from scheduler.errors import ApiError

T = TypeVar("T")


class Key(msgspec.Struct, frozen=True, gc=False):
    """Where an object lives, until another uid lives there; `namespace` is empty for cluster-wide kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Upserted(Generic[T]):
    """The object is now this. A recreated object comes as Deleted of the old uid, then Upserted."""

    key: Key
    uid: str
    object: T


@dataclass(frozen=True, slots=True)
class Deleted:
    """The object of this uid is gone from the collection: deleted, or no longer selected."""

    key: Key
    uid: str


@dataclass(frozen=True, slots=True)
class Malformed:
    """
    An object that could not be decoded; what was known of it before still stands. Everything else goes on.

    `key` is None if not even the name could be read. Told once for each version of the object.
    """

    key: Key | None
    error: str


@dataclass(frozen=True, slots=True)
class Synced:
    """All told so far adds up to the server's state at `resource_version`. Ends initial list and relists."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """List or watch failed and is taken up again after `retry_in_s`; nothing is lost, but the state ages."""

    error: ApiError
    retry_in_s: float


Change = Upserted[T] | Deleted | Malformed | Synced | Interrupted
