"""One attempt to place a group: its members by kind, the steps of every way to search, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from scheduler.engine.core.assumed_places import AssumedPlace, AssumedPlaces
from scheduler.engine.core.decide import CycleError, ScheduleResult
from scheduler.engine.core.group_domains import Domains, domain_ids
from scheduler.engine.core.group_members import MemberKind, is_selected
from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.framework.interface import NodeFilter
from scheduler.engine.model.group_topology import Topology
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.arrays import Amounts, Mask
from scheduler.engine.state.batches import Pieces

#: More copies of a pod than any node takes.
_MANY: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class PartRequest:
    """A part of a group: `n_needed` of its pending members need places, or none. For the rest see `SearchRequest`."""

    n_needed: int
    topology: Topology
    rows: Mask
    held: Amounts


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """
    A search for nodes for a group's members.

    `members`: pending pods of one profile; `n_needed` of them, at least one, need places. `rows`: the only nodes that
    may be chosen. `held`: by row, 2 if a running member there is next in rank to one of `members`, 1 if only other
    members run there, else 0. `parts`: by name, if the group has any.
    """

    members: Sequence[Pod]
    n_needed: int
    topology: Topology
    rows: Mask
    held: Amounts
    parts: Mapping[str, PartRequest] = field(default_factory=dict)

    def max_decisions(self, n_more: int) -> int:
        """Return the most decisions of the search: for members, parts, preferred levels; `n_more` in whole domains."""
        prefers = self.topology.preferred or any(part.topology.preferred for part in self.parts.values())
        # Room is computed before members are placed: for all members with preferred levels, and for each part.
        n_for_levels = 1 + len(self.members) if prefers else 0
        return self.n_without_levels() + n_for_levels + n_more

    def n_without_levels(self) -> int:
        """Return how many decisions members and parts take without preferred levels."""
        return len(self.members) + 2 * len(self.parts)


class Stuck(NamedTuple):
    """The most members that an attempt placed, in which domain, and why `rows` refused the next one."""

    places: tuple[AssumedPlace, ...]
    domain: str
    rows: Mask
    pod: Pod
    error: FitError

    @property
    def n_placed(self) -> int:
        """The number of members that had places."""
        return len(self.places)


class PartRoom(NamedTuple):
    """
    How many parts of `size` members a domain of the group has room for; its name is empty if it is everywhere.

    `n_domains`: the domains of `key` within it that have room for a part. Both numbers are upper bounds.
    """

    domain: str
    n_parts: int
    n_domains: int
    key: str
    size: int
    n_needed: int


@dataclass(slots=True)
class Outcome:
    """
    What became of the group.

    Attributes:
        is_placed: whether enough members have places; these are assumed.
        error: the error that ended the search.
        stuck: where the search came furthest.
        key: the topology key whose domains had too little room; empty if none had to be shared.
        room: how many members the domains have room for, by the key's value.
        rejecting: the plugins that refused a member, by its UID.
        is_cut_short: whether the search ran out of decisions.
        part_room: for how many parts the domains have room, if the parts have to be in one domain each.
    """

    is_placed: bool = False
    error: CycleError | None = None
    stuck: Stuck | None = None
    key: str = ""
    room: dict[str, int] = field(default_factory=dict)
    rejecting: dict[str, frozenset[str]] = field(default_factory=dict)
    is_cut_short: bool = False
    n_decisions: int = 0
    part_room: list[PartRoom] = field(default_factory=list)

    @property
    def lacks_domain(self) -> bool:
        """Return whether no node is in a domain that the members may take, so that no plugin was asked of any."""
        return self.stuck is not None and not self.stuck.rows.any()


class Attempt:
    """
    The members and their assumed places; steps yield after each decision and after each place that they take back.

    `domain`: the one that is tried, for the message. `liftable`: the plugins whose refusal a sibling may lift.
    `liftable_rows`: the rows without room that may get some once siblings are placed.
    """

    def __init__(self, request: SearchRequest, assumed: AssumedPlaces, kinds: Sequence[MemberKind]) -> None:
        self.request, self.assumed, self.view, self.kinds = request, assumed, assumed.view, kinds
        self.outcome = Outcome(key=request.topology.required[-1] if request.topology.required else "")
        self.kind_of = {pod.uid: kind for kind in kinds for pod in kind.pods}
        self.liftable = {plugin.name for plugin in assumed.profile.filters if plugin.lifted_by_siblings}
        self.domain = ""
        self.liftable_rows: Mask = np.zeros_like(request.rows)
        #: The domains of `outcome.key`, and the plugins that refused a node in other domains.
        self._shared = Domains.none()
        self._refusing: set[str] = set()
        #: The plugins that say how many members a row takes.
        self._bounding: set[str] = set()

    def end(self) -> Pieces[None]:
        """Complete the outcome of a group without places."""
        yield from self.take_back(0)
        room = self._shared.room_by_value()
        n_wanted = min(self.request.n_needed, max(len(kind.pods) for kind in self.kinds))
        if any(0 < n < n_wanted for n in room.values()):
            # Domains without room for all were not tried, and none of their nodes refused a member.
            self._refusing |= self._bounding
        self.outcome.room = room | self.outcome.room
        if not self.outcome.room and (home := self.home_of(self.request)):
            self.outcome.room[home] = 0
        for uid in self.kind_of:
            self.outcome.rejecting[uid] = self.outcome.rejecting.get(uid, frozenset()) | self._refusing

    @property
    def n_placed(self) -> int:
        """Return how many members have places."""
        return len(self.assumed.places)

    # Places.

    def take_back(self, n_kept: int) -> Pieces[None]:
        """Take back the last places."""
        while self.n_placed > n_kept:
            self.kind_of[self.assumed.take_back().uid].n_placed -= 1
            yield

    def place(self, kind: MemberKind, result: ScheduleResult, *, is_owed: bool) -> None:
        """Place the next member of the kind."""
        self.assumed.place(kind.left[0], result, is_owed=is_owed)
        kind.n_placed += 1

    def try_next(self, kind: MemberKind, rows: Mask, siblings: Sequence[Pod] = ()) -> Pieces[FitError | None]:
        """Place the next member of the kind on one of the rows; return why it has no place."""
        decision = yield from self.assumed.deciding(kind.left[0], rows, siblings)
        if isinstance(decision, ScheduleResult):
            self.place(kind, decision, is_owed=bool(siblings))
            yield
            return None
        self.note(kind, decision, rows)
        yield
        return decision

    def note(self, kind: MemberKind, error: FitError, rows: Mask) -> None:
        """Note why the next member of the kind is refused on these rows."""
        outcome = self.outcome
        for member in kind.left:
            outcome.rejecting[member.uid] = outcome.rejecting.get(member.uid, frozenset()) | error.rejecting
        if outcome.stuck is None or self.n_placed > outcome.stuck.n_placed:
            outcome.stuck = Stuck(tuple(self.assumed.places), self.domain, rows, kind.left[0], error)

    def siblings(self, kind: MemberKind) -> list[Pod]:
        """Return the members that the affinity of the kind's next member may wait for: they are placed after it."""
        others = (other.left[1:2] if other is kind else other.left[:1] for other in self.kinds)
        return [pod for left in others for pod in left if is_selected(kind.needs, pod, self.view)]

    def home_of(self, request: SearchRequest | PartRequest) -> str:
        """Return the required domain in which members run, so that the others have to; empty if there is none."""
        rows = np.flatnonzero((request.held > 0) & request.rows)
        if not len(rows):
            return ""
        ids = domain_ids(request.topology.required, self.view.nodes)
        return ids.value_of(ids.ids.item(rows[0]))

    @contextmanager
    def within(self, domain: str) -> Iterator[None]:
        """Let messages name this domain within the block, if it has a name."""
        outer, self.domain = self.domain, domain or self.domain
        try:
            yield
        finally:
            self.domain = outer

    # Parts.

    def n_placed_of(self, part: str) -> int:
        """Return how many members of the part have places."""
        return sum(kind.n_placed for kind in self.kinds if kind.part == part)

    def has_whole_parts(self) -> bool:
        """Return whether every part has as many places as it needs, or none."""
        needed = {name: part.n_needed for name, part in self.request.parts.items()}
        return all(self.n_placed_of(name) == 0 or self.n_placed_of(name) >= n for name, n in needed.items())

    def has_parts_alike(self) -> bool:
        """Return whether the parts are of one kind each, of equal spec, size and levels, and none of them runs."""
        parts = self.request.parts
        if len(self.kinds) != len(parts) or self.request.held.any():
            return False
        forms = {
            (kind.first.spec, len(kind.pods), parts[kind.part].n_needed, parts[kind.part].topology)
            for kind in self.kinds
        }
        return len(forms) == 1

    def rows_of(self, kind: MemberKind) -> Mask | None:
        """Return the rows that are left for the kind's part by its members with places; None for all."""
        part = self.request.parts.get(kind.part)
        if part is None:
            return None
        ids = domain_ids(part.topology.required, self.view.nodes).ids
        for place in self.assumed.places:
            if self.kind_of[place.pod.uid].part == kind.part:
                here: Mask = ids == ids.item(self.view.nodes.row_by_name[place.node_name])
                return part.rows & here
        return part.rows

    # Several members.

    def fill(self, kinds: Sequence[MemberKind], rows: Mask, *, is_partial: bool = False) -> Pieces[bool]:
        """
        Place the members of the kinds; a kind that others may help waits for them. Return whether all have places.

        `is_partial`: go on without a kind that has none.
        """
        waiting = [kind for kind in kinds if kind.left]
        while waiting:
            n_before = self.n_placed
            for kind in list(waiting):
                refusal = None
                while kind.left and refusal is None:
                    refusal = yield from self.try_next(kind, rows)
                if refusal is not None and not refusal.rejecting.isdisjoint(self.liftable):
                    continue
                if refusal is not None and not is_partial:
                    return False
                waiting.remove(kind)
            is_stuck = waiting and self.n_placed == n_before
            if is_stuck and not (yield from self._defer(waiting, rows)):
                return False
        return True

    def _defer(self, waiting: Sequence[MemberKind], rows: Mask) -> Pieces[bool]:
        """Place one member whose affinity waits for a sibling; return whether there is one."""
        for kind in waiting:
            siblings = self.siblings(kind)
            if siblings and (yield from self.try_next(kind, rows, siblings)) is None:
                return True
        return False

    # Room.

    def room_of(self, kind: MemberKind, scope: Mask, n_most: int = 0) -> Pieces[Amounts | None]:
        """
        Return an upper bound, by resources, of the members of the kind that each row takes; None if none takes any.

        `n_most`: counting stops there; by default at the number of the kind's members without places.
        """
        decision = yield from self.assumed.deciding(kind.left[0], scope, is_scored=False)
        if isinstance(decision, FitError) and (siblings := self.siblings(kind)):
            decision = yield from self.assumed.deciding(kind.left[0], scope, siblings, is_scored=False)
        if isinstance(decision, FitError):
            self.note(kind, decision, scope)
            if not decision.rejecting.isdisjoint(self.liftable):
                self.liftable_rows |= scope
            yield
            return None
        filtered, feasible = decision.scores.filtered, decision.scores.feasible.mask
        copies = np.clip(most_copies(filtered.filters, self.view.n_rows), 1, n_most or len(kind.left))
        self._refusing |= {refusal.plugin for refusal in filtered.refusals}
        self._bounding |= {name for name, each in filtered.filters if each.copies is not None}
        for refusal in filtered.refusals:
            if refusal.plugin in self.liftable:
                self.liftable_rows |= refusal.rows & scope
        yield
        return np.where(feasible, copies, 0)

    def domains_of(self, keys: Sequence[str], room: Amounts, scope: Mask) -> Domains:
        """Return the domains by these keys, the outermost first. `room`: as of `room_of`."""
        ids = domain_ids(keys, self.view.nodes)
        domains = Domains(ids, room, scope)
        required = self.request.topology.required
        if not required or tuple(keys) == required:
            self.outcome.key, self._shared = ids.name, domains
        return domains


def most_copies(filters: Iterable[tuple[str, NodeFilter]], n_rows: int) -> Amounts:
    """Return the most copies of the pod that each row takes, as far as filters know."""
    most: Amounts = np.full(n_rows, _MANY, dtype=np.int64)
    for _, node_filter in filters:
        if node_filter.copies is not None:
            np.minimum(most, node_filter.copies(), out=most)
    return most


def largest_of(kinds: Sequence[MemberKind]) -> MemberKind:
    """Return the kind with the most members without a place."""
    return max(kinds, key=lambda kind: len(kind.left))
