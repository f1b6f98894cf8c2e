"""
The greedy search for the places of a group, and what follows where it finds none.

Each component goes into one domain, the tightest first; members by kind, kinds that wait for others last. Where levels
are preferred, the fewest of their domains that counts allow are tried first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import numpy as np

from scheduler.engine.core.group_attempt import Attempt, largest_of
from scheduler.engine.core.group_domains import Domain, Domains, domain_ids
from scheduler.engine.core.group_exhaustive import exhaust, is_proven
from scheduler.engine.core.group_layouts import layout_of
from scheduler.engine.core.group_members import Component, MemberKind
from scheduler.engine.model.group_topology import Topology
from scheduler.engine.state.arrays import Amounts, Mask, Rows
from scheduler.engine.state.batches import Pieces

#: Domains in which as many members as fit are placed at first, if no domain has room for all.
_MOST_PARTIAL: Final = 8

#: Members that are placed together: a component, or a part.
_Subgroup = TypeVar("_Subgroup")


class GreedySearch:
    """The ways to search, one after the other."""

    def __init__(self, attempt: Attempt, components: Sequence[Component]) -> None:
        self._attempt, self._assumed, self._request = attempt, attempt.assumed, attempt.request
        self._kinds, self._components = attempt.kinds, components
        self._levels = self._levels_of(attempt.request.topology)
        # Preferred levels may take half of the decisions beyond one per member; whole domains take the other half.
        n_more = max(0, self._assumed.n_left - self._request.max_decisions(0))
        self._n_spared = self._request.n_without_levels() + n_more - n_more // 2

    def _levels_of(self, topology: Topology) -> list[Rows]:
        return [domain_ids((key,), self._attempt.view.nodes).ids for key in topology.preferred]

    def run(self) -> Pieces[bool]:
        """Return whether enough members have places."""
        attempt, n_needed = self._attempt, self._request.n_needed
        room, n_wanted = yield from self._room_of_all()
        scopes = self._scopes(room)
        for scope in self._in_order(scopes, room, n_wanted, self._levels, self._request.held):
            if (yield from self._place_all(scope)):
                return True
        if n_needed < len(self._request.members):
            best = scopes.roomiest(_MOST_PARTIAL, n_needed)
            yield from self._place_best([option for scope in best for option in self._options(scope.rows)])
            is_enough = attempt.n_placed >= n_needed and attempt.has_whole_parts()
            if is_enough and (yield from self._assumed.is_settled()):
                return True
            yield from attempt.take_back(0)
        if (yield from is_proven(attempt)):
            return False
        for scope in self._lifted(scopes, room).with_room(1):
            if (yield from exhaust(attempt, scope.rows)):
                return True
        return False

    # Domains.

    def _room_of_all(self) -> Pieces[tuple[Amounts | None, int]]:
        """Return the room that scopes are chosen by, None if there is one scope, and how much of it members need."""
        n_largest = max(len(kind.pods) for kind in self._kinds)
        if not self._request.topology.required:
            return None, n_largest
        if self._request.n_needed == len(self._request.members):
            return (yield from self._room(self._kinds, self._request.rows)), n_largest
        # Where the largest kind has no room, others may have enough.
        of_all: Amounts | None = None
        for kind in {kind.first.spec: kind for kind in reversed(self._kinds)}.values():
            room = yield from self._room([kind], self._request.rows)
            if room is not None:
                of_all = room if of_all is None else np.maximum(of_all, room)
        return of_all, n_largest

    def _room(self, kinds: Sequence[MemberKind], scope: Mask) -> Pieces[Amounts | None]:
        """Return the room for the largest of the kinds; None if there is none."""
        kind = largest_of(kinds)
        return (yield from self._attempt.room_of(kind, scope)) if kind.left else None

    def _scopes(self, room: Amounts | None) -> Domains:
        """Return the domains of the required level: all members share one of them. Without such a level, all rows."""
        request = self._request
        if not request.topology.required:
            return Domains(domain_ids((), self._attempt.view.nodes), np.ones_like(request.held), request.rows)
        if room is None:
            return Domains.none()
        return self._attempt.domains_of(request.topology.required, room, request.rows)

    def _lifted(self, scopes: Domains, room: Amounts | None) -> Domains:
        """Return also domains with room only once siblings of another kind, which a member's rules count, are there."""
        attempt, request = self._attempt, self._request
        if len(self._kinds) == 1 or not request.topology.required or not attempt.liftable_rows.any():
            return scopes
        possible = attempt.liftable_rows if room is None else attempt.liftable_rows | (room > 0)
        ids = domain_ids(request.topology.required, attempt.view.nodes)
        return Domains(ids, (possible & request.rows).astype(np.int64), request.rows)

    def _in_order(
        self, domains: Domains, room: Amounts | None, n_wanted: int, levels: Sequence[Rows], held: Amounts
    ) -> Iterator[Domain]:
        """Yield domains with room, by how many preferred domains they need; else the roomiest, for the message."""
        with_room = domains.with_room(n_wanted)
        ranked: list[tuple[tuple[float, ...], int, Domain]] = []
        if levels and room is not None:
            for index, domain in enumerate(with_room):
                layout = layout_of(np.flatnonzero(domain.rows), room, levels, n_wanted, held)
                n_domains = (math.inf,) if layout is None else layout.n_domains
                ranked.append((n_domains, index, domain))
                if sum(n_domains) == len(n_domains):
                    # No other domain needs fewer.
                    break
        yield from (domain for _, _, domain in sorted(ranked))
        yield from with_room

    # Greedy.

    def _place_all(self, scope: Domain) -> Pieces[bool]:
        """Place every member within the scope; if the group prefers levels, first in few of their domains."""
        self._attempt.domain = scope.value
        if self._levels:
            held = self._request.held
            is_filled = yield from self._fill_levels(self._kinds, self._levels, scope.rows, held)
            if is_filled and (yield from self._assumed.is_settled()):
                return True
            yield from self._attempt.take_back(0)

        def place(component: Component) -> Pieces[bool]:
            return self._place_component(component, scope.rows)

        return (yield from self._place_in_turn(self._components, place, scope.value))

    def _place_in_turn(
        self, subgroups: Sequence[_Subgroup], place: Callable[[_Subgroup], Pieces[bool]], scope: str
    ) -> Pieces[bool]:
        """Place every subgroup of members; one that fails after others is tried first once more."""
        attempt = self._attempt
        for _ in range(2):
            failed: _Subgroup | None = None
            for subgroup in subgroups:
                if not (yield from place(subgroup)):
                    failed = subgroup
                    break
            if failed is None and (yield from self._assumed.is_settled()):
                return True
            self._note_placed(scope)
            yield from attempt.take_back(0)
            if failed is None or failed is subgroups[0]:
                return False
            subgroups = [failed, *(subgroup for subgroup in subgroups if subgroup is not failed)]
        return False

    def _note_placed(self, domain: str) -> None:
        if domain:
            self._attempt.outcome.room[domain] = self._attempt.n_placed

    def _place_component(self, component: Component, scope: Mask) -> Pieces[bool]:
        attempt = self._attempt
        n_before, outer = attempt.n_placed, attempt.domain
        domains = yield from self._domains(component, scope)
        for domain in domains.with_room(max(len(kind.pods) for kind in component.kinds)):
            with attempt.within(outer or domain.value):
                is_filled = yield from attempt.fill(component.kinds, domain.rows)
            if is_filled:
                return True
            if not outer:
                attempt.outcome.room[domain.value] = attempt.n_placed - n_before
            yield from attempt.take_back(n_before)
        # It has no key, or running pods may meet its affinity in several domains.
        return (not component.key or bool(domains)) and (yield from attempt.fill(component.kinds, scope))

    def _domains(self, component: Component, scope: Mask) -> Pieces[Domains]:
        """Return the domains with room for the component's largest kind; none if it has no key."""
        room = (yield from self._room(component.kinds, scope)) if component.key else None
        return Domains.none() if room is None else self._attempt.domains_of((component.key,), room, scope)

    # Preferred levels.

    def _fill_levels(
        self,
        kinds: Sequence[MemberKind],
        levels: Sequence[Rows],
        scope: Mask,
        held: Amounts,
        *,
        is_partial: bool = False,
    ) -> Pieces[bool]:
        """
        Place the members in the fewest domains of the preferred levels, one after the other; return whether all are.

        `is_partial`: place as many as fit. A domain without a place is not the outcome's reason: another may have one.
        """
        attempt, stuck = self._attempt, self._attempt.outcome.stuck
        rows, held = scope.copy(), held.copy()
        with self._assumed.sparing(self._n_spared):
            while waiting := [kind for kind in kinds if kind.left]:
                room = yield from self._room(waiting, rows)
                n_wanted = len(largest_of(waiting).left)
                if room is not None and is_partial:
                    n_wanted = min(n_wanted, int(room.sum()))
                if room is None:
                    break
                layout = layout_of(np.flatnonzero(rows), room, levels, n_wanted, held)
                if layout is None:
                    break
                for domain in layout.domains:
                    n_before, within = attempt.n_placed, np.zeros_like(rows)
                    within[domain] = True
                    yield from self._fill_domain(waiting, within, int(room[domain].sum()))
                    rows[domain] = False
                    held[domain] = np.maximum(held[domain], attempt.n_placed > n_before)
        attempt.outcome.stuck = stuck
        return not waiting

    def _fill_domain(self, kinds: Sequence[MemberKind], rows: Mask, n_most: int) -> Pieces[None]:
        """Place as many members as fit. `n_most`: an upper bound if there is a single kind."""
        if len(kinds) > 1 or kinds[0].needs is not None:
            yield from self._attempt.fill(kinds, rows, is_partial=True)
            return
        for _ in range(min(n_most, len(kinds[0].left))):
            if (yield from self._attempt.try_next(kinds[0], rows)) is not None:
                return

    # As many as fit.

    def _options(self, scope: Mask) -> list[Pieces[object]]:
        """Return the ways to place as many members as fit, the preferred one first."""
        if not self._levels:
            return [self._place_most(scope)]
        kinds, levels, held = self._kinds, self._levels, self._request.held
        by_levels = self._fill_levels(kinds, levels, scope, held, is_partial=True)
        return [by_levels, self._place_most(scope)]

    def _place_most(self, scope: Mask) -> Pieces[None]:
        """Place as many members as the first domain that is best for its component takes."""
        for component in self._components:
            domains = yield from self._domains(component, scope)
            roomiest = domains.roomiest(_MOST_PARTIAL, self._request.n_needed)
            options = [domain.rows for domain in roomiest] or [scope]
            yield from self._place_best(
                [self._attempt.fill(component.kinds, rows, is_partial=True) for rows in options]
            )
            if domains and self._attempt.n_placed < self._request.n_needed:
                # Running pods may meet its affinity in several domains.
                yield from self._attempt.fill(component.kinds, scope, is_partial=True)

    def _place_best(self, options: Sequence[Pieces[object]]) -> Pieces[None]:
        """Place the members by the option that places the most; by the first of several."""
        attempt = self._attempt
        n_before = attempt.n_placed
        best: list[tuple[MemberKind, str, bool]] = []
        for option in options:
            yield from option
            places = self._assumed.places[n_before:]
            if len(places) > len(best):
                best = [(attempt.kind_of[place.pod.uid], place.node_name, place.is_owed) for place in places]
            yield from attempt.take_back(n_before)
        for kind, node_name, is_owed in best:
            only = np.zeros_like(self._request.rows)
            only[attempt.view.nodes.row_by_name[node_name]] = True
            yield from attempt.try_next(kind, only, attempt.siblings(kind) if is_owed else ())
