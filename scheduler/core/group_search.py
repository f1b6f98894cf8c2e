"""
Searches a place for every member of a group, on a trial state.

    greedy      each component in one domain after the other, tightest first; members by kind, kinds that wait for
                others last
    as many     if the group needs fewer than it has: as many as fit, where most do
    exhaustive  every order of kinds and every node, depth first, no assignment twice; skipped where greedy is a proof

A placement is valid if there is an order in which every member passes every filter; required affinity may also be met
by a member that comes later. The exhaustive search finds one if there is one, unless it runs out of decisions, which
the message then says. The same state and the same members give the same places.

The search comes in pieces: it yields after each decision and after each place that it takes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.decide import CycleError, ScheduleResult
from scheduler.core.group_domains import Domain, Domains
from scheduler.core.group_members import (
    Component,
    Kind,
    components_of,
    has_closed_form,
    is_selected,
    kinds_of,
)
from scheduler.core.group_trial import CycleBrokenError, GroupTrial, OutOfDecisionsError, Place
from scheduler.framework.diagnosis import FitError
from scheduler.framework.pod_groups import most_copies
from scheduler.model.pods import Pod
from scheduler.state.arrays import Mask
from scheduler.state.batches import Pieces

_NO_DOMAINS: Final = Domains(None, np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.bool_))
#: Domains in which as many members as fit are placed on trial, if no domain has room for all.
_PARTIAL_DOMAINS: Final = 8


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """
    A group that needs places.

    `members`: pending pods of one profile, of which `n_needed`, at least one, need places. `topology_key`: a node label
    of which all members share the value; empty for none. `rows`: the only nodes that may be chosen.
    """

    members: Sequence[Pod]
    n_needed: int
    topology_key: str
    rows: Mask


class Stuck(NamedTuple):
    """
    The most members that one attempt placed, in which domain, and why the next member was refused.

    `rows`: the nodes that it was asked for, bool array of shape (n_rows,).
    """

    places: tuple[Place, ...]
    domain: str
    rows: Mask
    pod: Pod
    error: FitError

    @property
    def n_placed(self) -> int:
        """Return the number of members that had places."""
        return len(self.places)


@dataclass(slots=True)
class Outcome:
    """
    What became of the group.

    Attributes:
        is_placed: whether enough members have places, which are in the trial.
        error: the error that ended the search.
        stuck: where the search came furthest.
        key: the topology key whose domains had too little room; empty if none had to be shared.
        room: how many members the domains have room for, by the key's value.
        rejecting: the plugins that refused a member, by its UID.
        is_cut_short: whether the search ran out of decisions.
        n_decisions: that it took.
    """

    is_placed: bool = False
    error: CycleError | None = None
    stuck: Stuck | None = None
    key: str = ""
    room: dict[str, int] = field(default_factory=dict)
    rejecting: dict[str, frozenset[str]] = field(default_factory=dict)
    is_cut_short: bool = False
    n_decisions: int = 0


@dataclass(slots=True)
class _Frame:
    """One level of the exhaustive search: the kinds to try, and the rows left for the first of them."""

    kinds: list[Kind]
    rows: Mask
    is_deferring: bool = False


def search(request: SearchRequest, trial: GroupTrial) -> Pieces[Outcome]:
    """
    Place at least `n_needed` of the members, and as many as it can.

    `trial`: without places; has the places afterwards if the outcome `is_placed`, none otherwise. Cost: one decision
    per member if the first domain has room for all.
    """
    kinds = yield from kinds_of(request.members, trial.view)
    components = yield from components_of(kinds, trial.view)
    attempt = _Search(request, trial, kinds, components)
    outcome = attempt.outcome
    try:
        outcome.is_placed = yield from attempt.run()
    except OutOfDecisionsError:
        outcome.is_cut_short = True
    except CycleBrokenError as broken:
        outcome.error = broken.error
    outcome.n_decisions = trial.n_decisions
    if not outcome.is_placed:
        yield from attempt.end()
    return outcome


class _Search:
    def __init__(
        self,
        request: SearchRequest,
        trial: GroupTrial,
        kinds: Sequence[Kind],
        components: Sequence[Component],
    ) -> None:
        self.outcome = Outcome(key=request.topology_key)
        self._trial, self._view = trial, trial.view
        self._rows, self._n_needed, self._key = request.rows, request.n_needed, request.topology_key
        self._n_members = len(request.members)
        self._kinds, self._components = kinds, components
        self._kind_of = {pod.uid: kind for kind in self._kinds for pod in kind.pods}
        self._liftable = {plugin.name for plugin in trial.profile.filters if plugin.lifted_by_siblings}
        #: The domain that is tried, for the message.
        self._domain = ""
        #: Whether a kind has no place even on the untouched state, whatever its siblings do.
        self._is_proven_infeasible = False
        #: The domains of `outcome.key`, and the plugins that refused a node of others.
        self._shared = _NO_DOMAINS
        self._refusing: set[str] = set()

    def run(self) -> Pieces[bool]:
        """Return whether enough members have places."""
        scopes = yield from self._scopes()
        n_largest = max(len(kind.pods) for kind in self._kinds)
        # If none has room, the roomiest is tried for the message.
        for scope in scopes.with_room(n_largest):
            if (yield from self._place_all(scope)):
                return True
        if self._n_needed < self._n_members:
            best = scopes.roomiest(_PARTIAL_DOMAINS, self._n_needed)
            yield from self._place_best([self._place_most(scope.rows) for scope in best])
            if len(self._trial.places) >= self._n_needed and (yield from self._trial.is_settled()):
                return True
            yield from self.take_back(0)
        if (yield from self._is_proven()):
            return False
        for scope in scopes.with_room(1):
            if (yield from self._exhaust(scope.rows)):
                return True
        return False

    def end(self) -> Pieces[None]:
        """Complete the outcome of a group without places."""
        yield from self.take_back(0)
        self.outcome.room = self._shared.room_by_value() | self.outcome.room
        for uid in self._kind_of:
            self.outcome.rejecting[uid] = self.outcome.rejecting.get(uid, frozenset()) | self._refusing

    # Places.

    def take_back(self, n_kept: int) -> Pieces[None]:
        """Take back the last places."""
        while len(self._trial.places) > n_kept:
            self._kind_of[self._trial.take_back().uid].n_placed -= 1
            yield

    def _place(self, kind: Kind, result: ScheduleResult, *, is_owed: bool) -> None:
        self._trial.place(kind.left[0], result, is_owed=is_owed)
        kind.n_placed += 1

    def _try(self, kind: Kind, rows: Mask, siblings: Sequence[Pod] = ()) -> Pieces[FitError | None]:
        """Place the next member of the kind; return why it has no place."""
        decision = self._trial.decide(kind.left[0], rows, siblings)
        if isinstance(decision, ScheduleResult):
            self._place(kind, decision, is_owed=bool(siblings))
            yield
            return None
        self._note(kind, decision, rows)
        yield
        return decision

    def _note(self, kind: Kind, error: FitError, rows: Mask) -> None:
        outcome, n_placed = self.outcome, len(self._trial.places)
        for member in kind.left:
            outcome.rejecting[member.uid] = outcome.rejecting.get(member.uid, frozenset()) | error.rejecting
        if outcome.stuck is None or n_placed > outcome.stuck.n_placed:
            outcome.stuck = Stuck(tuple(self._trial.places), self._domain, rows, kind.left[0], error)
        if not n_placed and self._is_everywhere(rows):
            self._is_proven_infeasible |= error.rejecting.isdisjoint(self._liftable)

    def _is_everywhere(self, rows: Mask) -> bool:
        return rows is self._rows or np.array_equal(rows, self._rows)

    def _siblings(self, kind: Kind) -> list[Pod]:
        """Return the members still to be placed after the next one of the kind that its affinity waits for."""
        others = (other.left[1:2] if other is kind else other.left[:1] for other in self._kinds)
        return [pod for left in others for pod in left if is_selected(kind.needs, pod, self._view)]

    # Greedy.

    def _place_all(self, scope: Domain) -> Pieces[bool]:
        """Place every member within the scope; a component that fails after others is tried first once more."""
        components = self._components
        for _ in range(2):
            self._domain = scope.value
            failed = yield from self._place_each(components, scope.rows)
            if failed is None and (yield from self._trial.is_settled()):
                return True
            if scope.value:
                self.outcome.room[scope.value] = len(self._trial.places)
            yield from self.take_back(0)
            if failed is None or failed is components[0]:
                return False
            components = [failed, *(component for component in components if component is not failed)]
        return False

    def _place_each(self, components: Sequence[Component], scope: Mask) -> Pieces[Component | None]:
        """Return the first component that has no place."""
        for component in components:
            if not (yield from self._place_component(component, scope)):
                return component
        return None

    def _place_component(self, component: Component, scope: Mask) -> Pieces[bool]:
        n_before, outer = len(self._trial.places), self._domain
        n_wanted = max(len(kind.pods) for kind in component.kinds)
        domains = yield from self._domains(component, scope)
        for domain in domains.with_room(n_wanted):
            self._domain = outer or domain.value
            is_filled = yield from self._fill(component.kinds, domain.rows)
            self._domain = outer
            if is_filled:
                return True
            if not outer:
                self.outcome.room[domain.value] = len(self._trial.places) - n_before
            yield from self.take_back(n_before)
        # Without a key; and running pods may meet its affinity in several domains.
        return (not component.key or bool(domains)) and (yield from self._fill(component.kinds, scope))

    def _fill(self, kinds: Sequence[Kind], rows: Mask, *, is_partial: bool = False) -> Pieces[bool]:
        """
        Place the members of the kinds; a kind that others may help waits for them. Return whether all have places.

        `is_partial`: go on without a kind that has none.
        """
        waiting = [kind for kind in kinds if kind.left]
        while waiting:
            n_before = len(self._trial.places)
            for kind in list(waiting):
                refusal = None
                while kind.left and refusal is None:
                    refusal = yield from self._try(kind, rows)
                if refusal is not None and not refusal.rejecting.isdisjoint(self._liftable):
                    continue
                if refusal is not None and not is_partial:
                    return False
                waiting.remove(kind)
            is_stuck = waiting and len(self._trial.places) == n_before
            if is_stuck and not (yield from self._defer(waiting, rows)):
                return False
        return True

    def _defer(self, waiting: Sequence[Kind], rows: Mask) -> Pieces[bool]:
        """Place one member whose affinity waits for a sibling; return whether there is one."""
        for kind in waiting:
            siblings = self._siblings(kind)
            if siblings and (yield from self._try(kind, rows, siblings)) is None:
                return True
        return False

    # As many as fit.

    def _place_most(self, scope: Mask) -> Pieces[None]:
        """Place as many members as the first domain that is best for its component takes."""
        for component in self._components:
            domains = yield from self._domains(component, scope)
            roomiest = domains.roomiest(_PARTIAL_DOMAINS, self._n_needed)
            options = [domain.rows for domain in roomiest] or [scope]
            yield from self._place_best(
                [self._fill(component.kinds, rows, is_partial=True) for rows in options]
            )

    def _place_best(self, options: Sequence[Pieces[object]]) -> Pieces[None]:
        """Place what the option places that places most."""
        n_before = len(self._trial.places)
        best: list[tuple[Kind, str, bool]] = []
        for option in options:
            yield from option
            places = self._trial.places[n_before:]
            if len(places) > len(best):
                best = [(self._kind_of[place.pod.uid], place.node_name, place.is_owed) for place in places]
            yield from self.take_back(n_before)
        for kind, node_name, is_owed in best:
            only = np.zeros_like(self._rows)
            only[self._view.nodes.row_by_name[node_name]] = True
            yield from self._try(kind, only, self._siblings(kind) if is_owed else ())

    # Domains.

    def _scopes(self) -> Pieces[Domains]:
        """Return the domains of which all members share one: of the group's topology key, or all rows without one."""
        if not self._key:
            return Domains.one(self._rows)
        return (yield from self._domains(Component(tuple(self._kinds), self._key), self._rows))

    def _domains(self, component: Component, scope: Mask) -> Pieces[Domains]:
        """
        Return the domains with room for the component's largest kind; none if it has no key.

        Room is counted by resources, so there may be less.
        """
        kind = max(component.kinds, key=lambda each: len(each.left))
        if not component.key or not kind.left:
            return _NO_DOMAINS
        decision = self._trial.decide(kind.left[0], scope)
        if isinstance(decision, FitError) and (siblings := self._siblings(kind)):
            decision = self._trial.decide(kind.left[0], scope, siblings)
        if isinstance(decision, FitError):
            self._note(kind, decision, scope)
            yield
            return _NO_DOMAINS
        filtered, feasible = decision.scores.filtered, decision.scores.feasible.mask
        copies = np.clip(most_copies(filtered.filters, self._view.n_rows), 1, len(kind.left))
        column = self._view.column(component.key)
        domains = Domains(column, column.per_domain(np.where(feasible, copies, 0)).amounts, scope)
        self._refusing |= {refusal.plugin for refusal in filtered.refusals}
        if not self._key or component.key == self._key:
            self.outcome.key, self._shared = component.key, domains
        yield
        return domains

    # Exhaustive.

    def _is_proven(self) -> Pieces[bool]:
        """Return whether the greedy search has shown that there is no placement."""
        if self._n_needed == self._n_members:
            if self._is_proven_infeasible:
                return True
            for kind in self._kinds:
                if self._most_of(kind) < len(kind.pods):
                    return True
                yield
        return len(self._kinds) == 1 and has_closed_form(self._kinds[0], self._view)

    def _most_of(self, kind: Kind) -> int:
        """Return an upper bound of the members of the kind that have places, by resources. One decision."""
        decision = self._trial.decide(kind.first, self._rows, self._siblings(kind))
        if isinstance(decision, FitError):
            return 0 if decision.rejecting.isdisjoint(self._liftable) else len(kind.pods)
        filtered, possible = decision.scores.filtered, decision.scores.feasible.mask.copy()
        for refusal in filtered.refusals:
            if refusal.plugin in self._liftable:
                possible |= refusal.rows
        copies = most_copies(filtered.filters, self._view.n_rows)
        room = np.where(possible, np.clip(copies, 0, len(kind.pods)), 0)
        if key := self._key or self._one_domain_key(kind):
            return int(self._view.column(key).per_domain(room).amounts.max(initial=0))
        return int(room.sum())

    def _one_domain_key(self, kind: Kind) -> str:
        """Return a key of which all members of the kind have to share the value, empty if none is known."""
        selected = [other for other in self._kinds if is_selected(kind.needs, other.first, self._view)]
        if kind not in selected or any(
            (other.needs, other.keys) != (kind.needs, kind.keys) for other in selected
        ):
            # Members of another kind that it needs may be in several domains.
            return ""
        is_met = kind.needs is None or self._view.pods_by_domain(kind.needs, kind.keys[0]).amounts.any()
        return "" if is_met else kind.keys[0]

    def _exhaust(self, scope: Mask) -> Pieces[bool]:
        """Try every order of kinds and every node of the scope, depth first."""
        seen: set[Hashable] = set()
        frames = [_Frame(list(self._kinds), scope.copy())]
        while frames:
            n_placed = len(self._trial.places)
            if n_placed >= self._n_needed and (yield from self._trial.is_settled()):
                yield from self._fill(self._kinds, scope, is_partial=True)
                if not (yield from self._trial.is_settled()):
                    yield from self.take_back(n_placed)
                return True
            if not (yield from self._advance(frames[-1], scope)):
                frames.pop()
                yield from self.take_back(max(0, len(frames) - 1))
                continue
            assignment = self._assignment()
            if assignment in seen:
                yield from self.take_back(len(frames) - 1)
                continue
            seen.add(assignment)
            frames.append(_Frame([kind for kind in self._kinds if kind.left], scope.copy()))
        return False

    def _advance(self, frame: _Frame, scope: Mask) -> Pieces[bool]:
        """Place one more member in a way that the frame has not tried; return whether there was one."""
        while frame.kinds:
            kind = frame.kinds[0]
            siblings = self._siblings(kind) if frame.is_deferring else ()
            decision = self._trial.decide(kind.left[0], frame.rows, siblings)
            if isinstance(decision, ScheduleResult):
                frame.rows[decision.scores.chosen] = False
                self._place(kind, decision, is_owed=frame.is_deferring)
                yield
                return True
            yield
            if not frame.is_deferring and self._siblings(kind):
                frame.is_deferring = True
                continue
            frame.kinds.pop(0)
            frame.rows, frame.is_deferring = scope.copy(), False
        return False

    def _assignment(self) -> Hashable:
        """Return which kinds are on which nodes, and which of them wait for siblings."""
        places = (
            (id(self._kind_of[place.pod.uid]), place.node_name, place.is_owed) for place in self._trial.places
        )
        return frozenset(Counter(places).items())
