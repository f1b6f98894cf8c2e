"""Dicts in which a key has no entry once its count is 0, or its dict or set is empty."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Final, TypeVar

from scheduler.engine.state.partitioned_dict import PartitionedDict

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V", bound=Hashable)
_W = TypeVar("_W")

_NO_HOLDERS: Final[Mapping[str, int]] = {}


def set_entry(entries_by_key: dict[_K, dict[_V, _W]], key: _K, name: _V, entry: _W | None) -> None:
    """Set the key's entry of the name; None removes it."""
    if entry is None:
        discard_entry(entries_by_key, key, name)
    else:
        entries_by_key.setdefault(key, {})[name] = entry


def discard_entry(entries_by_key: dict[_K, dict[_V, _W]], key: _K, name: _V) -> None:
    """Remove the key's entry of the name, and the key if it has no entry then."""
    entries = entries_by_key[key]
    del entries[name]
    if not entries:
        del entries_by_key[key]


def add_count(counts: dict[_K, int], key: _K, delta: int) -> int:
    """Add `delta` to the key's count, and return the count; a count of 0 is left out."""
    count = counts.get(key, 0) + delta
    if count:
        counts[key] = count
    else:
        del counts[key]
    return count


def discard_member(sets: dict[_K, set[_V]], key: _K, member: _V) -> None:
    """Remove the member from the key's set, and the set if it is empty then."""
    members = sets[key]
    members.discard(member)
    if not members:
        del sets[key]


class Holders:
    """How often each holder holds a key. A single one is kept as text: 50,000 keys take 5 MiB instead of 15."""

    def __init__(self) -> None:
        self._by_key: PartitionedDict[str | dict[str, int]] = PartitionedDict()

    def add(self, key: str, holder: str) -> bool:
        """Count one more. Returns whether the holder did not hold the key before."""
        held = self._by_key.get(key)
        if held is None:
            self._by_key[key] = holder
            return True
        if isinstance(held, str):
            held = self._by_key[key] = {held: 1}
        return add_count(held, holder, 1) == 1

    def discard(self, key: str, holder: str) -> bool:
        """Count one less. Returns whether the holder does not hold the key any more."""
        held = self._by_key[key]
        if isinstance(held, str):
            del self._by_key[key]
            return True
        if add_count(held, holder, -1):
            return False
        if not held:
            del self._by_key[key]
        return True

    def of(self, key: str) -> Mapping[str, int]:
        """Return how often each holder holds the key."""
        held = self._by_key.get(key)
        if held is None:
            return _NO_HOLDERS
        return {held: 1} if isinstance(held, str) else held

    def holds(self, key: str, holder: str) -> bool:
        """Return whether the holder holds the key."""
        held = self._by_key.get(key)
        return held == holder if held is None or isinstance(held, str) else holder in held

    def keys(self) -> Iterator[str]:
        """Return every key that is held."""
        return iter(self._by_key)
