"""How often each holder holds each key; small where nearly every key has one holder, once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Final, TypeVar

from scheduler.state.partitioned_dict import PartitionedDict

_NO_HOLDERS: Final[Mapping[str, int]] = {}
_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Holders:
    """
    By key its holders, and how often each holds it.

    A single holder is kept as text: 50,000 keys take 5 MiB instead of 15.
    """

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
        held[holder] = held.get(holder, 0) + 1
        return held[holder] == 1

    def discard(self, key: str, holder: str) -> bool:
        """Count one less. Returns whether the holder does not hold the key any more."""
        held = self._by_key[key]
        if isinstance(held, str):
            del self._by_key[key]
            return True
        held[holder] -= 1
        if held[holder]:
            return False
        del held[holder]
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


def discard_entry(entries_by_key: dict[_K, dict[str, _V]], key: _K, name: str) -> None:
    """Remove the key's entry of the name, and the key if it has no entry then."""
    entries = entries_by_key[key]
    del entries[name]
    if not entries:
        del entries_by_key[key]
