"""
Compares what a reflector has told with what a list says, and mends what differs. No IO, no clock.

    first list    --> suspects: objects told in an older version, in none, or no longer listed
    a while later
    second list   --> those that stand where they stood, while the server still says otherwise, are divergent

A watch is always a little behind, so one list proves nothing; what it has not brought after half a minute is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final, Generic

import msgspec

from scheduler.kube.changes import Change, Key, T
from scheduler.kube.known import Known, Version, is_older
from scheduler.kube.responses import ObjectMeta, decode_meta

#: Suspects that are mended in a step: 0.1 ms each, at most.
_AT_ONCE: Final = 20


class Comparison(Generic[T]):
    """
    One comparison of a collection: `note`, `first` for every object of one list, then `second` for those of another.

    Between two calls, and between two steps of what comes in steps, the watch may tell what it likes.
    """

    def __init__(self, known: Known[T]) -> None:
        self._known = known
        #: Suspects: what was told of them at the first list, and what that list said; None for nothing.
        self._suspects: dict[Key, tuple[Version | None, ObjectMeta | None]] = {}
        #: Told before the first list, and not met in it; by `Known.part_of`.
        self._unmet: list[dict[Key, Version]] = []
        #: Suspects of the first list as the second one has them.
        self._again: dict[Key, msgspec.Raw] = {}

    @property
    def n_suspects(self) -> int:
        """Objects to look at again; where there are none the second list is not needed."""
        return len(self._suspects)

    def note(self) -> Iterator[None]:
        """Notes what is known, in steps of less than a millisecond; afterwards the first list may be asked for."""
        for part in self._known.versions():
            self._unmet.append(part)
            yield

    def first(self, raw: msgspec.Raw) -> None:
        """An object of the first list. Cost: O(bytes)."""
        if (meta := _meta(raw)) is None:
            return
        self._unmet[self._known.part_of(meta.key)].pop(meta.key, None)
        told = self._known.version_of(meta.key)
        if told is None or _is_behind(told, meta):
            self._suspects[meta.key] = (told, meta)

    def end_first(self) -> None:
        """The first list is complete: what was told before and still is, and is not in it, is suspect. O(suspects)."""
        for key in chain.from_iterable(self._unmet):
            if (told := self._known.version_of(key)) is not None:
                self._suspects[key] = (told, None)
        self._unmet.clear()

    def second(self, raw: msgspec.Raw) -> None:
        """An object of the second list. Cost: O(bytes)."""
        if (meta := _meta(raw)) is None:
            return
        told, listed = self._suspects.get(meta.key, (None, None))
        if listed is not None and listed.uid == meta.uid:
            self._again[meta.key] = msgspec.Raw(bytes(raw))
        elif told is not None or listed is not None:
            del self._suspects[meta.key]  # another object by now: it was not there to be told of

    def mend(self) -> Iterator[tuple[int, list[Change[T]]]]:
        """
        The second list is complete: how many are divergent, and the changes that mend them, `_AT_ONCE` suspects a step.

        Nothing may be told between a step and when its changes are applied.
        """
        suspects = iter(self._suspects.items())
        while piece := list(islice(suspects, _AT_ONCE)):
            changes: list[Change[T]] = []
            yield sum(self._mended(key, told, listed, changes) for key, (told, listed) in piece), changes

    def _mended(
        self, key: Key, told: Version | None, listed: ObjectMeta | None, changes: list[Change[T]]
    ) -> bool:
        """Whether the suspect still stands where it stood, and is divergent; what mends it is appended."""
        now = self._known.version_of(key)
        if listed is None:
            if now is None or now != told:
                return False
            self._known.vanished(key, changes)
            return True
        if key not in self._again or not (now == told or (now is not None and _is_behind(now, listed))):
            return False
        self._known.seen(self._again[key], changes)
        return True


def _meta(raw: msgspec.Raw) -> ObjectMeta | None:
    """Identity and version; None where they cannot be read, which the watch has told already."""
    try:
        return decode_meta(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _is_behind(told: Version, listed: ObjectMeta) -> bool:
    """Whether the list knows better."""
    return told.uid != listed.uid or is_older(told.resource_version, listed.resource_version)
