"""
The fewest domains that a group can use in a machine room, and which parts of it fit, by trying everything.

A host has so many free places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

#: By host the names of its domains, from the outside in, and its free places.
Hosts = Mapping[str, tuple[Sequence[str], int]]


def paths(hosts: Hosts, n_levels: int) -> dict[tuple[str, ...], int]:
    """Return the free places of the domains of a level, by their path from the outside in."""
    places: dict[tuple[str, ...], int] = {}
    for domains, n_free in hosts.values():
        path = tuple(domains[:n_levels])
        places[path] = places.get(path, 0) + n_free
    return places


def fewest(hosts: Hosts, n_levels: int, n_members: int) -> int | None:
    """Return the fewest domains of a level that have places for all members; None if all together have too few."""
    places = list(paths(hosts, n_levels).values())
    for n_domains in range(1, len(places) + 1):
        if any(sum(some) >= n_members for some in combinations(places, n_domains)):
            return n_domains
    return None


def within_one(hosts: Hosts, n_levels: int) -> Iterator[Hosts]:
    for path in paths(hosts, n_levels):
        yield {name: host for name, host in hosts.items() if tuple(host[0][:n_levels]) == path}


class Part(NamedTuple):
    """A part of a group: its members, the fewest that are placed if any is, and the places that each takes."""

    n_members: int
    n_needed: int
    size: int


def most_in_parts(hosts: Hosts, parts: Sequence[Part], n_levels: int) -> int:
    """Return the most members that have places, each part in one domain of a level."""
    free = {name: n_free for name, (_, n_free) in hosts.items()}
    racks = [list(rack) for rack in within_one(hosts, n_levels)]
    return _most(free, racks, parts)


def _most(free: dict[str, int], racks: list[list[str]], parts: Sequence[Part]) -> int:
    if not parts:
        return 0
    part, others = parts[0], parts[1:]
    best = _most(free, racks, others)
    for rack in racks:
        for n_members in range(part.n_needed, part.n_members + 1):
            for left in _after(free, rack, n_members, part.size):
                best = max(best, n_members + _most(left, racks, others))
    return best


def _after(free: dict[str, int], rack: list[str], n_members: int, size: int) -> Iterator[dict[str, int]]:
    """Yield what is free after so many members of a size are placed in the rack, for every way to do so."""
    if not n_members:
        yield free
    elif rack:
        for n_here in range(min(n_members, free[rack[0]] // size) + 1):
            yield from _after(
                {**free, rack[0]: free[rack[0]] - n_here * size}, rack[1:], n_members - n_here, size
            )
