"""
Compares a reflector's store with two lists of the server and repairs the differences. No IO, no clock.

    first list    --> suspects: objects whose stored version is older, that are not stored, or that are not listed
    30 s later
    second list   --> divergent: suspects whose stored version is unchanged and still differs from the server's

One list proves nothing, because a watch is always a little late. A change not delivered after 30 s is lost.
kube-scheduler has a comparer for debugging alone (pkg/scheduler/backend/cache/debugger/comparer.go).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final, Generic

import msgspec

from scheduler.daemon.kube.changes import Change, T
from scheduler.daemon.kube.responses import ObjectMeta
from scheduler.daemon.kube.store import ObjectVersion, Store, read_meta
from scheduler.engine.model.resource_versions import is_older

#: Suspects that one step repairs, at most 0.1 ms each.
_SUSPECTS_PER_STEP: Final = 20


class Comparison(Generic[T]):
    """
    One comparison of a collection.

    Call `note_stored`, `compare_first` for every object of one list, `end_first`, `compare_second` for every object of
    another list, `repair`. The watch may change the store between calls, and between the steps of the two iterators.
    """

    def __init__(self, store: Store[T]) -> None:
        self._store = store
        #: The stored version when the first list ended, and the metadata in that list; None if absent.
        self._suspects: dict[str, tuple[ObjectVersion | None, ObjectMeta | None]] = {}
        #: Objects stored before the first list that it has not returned, as `Store.copy_versions` yields them.
        self._unlisted: list[dict[str, bytes]] = []
        #: Suspects as the second list returned them.
        self._raw_by_key: dict[str, msgspec.Raw] = {}

    @property
    def n_suspects(self) -> int:
        """The number of suspects; with 0 the second list is not needed."""
        return len(self._suspects)

    def note_stored(self) -> Iterator[None]:
        """Copy the stored versions, in steps of less than a millisecond. The first list must start afterwards."""
        for versions in self._store.copy_versions():
            self._unlisted.append(versions)
            yield

    def compare_first(self, raw: msgspec.Raw) -> None:
        """Compare an object of the first list with the store."""
        # The watch has published an unreadable object as Malformed.
        if (meta := read_meta(raw, [])) is None:
            return
        self._unlisted[self._store.shard_of(meta.key)].pop(meta.key, None)
        stored = self._store.version_of(meta.key)
        if stored is None or _is_outdated(stored, meta):
            self._suspects[meta.key] = (stored, meta)

    def end_first(self) -> None:
        """Suspect every object that was stored before the first list, still is, and was not listed."""
        for key in chain.from_iterable(self._unlisted):
            if (stored := self._store.version_of(key)) is not None:
                self._suspects[key] = (stored, None)
        self._unlisted.clear()

    def compare_second(self, raw: msgspec.Raw) -> None:
        """Compare an object of the second list with the suspects."""
        if (meta := read_meta(raw, [])) is None:
            return
        stored, listed = self._suspects.get(meta.key, (None, None))
        if listed is not None and listed.uid == meta.uid:
            self._raw_by_key[meta.key] = msgspec.Raw(bytes(raw))
        elif stored is not None or listed is not None:
            del self._suspects[meta.key]  # recreated since the first list; the watch may still deliver it

    def repair(self) -> Iterator[tuple[int, list[Change[T]]]]:
        """
        Yield the number of divergent objects and the changes that repair them, `_SUSPECTS_PER_STEP` suspects a step.

        Apply them before the reflector publishes anything else.
        """
        suspects = iter(self._suspects.items())
        while step := list(islice(suspects, _SUSPECTS_PER_STEP)):
            changes: list[Change[T]] = []
            yield sum(self._repair(key, stored, listed, changes) for key, (stored, listed) in step), changes

    def _repair(
        self, key: str, stored: ObjectVersion | None, listed: ObjectMeta | None, changes: list[Change[T]]
    ) -> bool:
        """Append the changes that repair the suspect. Returns: True if it is divergent."""
        current = self._store.version_of(key)
        if listed is None:
            if current is None or current != stored:
                return False
            self._store.delete_key(key, changes)
            return True
        is_unchanged = current == stored or (current is not None and _is_outdated(current, listed))
        if key not in self._raw_by_key or not is_unchanged:
            return False
        self._store.upsert(self._raw_by_key[key], changes)
        return True


def _is_outdated(stored: ObjectVersion, listed: ObjectMeta) -> bool:
    """Return True if the list has another object of that name, or a newer version."""
    return stored.uid != listed.uid or is_older(stored.resource_version, listed.resource_version)
