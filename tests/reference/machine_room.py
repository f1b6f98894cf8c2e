"""
The fewest domains that a group can use in a machine room, by trying every set of domains.

Members are alike, and a host takes as many of them as it has places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

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
    """Yield the hosts of each domain of a level."""
    for path in paths(hosts, n_levels):
        yield {name: host for name, host in hosts.items() if tuple(host[0][:n_levels]) == path}
