"""
The changes of one collection that a reflector publishes, in the order in which to apply them.

`key`: `namespace/name` of an object, `name` of a cluster-scoped one; a recreated object has the same.

`T` is the return type of the reflector's decode function. Structs rather than dataclasses: creating one takes 0.1 µs
instead of 1, and there is one per event.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from scheduler.errors import ApiError

T = TypeVar("T")


class Upserted(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """The object was created or updated. A recreated object is published as Deleted of the old uid, then Upserted."""

    key: str
    uid: str
    object: T


class Deleted(msgspec.Struct, frozen=True):
    """The object of this uid left the collection: it was deleted, or the selector no longer matches it."""

    key: str
    uid: str


class Malformed(msgspec.Struct, frozen=True):
    """
    An object that could not be decoded. Its last good version stays in effect. Published once per version.

    `key` is None if even the name is unreadable.
    """

    key: str | None
    error: str


class Synced(msgspec.Struct, frozen=True):
    """The changes so far add up to the server's state at `resource_version`. Ends the initial list and every relist."""

    resource_version: str


class Interrupted(msgspec.Struct, frozen=True):
    """
    List or watch failed and is retried after `retry_in_s`. No change is lost, but the state ages meanwhile.

    `relists`: by a new list, whose objects come in no order of their changes until `Synced`.
    """

    error: ApiError
    retry_in_s: float
    relists: bool = False


Change = Upserted[T] | Deleted | Malformed | Synced | Interrupted
