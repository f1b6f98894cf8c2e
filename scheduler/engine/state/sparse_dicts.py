"""Changes of dicts in which a key has no entry once its count is 0, or its dict or set is empty."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V", bound=Hashable)
_W = TypeVar("_W")


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
