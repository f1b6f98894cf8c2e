"""
The assumed places of a group: its members are placed one after the other, and all are kept or taken back together.

As in any cycle, the pod and what plugins reserve for it are assumed. So the plugins see the place in the decision on
the next member, and it is taken back as after a failed bind.

If a node has no devices left for a member, the members there may exchange theirs so that some come free: whether
members fit on a node together does not depend on the devices that the first of them took.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final

import numpy as np

from scheduler.engine.core.decide import CycleError, DecisionScope, ScheduleResult, decide, deciding
from scheduler.engine.core.decision_annotation import DecisionAnnotations
from scheduler.engine.core.group_devices import claim_forms, is_first_fit_best
from scheduler.engine.core.pod_records import PodRecords
from scheduler.engine.core.reservations import Reservations
from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.framework.interface import FilterPlugin, ReserveTogether, Rng
from scheduler.engine.framework.observer import UNOBSERVED, Observer
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.instructions import Bind, WriteReservation
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.arrays import Mask
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView

#: The constants of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
_GAMMA: Final = 0x9E3779B97F4A7C15
_MIX_1: Final = 0xBF58476D1CE4E5B9
_MIX_2: Final = 0x94D049BB133111EB
_MASK: Final = (1 << 64) - 1


class SplitMix64:
    """The generator SplitMix64. Equal identities give equal numbers."""

    def __init__(self, identity: str) -> None:
        self._state = int.from_bytes(blake2b(identity.encode(), digest_size=8).digest(), "big")

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 to `stop` - 1; a bias of `stop` / 2**64 is left in."""
        self._state = (self._state + _GAMMA) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * _MIX_1) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * _MIX_2) & _MASK
        return (mixed ^ (mixed >> 31)) % stop


#: Nodes on which devices are exchanged for one more member.
_MOST_EXCHANGES: Final = 20

#: About the most decisions to find the order of a group's binds: 0.1 ms each.
_MOST_TO_LINE_UP: Final = 1_000


class OutOfDecisionsError(Exception):
    """The search has taken as many decisions as it may. Caught by the search."""


class CycleBrokenError(Exception):
    """A decision ended in an error, which ends the group's cycle. Caught by the search."""

    def __init__(self, error: CycleError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True, slots=True)
class AssumedPlace:
    """
    A member assumed on a node.

    `instruction`: `bind`, or what writes its reservations first. `is_owed`: whether a pod that its required affinity
    selects has yet to come to its domain.
    """

    bind: Bind
    instruction: Bind | WriteReservation
    n_evaluated: int
    n_feasible: int
    is_owed: bool

    @property
    def pod(self) -> Pod:
        """Return the member."""
        return self.bind.pod

    @property
    def node_name(self) -> str:
        """Return the node's name."""
        return self.bind.node_name

    @property
    def is_reserved(self) -> bool:
        """Return whether something is reserved for the member, and to be written."""
        return self.instruction is not self.bind


@dataclass(slots=True)
class AssumedPlaces:
    """
    The places of one attempt, taken back unless the caller keeps them. Use it in `ClusterState.without_nominations`.

    `rng`: used by nothing else, as each number that the machine draws changes what it decides later.
    """

    state: ClusterState
    reservations: Reservations
    profile: Profile
    rng: Rng
    observer: Observer
    annotations: DecisionAnnotations
    max_decisions: int
    view: ClusterView = field(init=False)
    places: list[AssumedPlace] = field(init=False, default_factory=list)
    n_decisions: int = field(init=False, default=0)
    _unscored: Profile = field(init=False)
    _n_counted: int = field(init=False, default=0)
    #: Decisions that are kept for later.
    _n_spared: int = field(init=False, default=0)
    _asked: set[str] = field(init=False, default_factory=set)
    #: `is_first_fit_best` by spec (equal specs are one object) and the forms of the claims.
    _takes_any: dict[Hashable, bool] = field(init=False, default_factory=dict)
    #: Exchanges that found nothing: the row, the members there, and spec and claims of the next member.
    _in_vain: set[Hashable] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.view = ClusterView(self.state)
        self._unscored = replace(self.profile, scorers=())

    @property
    def n_left(self) -> int:
        """Return how many decisions the search may still take."""
        return self.max_decisions - self._n_spared - self._n_counted

    @contextmanager
    def sparing(self, n_spared: int) -> Iterator[None]:
        """
        End the block, without an error, before it leaves fewer decisions than this to the search.

        Afterwards the first decision on a member counts as one again, and the block's decisions count no more than it
        was allowed. Nested blocks spare the larger number.
        """
        outer, asked, n_before = self._n_spared, self._asked.copy(), self._n_counted
        self._n_spared = max(outer, n_spared)
        n_most = max(n_before, self.max_decisions - self._n_spared)
        try:
            yield
        except OutOfDecisionsError:
            pass
        finally:
            self._n_spared, self._asked = outer, asked
            self._n_counted = min(self._n_counted, n_most)

    def fresh(self) -> AssumedPlaces:
        """Return one like this without places, which is not observed."""
        return replace(self, observer=UNOBSERVED)

    def deciding(
        self, pod: Pod, rows: Mask, siblings: Sequence[Pod] = (), *, is_scored: bool = True
    ) -> Pieces[ScheduleResult | FitError]:
        """
        Return the best of these rows for the member, or why there is none.

        `is_scored`: False if any of the feasible rows will do; the decision is not observed then.
        Raises OutOfDecisionsError and CycleBrokenError.
        """
        if self.n_left <= 0:
            raise OutOfDecisionsError
        self.n_decisions += 1
        # The first decision on each member counts once, whatever it costs.
        self._n_counted += _weight(pod) if pod.uid in self._asked else 1
        self._asked.add(pod.uid)
        scope = DecisionScope(rows, siblings)
        # An observer would bring the scorers back.
        profile, observer = (self.profile, self.observer) if is_scored else (self._unscored, UNOBSERVED)
        decision = yield from deciding(pod, self.view, profile, self.rng, observer, scope)
        if isinstance(decision, CycleError):
            raise CycleBrokenError(decision)
        if isinstance(decision, FitError):
            return (yield from self._exchanged(pod, scope, decision)) or decision
        return decision

    def _exchanged(self, pod: Pod, scope: DecisionScope, refused: FitError) -> Pieces[ScheduleResult | None]:
        """Return a row that takes the member once members there exchange parts of the node; None if there is none."""
        plugins = (
            (each.name, each.reserve_together)
            for each in self.profile.filters
            if each.reserve_together is not None and each.name in refused.rejecting
        )
        plugin, n_left = next(plugins, None), min(_MOST_EXCHANGES, self.n_left)
        if plugin is None:
            return None
        forms = claim_forms(pod, self.view)
        for row, indexes in self._reserved_by_row(scope.rows).items():
            members = [self.places[index].pod for index in indexes]
            asked = row, tuple(member.uid for member in members), pod.spec, forms
            if asked in self._in_vain or all(map(self._takes_any_device, [*members, pod])):
                continue
            if n_left <= 0:
                return None
            n_left -= 1
            self._n_counted += 1
            yield
            if not self._exchange(indexes, row, pod, *plugin):
                self._in_vain.add(asked)
                continue
            only = np.zeros_like(scope.rows)
            only[row] = True
            at_row = replace(scope, rows=only)
            decision = decide(pod, self.view, self.profile, self.rng, scope=at_row)
            if isinstance(decision, ScheduleResult):
                return decision
        return None

    def _takes_any_device(self, pod: Pod) -> bool:
        alike = pod.spec, claim_forms(pod, self.view)
        if alike not in self._takes_any:
            self._takes_any[alike] = is_first_fit_best(pod, self.view)
        return self._takes_any[alike]

    def _reserved_by_row(self, rows: Mask) -> dict[int, list[int]]:
        """Return the indexes of the places with a reservation on each of these rows, the latest row first."""
        by_row: dict[int, list[int]] = {}
        for index in range(len(self.places) - 1, -1, -1):
            row = self.view.nodes.row_by_name[self.places[index].node_name]
            if rows.item(row) and self.places[index].is_reserved:
                by_row.setdefault(row, []).append(index)
        return by_row

    def _exchange(
        self, indexes: Sequence[int], row: int, pod: Pod, plugin: str, reserve_together: ReserveTogether
    ) -> bool:
        """Let the plugin reserve again for the members on the row so that the pod fits; return whether it could."""
        places = [self.places[index] for index in indexes]
        reserved = [self.reservations.of(place.pod.uid) for place in places]
        for place in places:
            self.reservations.unreserve(place.pod.uid)
        together = reserve_together([*(place.pod for place in places), pod], row, self.view)
        if together is not None:
            reserved = [
                [*(each for each in before if each.plugin != plugin), *([] if anew is None else [anew])]
                for before, anew in zip(reserved, together[:-1], strict=True)
            ]
        for index, place, reservations in zip(indexes, places, reserved, strict=True):
            instruction = self.reservations.reserve(place.bind, reservations)
            self.places[index] = replace(place, instruction=instruction)
        return together is not None

    def place(self, pod: Pod, result: ScheduleResult, *, is_owed: bool) -> None:
        """Assume the member where the decision says."""
        bind, reserved = Bind(pod, result.node_name, self.annotations.of(result)), result.scores.reservations
        self.state.assume(replace(pod, node_name=result.node_name), result.node_name)
        instruction = self.reservations.reserve(bind, reserved) if reserved else bind
        self.places.append(AssumedPlace(bind, instruction, result.n_evaluated, result.n_feasible, is_owed))

    def take_back(self) -> Pod:
        """Forget the last place, and return its pod."""
        place = self.places.pop()
        # Nodes may share devices, so other rows may have room again.
        self._in_vain.clear()
        self.reservations.unreserve(place.pod.uid)
        self.state.forget(place.pod.uid)
        return place.pod

    def exchange(self, indexes: Sequence[int], members: Sequence[Pod]) -> Pieces[None]:
        """Put these members, alike to every plugin and without reservations, in this order at their own places."""
        nodes = [self.places[index] for index in indexes]
        for place in nodes:
            self.state.forget(place.pod.uid)
            yield
        for index, place, pod in zip(indexes, nodes, members, strict=True):
            bind = replace(place.bind, pod=pod)
            self.state.assume(replace(pod, node_name=place.node_name), place.node_name)
            self.places[index] = replace(place, bind=bind, instruction=bind)
            yield

    def take_all_back(self) -> Pieces[None]:
        """Forget every place; yield after each."""
        while self.places:
            self.take_back()
            yield

    def is_settled(self) -> Pieces[bool]:
        """Return whether every pod that required affinity waits for has come; yield after a decision on each member."""
        for place in self.places:
            if place.is_owed:
                has_company = self._has_company(place)
                yield
                if not has_company:
                    return False
        return True

    def line_up(self) -> Pieces[None]:
        """
        Put the places in an order in which no member comes before one that it needs; yield after each decision.

        A process that dies between two binds then leaves no member on a node without the pod that it needs there. Of
        members that need each other, one has to come first. The order stays if none is found soon.
        """
        if not any(place.is_owed for place in self.places):
            return
        for place in self.places:
            self.state.forget(place.pod.uid)
            yield
        ordered = yield from self._lined_up()
        if len(ordered) == len(self.places):
            self.places = ordered
            return
        for place in ordered:
            self.state.forget(place.pod.uid)
            yield
        for place in self.places:
            self._assume(place)
            yield

    def _lined_up(self) -> Pieces[list[AssumedPlace]]:
        """Assume each forgotten member once its node takes it; return the places of the members that were taken."""
        ordered: list[AssumedPlace] = []
        waiting, n_left, is_kept = self.places, _MOST_TO_LINE_UP, True
        while waiting and n_left > 0:
            refused: list[AssumedPlace] = []
            for place in waiting:
                # As long as the order is kept, a member that waited for nobody finds the same pods as in its decision.
                is_next = is_kept and place is self.places[len(ordered)]
                if not (is_next and not place.is_owed):
                    n_left -= 1
                    yield
                    if not self._is_taken(place, self.profile.filters):
                        refused.append(place)
                        continue
                self._assume(place)
                ordered.append(replace(place, is_owed=False))
                is_kept = is_next
            if len(refused) == len(waiting):
                pods = [place.pod for place in refused]
                for place in refused:
                    if place.is_owed and self._is_taken(place, self.profile.filters, pods):
                        break
                    yield
                else:
                    break
                is_kept = is_kept and place is self.places[len(ordered)]
                self._assume(place)
                ordered.append(place)
                refused.remove(place)
            waiting = refused
        return ordered

    def _has_company(self, place: AssumedPlace) -> bool:
        """Return whether the plugins that let the member wait for siblings take it here, with all of them there."""
        return self._takes(place, tuple(plugin for plugin in self.profile.filters if plugin.reads_siblings))

    def still_take(self, places: Sequence[AssumedPlace]) -> Pieces[bool]:
        """
        Return whether the nodes take the members beside everything that is there now; yield after each decision.

        The members' reservations are made again, so the instructions of their places may not be executed afterwards.
        """
        for place in places:
            reserved = self.reservations.of(place.pod.uid)
            # A claim that is being allocated, even for the member itself, would refuse it.
            self.reservations.unreserve(place.pod.uid)
            takes = self._takes(place, self.profile.filters)
            if reserved:
                self.reservations.reserve(place.bind, reserved)
            yield
            if not takes:
                return False
        return True

    def _takes(self, place: AssumedPlace, filters: tuple[FilterPlugin, ...]) -> bool:
        self.state.forget(place.pod.uid)
        is_taken = self._is_taken(place, filters)
        self._assume(place)
        return is_taken

    def _is_taken(
        self, place: AssumedPlace, filters: tuple[FilterPlugin, ...], siblings: Sequence[Pod] = ()
    ) -> bool:
        """Return whether the filters take the member, which is not in the state, where it is to be."""
        rows = self.view.alive & False
        rows[self.view.nodes.row_by_name[place.node_name]] = True
        asked = replace(self.profile, filters=filters, scorers=())
        scope = DecisionScope(rows, siblings)
        decision = decide(place.pod, self.view, asked, self.rng, scope=scope)
        return isinstance(decision, ScheduleResult)

    def _assume(self, place: AssumedPlace) -> None:
        self.state.assume(replace(place.pod, node_name=place.node_name), place.node_name)


def detached_places(
    state: ClusterState, profile: Profile, identity: str, max_decisions: int
) -> AssumedPlaces:
    """Return places for a search outside of the machine. `identity`: seeds the random numbers."""
    reservations, rng = Reservations(state, PodRecords(state)), SplitMix64(identity)
    annotations = DecisionAnnotations(state.nodes)
    return AssumedPlaces(state, reservations, profile, rng, UNOBSERVED, annotations, max_decisions)


def _weight(pod: Pod) -> int:
    """Return what a decision on the pod counts: 1, and 1 more for every eight terms of its affinity."""
    return 1 + sum(1 for _ in pod.spec.affinity.usable_terms()) // 8
