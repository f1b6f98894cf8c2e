"""
Places a group of parts: each part as a whole or not at all, in a domain of its own level within the group's.

The largest parts come first, each in the tightest domain that holds it. Parts that are alike are placed if that is
possible at all; of unlike ones every node is tried, as for any group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from scheduler.engine.core.group_attempt import Attempt, PartRequest, PartRoom, largest_of
from scheduler.engine.core.group_domains import Domain, DomainIds, Domains, domain_ids
from scheduler.engine.core.group_greedy import GreedySearch
from scheduler.engine.core.group_layouts import layout_of
from scheduler.engine.core.group_members import Component, MemberKind
from scheduler.engine.state.arrays import Amounts, Mask
from scheduler.engine.state.batches import Pieces


class PartSearch(GreedySearch):
    """The greedy search for a group with parts."""

    def __init__(self, attempt: Attempt, components: Sequence[Component]) -> None:
        super().__init__(attempt, components)
        self._by_part: dict[str, list[MemberKind]] = {name: [] for name in self._request.parts}
        for kind in attempt.kinds:
            self._by_part[kind.part].append(kind)
        self._sizes = {name: sum(len(kind.pods) for kind in kinds) for name, kinds in self._by_part.items()}
        order = sorted(self._by_part, key=lambda name: (self._by_part[name][0].first.rank, name))
        self._order = sorted(order, key=lambda name: -self._sizes[name])

    # Scopes.

    def _room_of_all(self) -> Pieces[tuple[Amounts | None, int]]:
        """Return the room of rows, counted in whole parts if they are alike, and how much all members need of it."""
        if not self._attempt.has_parts_alike():
            return (yield from super()._room_of_all())
        first = self._order[0]
        part, n_members = self._request.parts[first], len(self._request.members)
        room = yield from self._attempt.room_of(self._by_part[first][0], self._request.rows, n_members)
        if room is None or not part.topology.required:
            return room, n_members
        ids = domain_ids(part.topology.required, self._attempt.view.nodes)
        whole = in_whole_parts(room, ids, part.n_needed, self._sizes[first])
        self._note_room(whole, part)
        return whole, n_members

    def _note_room(self, whole: Amounts, part: PartRequest) -> None:
        required, size = self._request.topology.required, part.n_needed
        n_needed = -(-self._request.n_needed // size)
        numbers = domain_ids(required, self._attempt.view.nodes)
        rooms = np.bincount(numbers.ids, weights=whole, minlength=2).astype(np.int64)
        n_domains = np.bincount(numbers.ids[whole > 0], minlength=len(rooms))
        outcome, key = self._attempt.outcome, part.topology.required[-1]
        outcome.part_room = []
        for number in (np.argsort(-rooms[1:], kind="stable")[:2] + 1).tolist():
            n_parts, domain = rooms.item(number) // size, numbers.value_of(number)
            outcome.part_room.append(PartRoom(domain, n_parts, n_domains.item(number), key, size, n_needed))

    def _note_placed(self, domain: str) -> None:
        """Note how many parts have places in the domain, if their members are unlike but not their sizes and levels."""
        super()._note_placed(domain)
        forms = {
            (self._sizes[name], part.n_needed, part.topology.required)
            for name, part in self._request.parts.items()
        }
        size, least, required = forms.pop()
        if forms or not required or self._attempt.has_parts_alike():
            return
        nodes, outcome = self._attempt.view.nodes, self._attempt.outcome
        ids = domain_ids(required, nodes).ids
        used = {ids.item(nodes.row_by_name[place.node_name]) for place in self._assumed.places}
        n_parts, n_needed = self._attempt.n_placed // size, -(-self._request.n_needed // least)
        rooms = [*outcome.part_room, PartRoom(domain, n_parts, len(used), required[-1], least, n_needed)]
        rooms.sort(key=lambda room: room.n_parts)
        best = {room.domain: room for room in rooms}
        outcome.part_room = sorted(best.values(), key=lambda room: -room.n_parts)[:2]

    # Greedy.

    def _place_all(self, scope: Domain) -> Pieces[bool]:
        """Place every member within the scope; if the group prefers levels, first in few of their domains."""
        self._attempt.domain = scope.value
        if self._levels:
            with self._assumed.sparing(self._n_spared):
                narrow = yield from self._narrowed(scope.rows)
                if narrow is not None and (yield from self._place_parts(scope.value, narrow)):
                    return True
            yield from self._attempt.take_back(0)
        return (yield from self._place_parts(scope.value, scope.rows))

    def _place_parts(self, scope: str, rows: Mask) -> Pieces[bool]:
        def place(name: str) -> Pieces[bool]:
            return self._place_part(name, rows, self._sizes[name])

        return (yield from self._place_in_turn(self._order, place, scope))

    def _narrowed(self, scope: Mask) -> Pieces[Mask | None]:
        """Return the rows of the scope in the domains of preferred levels that parts are to use; None without room."""
        room, n_wanted = yield from self._room_of_all()
        if room is None:
            return None
        layout = layout_of(np.flatnonzero(scope), room, self._levels, n_wanted, self._request.held)
        if layout is None:
            return None
        narrow = np.zeros_like(scope)
        ids = self._levels[-1]
        narrow[np.isin(ids, ids[np.concatenate(layout.domains)])] = True
        return narrow & scope

    def _place_part(self, name: str, scope: Mask, n_least: int) -> Pieces[bool]:
        """Place at least so many members of the part, or none."""
        attempt, part = self._attempt, self._request.parts[name]
        kinds, n_before = [kind for kind in self._by_part[name] if kind.left], attempt.n_placed
        rows = scope & part.rows
        with attempt.within(attempt.home_of(part)):
            room = (yield from self._room(kinds, rows)) if kinds else None
        if room is None:
            return False
        for domain in self._candidates(kinds, part, room, rows, n_least):
            yield from self._fill_part(kinds, domain, part)
            if attempt.n_placed - n_before >= n_least:
                return True
            yield from attempt.take_back(n_before)
        return False

    def _candidates(
        self, kinds: Sequence[MemberKind], part: PartRequest, room: Amounts, rows: Mask, n_least: int
    ) -> Iterator[Domain]:
        """Return the domains in which the part may be, the best one first."""
        domains = Domains(domain_ids(part.topology.required, self._attempt.view.nodes), room, rows)
        n_wanted = min(len(largest_of(kinds).left), n_least)
        return self._in_order(domains, room, n_wanted, self._levels_of(part.topology), part.held)

    def _fill_part(self, kinds: Sequence[MemberKind], domain: Domain, part: PartRequest) -> Pieces[None]:
        attempt, n_before = self._attempt, self._attempt.n_placed
        levels = self._levels_of(part.topology)
        with attempt.within(domain.value):
            is_filled = bool(levels) and (yield from self._fill_levels(kinds, levels, domain.rows, part.held))
            if not is_filled:
                yield from attempt.take_back(n_before)
                yield from attempt.fill(kinds, domain.rows, is_partial=True)

    # As many as fit.

    def _options(self, scope: Mask) -> list[Pieces[object]]:
        return [self._place_most(scope)]

    def _place_most(self, scope: Mask) -> Pieces[None]:
        """Place as many parts as fit, each with all members that fit beside it."""
        for name in self._order:
            if not (yield from self._place_part(name, scope, self._sizes[name])):
                yield from self._place_part(name, scope, self._request.parts[name].n_needed)


def in_whole_parts(room: Amounts, ids: DomainIds, n_needed: int, size: int) -> Amounts:
    """Return the room in whole parts of `size`, of which `n_needed` need places, on the first row of each domain."""
    rooms = ids.per_domain(room)
    rooms = np.minimum(rooms, rooms // n_needed * size)
    whole = np.zeros_like(room)
    firsts = np.full(len(rooms), -1)
    rows = np.flatnonzero(room)[::-1]
    firsts[ids.ids[rows]] = rows
    numbers = np.flatnonzero(rooms)
    whole[firsts[numbers]] = rooms[numbers]
    return whole
