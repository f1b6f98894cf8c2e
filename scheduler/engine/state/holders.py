"""How often each holder holds each key; small where nearly every key has one holder, once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from scheduler.engine.state.partitioned_dict import PartitionedDict
from scheduler.engine.state.sparse_dicts import add_count

_NO_HOLDERS: Final[Mapping[str, int]] = {}


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
