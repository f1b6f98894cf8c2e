"""The machine room: the domains of its levels, which groups have members there, and the hole of a waiting group."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from scheduler.engine.core.group_domains import domain_ids
from scheduler.engine.core.group_members import waiting_members
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.terms import HOSTNAME_KEY
from scheduler.engine.state.arrays import Rows
from scheduler.engine.state.batches import Pieces, batches
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.columns import ABSENT
from scheduler.tools.explain.formats.explanation import Document, JsonStruct
from scheduler.tools.page.holes import Hole, HoleRows, hole_of

#: Domains of the lowest level in an answer, hosts in it, groups with a number of their own, and waiting groups.
MAX_DOMAINS: Final = 300
MAX_HOSTS: Final = 1_200
MAX_GROUPS: Final = 60
MAX_WAITING: Final = 20
#: Names of hierarchies that are no Topology: the configuration's levels and, without any hierarchy, a group's levels.
CONFIGURED: Final = "topologyLevels"
OF_GROUP: Final = "the group's levels"
#: The number of all groups without one of their own.
_OTHERS: Final = -1


class HostOrDomain(JsonStruct, frozen=True, kw_only=True):
    """
    A host or a domain. `members`: the number of a group, and how many of its members are there.

    `n_others`: members of groups without a number. `n_room`: for members of the asked group.
    """

    name: str
    members: tuple[tuple[int, int], ...]
    n_others: int
    n_room: int


class RoomDomain(HostOrDomain, frozen=True, kw_only=True):
    """A domain of the lowest level. `outer`: the domains around it. `hosts`: empty beyond `MAX_HOSTS` in the answer."""

    outer: tuple[str, ...]
    n_nodes: int
    is_hole: bool
    hosts: tuple[HostOrDomain, ...]


class PlacedGroup(JsonStruct, frozen=True, kw_only=True):
    """A group with members on nodes. Its place in the list is its number."""

    namespace: str
    name: str
    n_placed: int


class MachineRoom(Document, frozen=True, kw_only=True):
    """
    The domains by name, of all or `within` one of the `outermost`. `levels`: above hosts, from the outside in.

    `hierarchies`: by name, which can be asked for. `asked`: the index in `waiting` of the group whose room and hole are
    shown, -1 for none. `n_outside`: nodes that lack a level's label.
    """

    kind: str = "MachineRoom"
    hierarchies: tuple[str, ...]
    hierarchy: str
    levels: tuple[str, ...]
    outermost: tuple[str, ...]
    domains: tuple[RoomDomain, ...]
    n_more_domains: int
    n_outside: int
    groups: tuple[PlacedGroup, ...]
    waiting: tuple[Hole, ...]
    n_more_waiting: int
    asked: int


class RoomQuestion(NamedTuple):
    """What a viewer asks for: a hierarchy, a waiting group, an outermost domain; an empty text leaves the choice."""

    hierarchy: str = ""
    namespace: str = ""
    name: str = ""
    within: str = ""


@dataclass(frozen=True, slots=True)
class _Seats:
    """The groups with a number, and how many members each has by row."""

    groups: Sequence[PlacedGroup]
    by_row: Mapping[int, Counter[int]]

    def at(self, *rows: int) -> tuple[tuple[tuple[int, int], ...], int]:
        """Return how many members each numbered group has on these rows, and how many members other groups have."""
        counts: Counter[int] = Counter()
        for row in rows:
            counts.update(self.by_row.get(row, {}))
        n_others = counts.pop(_OTHERS, 0)
        return tuple(sorted(counts.items())), n_others


def machine_room_pieces(
    state: ClusterState, profiles: Mapping[str, Profile], question: RoomQuestion
) -> Pieces[MachineRoom]:
    """Return the room, in steps that yield. One decision per waiting group. Nothing else uses the `profiles`."""
    asking: list[tuple[bool, str, GroupKey]] = []
    for key in list(state.groups.keys()):
        if members := waiting_members(state, key):
            is_asked = (key.namespace, key.name) == (question.namespace, question.name)
            asking.append((not is_asked, min(pod.created for pod in members), key))
        yield
    asking.sort()
    holes = list[Hole]()
    for _, _, key in asking[1:MAX_WAITING]:
        if (hole := _hole(state, key, profiles)) is not None:
            holes.append(hole.hole)
        yield
    seats = yield from _seats(state)
    # Rows of nodes that come or go are other rows, so that the rest is one piece.
    asked = _hole(state, asking[0][2], profiles) if asking else None
    waiting = (*(() if asked is None else (asked.hole,)), *holes)
    by_name = _hierarchies(state, profiles, asked)
    hierarchy = _chosen(by_name, question.hierarchy, asked)
    levels = by_name.get(hierarchy, ())
    drawing = _Drawing(state, seats, asked)
    outermost, domains, n_domains, n_outside = drawing.domains(levels, question.within)
    return MachineRoom(
        hierarchies=tuple(by_name),
        hierarchy=hierarchy,
        levels=levels,
        outermost=outermost,
        domains=domains,
        n_more_domains=n_domains - len(domains),
        n_outside=n_outside,
        groups=tuple(seats.groups),
        waiting=waiting,
        n_more_waiting=max(0, len(asking) - MAX_WAITING),
        asked=0 if asked is not None else -1,
    )


def _hole(state: ClusterState, key: GroupKey, profiles: Mapping[str, Profile]) -> HoleRows | None:
    """Return the hole of the group; None if no member waits any more."""
    first = next(iter(state.groups.pending(key)), None)
    profile = None if first is None else profiles.get(first.scheduler_name)
    return None if profile is None else hole_of(state, key, profile)


def _seats(state: ClusterState) -> Pieces[_Seats]:
    """Yield after some members, and return where the groups have members; the largest groups have a number."""
    keys = [key for key in state.groups.listed() if state.groups.n_placed(key)]
    yield
    keys.sort(key=lambda key: (-state.groups.n_placed(key), key))
    groups: list[PlacedGroup] = []
    by_row: dict[int, Counter[int]] = {}
    for key in keys:
        number = _OTHERS
        if len(groups) < MAX_GROUPS:
            number, n_placed = len(groups), state.groups.n_placed(key)
            groups.append(PlacedGroup(namespace=key.namespace, name=key.name, n_placed=n_placed))
        for pods in batches(list(state.groups.placed(key))):
            for pod in pods:
                # A pod may have left its node by now.
                if (placed := state.placed.get(pod.uid)) is not None:
                    by_row.setdefault(placed.row, Counter())[number] += 1
            yield
    return _Seats(groups, by_row)


def _hierarchies(
    state: ClusterState, profiles: Mapping[str, Profile], asked: HoleRows | None
) -> dict[str, tuple[str, ...]]:
    """Return the levels above hosts by the hierarchy's name: the configuration's, Kueue's, or else of one group."""
    named = {
        CONFIGURED: next((each.topology_levels for each in profiles.values() if each.topology_levels), ())
    }
    named |= state.hierarchies.all_levels()
    if not any(named.values()):
        named = {OF_GROUP: _levels_of_group(state) if asked is None or not asked.levels else asked.levels}
    above = {name: tuple(key for key in keys if key != HOSTNAME_KEY) for name, keys in named.items()}
    return {name: keys for name, keys in above.items() if keys}


def _levels_of_group(state: ClusterState) -> tuple[str, ...]:
    """Return the levels that a group with members on nodes names, the first that names any. O(groups)."""
    for key in state.groups.listed():
        if state.groups.n_placed(key) and (group := state.groups.get(key)) is not None and group.topology:
            return tuple(dict.fromkeys((*group.topology.required, *group.topology.preferred)))
    return ()


def _chosen(by_name: Mapping[str, tuple[str, ...]], name: str, asked: HoleRows | None) -> str:
    """Return the named hierarchy; if there is none, one with the level of the asked group, or else the first."""
    level = "" if asked is None else asked.hole.level
    fitting = (each for each, levels in by_name.items() if level in levels)
    return name if name in by_name else next(fitting, next(iter(by_name), ""))


@dataclass(frozen=True, slots=True)
class _Drawing:
    """What is drawn into the domains: members of groups, and the room for the asked group."""

    state: ClusterState
    seats: _Seats
    asked: HoleRows | None

    def domains(
        self, levels: Sequence[str], within: str
    ) -> tuple[tuple[str, ...], tuple[RoomDomain, ...], int, int]:
        """Return the outermost domains' names, the lowest domains, their number, and the number of nodes outside."""
        nodes = self.state.nodes
        if not levels:
            return (), (), 0, 0
        columns = [nodes.column(key) for key in levels]
        ids, alive = domain_ids(levels, nodes).ids, np.flatnonzero(nodes.alive)
        rows = alive[ids[alive] != ABSENT]
        n_outside = len(alive) - len(rows)
        outer = columns[0].ids
        names = {number: columns[0].value_of(number) for number in np.unique(outer[rows]).tolist()}
        chosen = [number for number, name in names.items() if name == within]
        rows = rows[np.isin(outer[rows], chosen)] if chosen else rows
        rows = rows[np.argsort(ids[rows], kind="stable")]
        domains: list[tuple[tuple[str, ...], Rows]] = []
        for part in np.split(rows, np.flatnonzero(np.diff(ids[rows])) + 1) if len(rows) else []:
            values = (column.value_of(column.ids.item(part.item(0))) for column in columns)
            domains.append((tuple(values), part))
        domains.sort(key=lambda each: tuple(map(_natural, each[0])))
        if len(domains) > MAX_DOMAINS and self.asked is not None:
            mask = self.asked.mask
            domains.sort(key=lambda each: not mask[each[1]].any())
        shown = domains[:MAX_DOMAINS]
        has_hosts = sum(len(part) for _, part in shown) <= MAX_HOSTS
        drawn = tuple(self._domain(path, part, has_hosts=has_hosts) for path, part in shown)
        return tuple(sorted(names.values(), key=_natural)[:MAX_DOMAINS]), drawn, len(domains), n_outside

    def _domain(self, path: tuple[str, ...], rows: Rows, *, has_hosts: bool) -> RoomDomain:
        listed, asked = rows.tolist(), self.asked
        hosts = [self._host(row) for row in listed] if has_hosts else []
        members, n_others = self.seats.at(*listed)
        return RoomDomain(
            name=path[-1],
            outer=path[:-1],
            n_nodes=len(listed),
            members=members,
            n_others=n_others,
            n_room=0 if asked is None else int(asked.whole[rows].sum()),
            is_hole=asked is not None and bool(asked.mask[rows].any()),
            hosts=tuple(sorted(hosts, key=lambda host: _natural(host.name))),
        )

    def _host(self, row: int) -> HostOrDomain:
        members, n_others = self.seats.at(row)
        n_room = 0 if self.asked is None else self.asked.room.item(row)
        return HostOrDomain(
            name=self.state.nodes.name_of(row), members=members, n_others=n_others, n_room=n_room
        )


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key by which rack-10 follows rack-9."""
    texts = re.split(r"([0-9]{1,18})", name)
    return tuple((int(text) if index % 2 else -1, text) for index, text in enumerate(texts))
