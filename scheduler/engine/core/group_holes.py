"""
Finds running pods whose move to other nodes makes room for a group that has no places: each with its new place.

    group first    some pods leave, the group is placed, then each of these pods is
    moved first    the same pods take other places, then the group is placed; tried last

Sets of one and of two pods are tried, first in the domains with most room for the group, there the pods whose leaving
gives their node room for one more member; then, as long as more may move, one or two beside the set that lets most
members have places. So a set of at most two pods is found if there is one among few pods; among more, pairs are made of
the first `_MOST_PAIRED` alone, and `_MOST_DECISIONS` end the search. Everything is put back; until then nothing else
may read or change the state. A pod may move that has a controller, no volumes and no group, and no higher priority than
any member.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import Final

import numpy as np

from scheduler.engine.core.assumed_places import (
    AssumedPlaces,
    CycleBrokenError,
    OutOfDecisionsError,
    SplitMix64,
    detached_places,
)
from scheduler.engine.core.decide import DecisionScope, ScheduleResult, decide
from scheduler.engine.core.group_attempt import Attempt, Outcome, SearchRequest
from scheduler.engine.core.group_domains import domain_ids
from scheduler.engine.core.group_members import kinds_of
from scheduler.engine.core.group_requests import search_request
from scheduler.engine.core.group_search import search
from scheduler.engine.core.group_vacancy import Vacancy
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.disruption_budgets import guarding, refusing
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.requests import filter_request
from scheduler.engine.state.arrays import Mask
from scheduler.engine.state.batches import Pieces, batches
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView

#: Decisions for one group.
_MOST_DECISIONS: Final = 2_000
#: The most pods that are tried in pairs, and the most that are tried alone before.
_MOST_PAIRED: Final = 40
_MOST_ALONE: Final = 200


@dataclass(frozen=True, slots=True)
class PodMove:
    """A pod on its node, and the node to which it can go."""

    pod: Pod
    node_name: str

    @property
    def text(self) -> str:
        """Return the move as messages show it."""
        return f"move {self.pod.key} from {self.pod.node_name} to {self.node_name}"


_NO_MOVES: Final[tuple[PodMove, ...]] = ()


class HoleSearch:
    """Looks for moves of at most `n_most` pods for a group. `members`: pending, without gates, of one profile."""

    def __init__(
        self,
        state: ClusterState,
        profiles: Mapping[str, Profile],
        key: GroupKey,
        members: Sequence[Pod],
        n_most: int,
    ) -> None:
        self._state, self._view, self._key, self._members = state, ClusterView(state), key, members
        self._profiles, self._profile = profiles, profiles[members[0].scheduler_name]
        self._rng, self._n_most, self._n_left = SplitMix64(f"{key.text} moves"), n_most, _MOST_DECISIONS
        self._vacancy = Vacancy(state)
        self._priority = min(pod.priority for pod in members)
        self._request: SearchRequest
        #: The node of each member after the moves that were found, by UID.
        self.places: dict[str, str] = {}

    def moves(self, movable: Collection[str]) -> Pieces[tuple[PodMove, ...]]:
        """Return the moves, of pods with these UIDs alone; empty if none are found, or the group needs none."""
        placed = self._state.placed
        leaving = [each.pod for each in placed.values() if each.pod.terminating and not each.assumed]
        uids = {pod.uid for pod in self._members}
        with self._state.without_nominations(uids), self._without(leaving):
            groups, group = self._state.groups, self._state.groups.get(self._key)
            is_complete = groups.is_complete(self._members[0]) and not groups.disagreement(self._key)
            if group is None or not is_complete:
                return _NO_MOVES
            # No pod that may move is a member, so that it stays the same.
            self._request = search_request(self._state, self._key, group, self._members, self._profile)
            outcome, assumed = yield from self._search()
            yield from assumed.take_all_back()
            if outcome.is_placed:
                return _NO_MOVES
            pods = [placed[uid].pod for uid in movable if self.may_move(uid)]
            ordered = yield from self._in_order(pods, outcome)
            return (yield from self._moves(ordered))

    def may_move(self, uid: str) -> bool:
        """Return whether a running pod may move for the group, so far as its own fields say."""
        placed = self._state.placed.get(uid)
        if placed is None or placed.assumed or placed.pod.terminating:
            return False
        pod = placed.pod
        has_controller = pod.owner is not None and not pod.is_bound_to_node
        is_plain = pod.group is None and not pod.spec.claim_volumes and pod.scheduler_name in self._profiles
        is_on_node = self._state.node(pod.node_name) is not None
        return has_controller and is_plain and is_on_node and pod.priority <= self._priority

    def _moves(self, pods: Sequence[Pod]) -> Pieces[tuple[PodMove, ...]]:
        base: tuple[Pod, ...] = ()
        while len(base) < self._n_most:
            best, n_best = base, -1
            for more in _few(pods, base, self._n_most - len(base)):
                if self._n_left <= 0:
                    return _NO_MOVES
                moves, n_placed = yield from self._group_first((*base, *more))
                if moves:
                    return moves
                if n_placed > n_best:
                    best, n_best = (*base, *more), n_placed
            if not base and (moves := (yield from self._any_moved_first(pods))):
                return moves
            if best == base:
                break
            base = best
        return _NO_MOVES

    def _in_order(self, pods: Sequence[Pod], outcome: Outcome) -> Pieces[list[Pod]]:
        nodes = self._state.nodes
        ids = domain_ids(self._request.topology.required, nodes)
        numbers = ids.ids
        domains = {numbers.item(nodes.row_by_name[pod.node_name]) for pod in pods}
        room = {number: outcome.room.get(ids.value_of(number), 0) for number in domains}
        turns: dict[str, tuple[int, int, bool, int, str]] = {}
        for few in batches(pods):
            for pod in few:
                row, held = nodes.row_by_name[pod.node_name], filter_request(pod)
                number = numbers.item(row)
                size = sum(held.values())
                turns[pod.uid] = -room[number], number, self._lacks_room(row, held), size, pod.uid
            yield
        return sorted(pods, key=lambda pod: turns[pod.uid])

    def _lacks_room(self, row: int, held: Mapping[str, int]) -> bool:
        """Return whether the node has room for no more members without a pod that requests this much."""
        return any(
            self._state.nodes.left(name, row) % amount + held[name] < amount
            for name, amount in filter_request(self._members[0]).items()
            if amount and held.get(name, 0)
        )

    # One set of pods.

    def _without(self, pods: Iterable[Pod]) -> AbstractContextManager[None]:
        return self._vacancy.without([self._state.placed[pod.uid] for pod in pods])

    def _is_allowed(self, pods: Sequence[Pod]) -> bool:
        used = Counter[str]()
        for pod in pods:
            guards = guarding(pod, self._state.budgets.within(pod.namespace))
            if refusing(guards, used):
                return False
            used.update(budget.key for budget in guards)
        return True

    def _search(self) -> Pieces[tuple[Outcome, AssumedPlaces]]:
        """Return what the search for the group's places finds; the members are assumed there."""
        n_most = 2 * len(self._members) + min(self._profile.max_search_decisions, 100)
        assumed = detached_places(self._state, self._profile, self._key.text, n_most)
        outcome = Outcome(room=(yield from self._room()))
        if not outcome.room or max(outcome.room.values()) >= self._request.n_needed:
            outcome = yield from search(self._request, assumed)
        self._n_left -= 1 + assumed.n_decisions
        self.places = (
            {place.pod.uid: place.node_name for place in assumed.places} if outcome.is_placed else {}
        )
        return outcome, assumed

    def _room(self) -> Pieces[dict[str, int]]:
        """Return an upper bound of the members for which each required domain has room; empty if none is known."""
        request, required = self._request, self._request.topology.required
        kinds = yield from kinds_of(request.members, self._view)
        if len(kinds) != 1 or kinds[0].needs is not None or not required:
            return {}
        self._n_left -= 1
        assumed = detached_places(self._state, self._profile, self._key.text, _MOST_DECISIONS)
        attempt = Attempt(request, assumed, kinds)
        try:
            room = yield from attempt.room_of(kinds[0], request.rows)
        except (CycleBrokenError, OutOfDecisionsError):
            # The search meets the same error, and says so.
            return {}
        return {} if room is None else attempt.domains_of(required, room, request.rows).room_by_value()

    def _group_first(self, pods: Sequence[Pod]) -> Pieces[tuple[tuple[PodMove, ...], int]]:
        """Return the moves of all these pods if they make room, and how many members have places without the pods."""
        if not self._is_allowed(pods):
            return _NO_MOVES, -1
        with self._without(pods):
            outcome, assumed = yield from self._search()
            stuck = 0 if outcome.stuck is None else outcome.stuck.n_placed
            n_placed = max(stuck, max(outcome.room.values(), default=0))
            orders = list(permutations(pods)) if len(pods) == 2 else [tuple(pods)]
            moves = _NO_MOVES
            for order in orders if outcome.is_placed else ():
                with closing(self._placed_again(order, is_any=False)) as places:
                    moves = moves or next(places, _NO_MOVES)
                yield
            yield from assumed.take_all_back()
        return moves, n_placed

    def _any_moved_first(self, pods: Sequence[Pod]) -> Pieces[tuple[PodMove, ...]]:
        for few in _few(pods, (), min(2, self._n_most)):
            if not self._is_allowed(few):
                continue
            with self._without(few), closing(self._placed_again(few, is_any=True)) as places:
                for moves in places:
                    if self._n_left <= 0:
                        return _NO_MOVES
                    outcome, assumed = yield from self._search()
                    yield from assumed.take_all_back()
                    if outcome.is_placed:
                        return moves
        return _NO_MOVES

    def _placed_again(
        self, pods: Sequence[Pod], *, is_any: bool
    ) -> Generator[tuple[PodMove, ...], None, None]:
        """Yield places for the pods: the best, or with `is_any` all in turn. They are assumed until the next ones."""
        if not pods:
            yield ()
            return
        pod = pods[0].recreated()
        rows = self._view.alive.copy()
        rows[self._state.nodes.row_by_name[pods[0].node_name]] = False
        for node_name in self._nodes_for(pod, rows, is_any=is_any):
            self._state.assume(replace(pod, node_name=node_name), node_name)
            try:
                with closing(self._placed_again(pods[1:], is_any=is_any)) as others:
                    for more in others:
                        yield (PodMove(pods[0], node_name), *more)
            finally:
                self._state.forget(pod.uid)

    def _nodes_for(self, pod: Pod, rows: Mask, *, is_any: bool) -> Sequence[str]:
        self._n_left -= 1
        profile = self._profiles[pod.scheduler_name]
        decision = decide(pod, self._view, profile, self._rng, scope=DecisionScope(rows))
        if not isinstance(decision, ScheduleResult):
            return ()
        if not is_any:
            return (decision.node_name,)
        feasible = np.flatnonzero(decision.scores.feasible.mask & rows)
        return [self._state.nodes.name_of(row) for row in feasible.tolist()]


def _few(pods: Sequence[Pod], base: Sequence[Pod], n_most: int) -> Iterator[tuple[Pod, ...]]:
    taken = {pod.uid for pod in base}
    others = [pod for pod in pods if pod.uid not in taken]
    yield from ((pod,) for pod in others[:_MOST_ALONE])
    if n_most > 1:
        yield from combinations(others[:_MOST_PAIRED], 2)
    yield from ((pod,) for pod in others[_MOST_ALONE:])


def moves_text(moves: Sequence[PodMove]) -> str:
    """Return a sentence on the moves; empty without any."""
    return f"The group would fit after: {'; '.join(move.text for move in moves)}." if moves else ""
