"""
What a reflector tells: changes of one collection, in the order in which to apply them.

They say nothing of pods or nodes: `T` is what the reflector's decode function returns. Structs rather than
dataclasses, since there is one for each event: 0.1 µs instead of 1.
"""

from __future__ import annotations

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


class Upserted(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """The object is now this. A recreated object comes as Deleted of the old uid, then Upserted."""

    key: Key
    uid: str
    object: T


class Deleted(msgspec.Struct, frozen=True):
    """The object of this uid is gone from the collection: deleted, or no longer selected."""

    key: Key
    uid: str


class Malformed(msgspec.Struct, frozen=True):
    """
    An object that could not be decoded; what was known of it before still stands. Everything else goes on.

    `key` is None if not even the name could be read. Told once for each version of the object.
    """

    key: Key | None
    error: str


class Synced(msgspec.Struct, frozen=True):
    """All told so far adds up to the server's state at `resource_version`. Ends initial list and relists."""

    resource_version: str


class Interrupted(msgspec.Struct, frozen=True):
    """List or watch failed and is taken up again after `retry_in_s`; nothing is lost, but the state ages."""

    error: ApiError
    retry_in_s: float


Change = Upserted[T] | Deleted | Malformed | Synced | Interrupted
