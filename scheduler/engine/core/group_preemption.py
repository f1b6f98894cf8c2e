"""
The pods that have to leave so that a whole group has places: found by removing pods from the state, which is restored.

    remove     all pods of lower priority leave, in a large cluster only from the nodes where that costs least
    search     the group is placed as usual; if it has no places now, no pod is evicted
    reprieve   pods of nodes that no member takes come back at once, the others one by one, the most important first and
               before them the ones whose eviction breaks a budget; a pod stays if the group still has places, which may
               be other ones

So pods are evicted only if the whole group then fits, and only pods whose room it needs. A group that its
PodGroup disrupts as a whole leaves, and comes back, as if it were one pod. Beyond `_MOST_DECISIONS`, a pod comes back
only if every member keeps its node.

Source of the method: kubernetes 1.36, framework/preemption, podGroupEvaluator (KEP-5710). Differences: groups with
affinity or a topology constraint may preempt too; a group without a priority of its own has that of its lowest member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from scheduler.engine.core.assumed_places import AssumedPlace, AssumedPlaces
from scheduler.engine.core.group_attempt import SearchRequest
from scheduler.engine.core.group_clearings import clearings_for
from scheduler.engine.core.group_search import search
from scheduler.engine.core.group_vacancy import Vacancy
from scheduler.engine.framework.post_filter import EvictionUnit, GroupPreemptor
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.arrays import Mask
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster import ClusterState, PlacedPod
from scheduler.engine.state.cluster_view import ClusterView

#: Decisions of all searches of one attempt.
_MOST_DECISIONS: Final = 3_000
#: Ends the message of a group that waits for the controller of claims.
DEVICES_ARE_RELEASED: Final = "preemption: not eligible due to devices that are being released."


@dataclass(frozen=True, slots=True)
class NextStep:
    """
    The next step for a group without places.

    `nodes`: where its members are nominated from now on, by UID. `written`: the nominations to write to the API server;
    empty clears them, None leaves those that it has. `victims`: pods to evict, the least important first. `note`: ends
    the message.
    """

    nodes: Mapping[str, str] = field(default_factory=dict)
    written: Mapping[str, str] | None = field(default_factory=dict)
    victims: tuple[Pod, ...] = ()
    note: str = ""


#: The members are nominated no more.
NOWHERE: Final = NextStep()


def find_room(
    request: SearchRequest,
    below_priority: int,
    state: ClusterState,
    preemptor: GroupPreemptor,
    assumed: AssumedPlaces,
) -> Pieces[NextStep | None]:
    """Return where the members go once pods of lower priorities have left, None if there is no room even then."""
    room_search = _RoomSearch(request, state, preemptor, assumed)
    step = yield from room_search.find(below_priority)
    room_search.vacancy.show_claims()
    return step


def preemptor_of(profile: Profile) -> GroupPreemptor | None:
    """Return the rules by which the profile evicts pods for groups; None if it evicts none."""
    return next((plugin for plugin in profile.post_filters if isinstance(plugin, GroupPreemptor)), None)


class _RoomSearch:
    def __init__(
        self, request: SearchRequest, state: ClusterState, preemptor: GroupPreemptor, assumed: AssumedPlaces
    ) -> None:
        self._request, self._state = request, state
        self._preemptor, self._assumed = preemptor, assumed
        self._view = ClusterView(state)
        group = request.members[0].group
        self._key = None if group is None else group.key
        self.vacancy = Vacancy(state, request.members, assumed.profile.filters)
        self._n_decisions = 0

    def find(self, below_priority: int) -> Pieces[NextStep | None]:
        """Do as `find_room`, but leave claims hidden whose pods were gone before; `vacancy.show_claims` ends that."""
        is_left_behind = yield from self.vacancy.free_left_behind()
        if is_left_behind and (nodes := (yield from self._places())) is not None:
            return NextStep(nodes, nodes, note=DEVICES_ARE_RELEASED)
        clearings = yield from clearings_for(self._request, below_priority, self._view)
        for rows in clearings:
            yield from self._remove_lower(rows, below_priority)
            step = yield from self._reprieve()
            yield from self.vacancy.put_all_back()
            if step is not None:
                return step
        return None

    def _remove_lower(self, rows: Mask, below_priority: int) -> Pieces[None]:
        having = rows & self._view.has_lower(below_priority)
        for row in np.flatnonzero(having).tolist():
            for placed in list(self._view.state.placed_on(row)):
                is_sibling = placed.pod.group is not None and placed.pod.group.key == self._key
                is_lower = self._view.state.groups.victim_priority(placed.pod) < below_priority
                if is_sibling or not is_lower or self.vacancy.is_out(placed):
                    continue
                self.vacancy.take_out(self._view.evicted_with(placed))
                yield

    def _reprieve(self) -> Pieces[NextStep | None]:
        """Return where the members go if they have places without the removed pods; some of these come back."""
        if not self.vacancy or (nodes := (yield from self._places())) is None:
            return None
        nodes = yield from self._without_elsewhere(nodes)
        order = self._preemptor.reprieve_order(self.vacancy.units, self._view)
        n_before = len(self.vacancy) + 1
        # A pod may be spared only after others are back, such as the pod that a member's affinity needs.
        while len(self.vacancy) < n_before:
            n_before = len(self.vacancy)
            late: list[EvictionUnit] = []
            for unit in [unit for unit in order if self.vacancy.is_out(unit[0])]:
                if self._n_decisions + len(self._request.members) > _MOST_DECISIONS:
                    late.append(unit)
                    continue
                self.vacancy.put_back(unit)
                if (places := (yield from self._places())) is None:
                    self.vacancy.take_out(unit)
                else:
                    nodes = places
        if late:
            if (places := (yield from self._in_place(late))) is None:
                return None
            nodes = places
        leaving = (unit for unit in reversed(order) if self.vacancy.is_out(unit[0]))
        victims = tuple(placed.pod for unit in leaving for placed in unit)
        return NextStep(nodes, nodes, victims) if victims else None

    def _without_elsewhere(self, nodes: dict[str, str]) -> Pieces[dict[str, str]]:
        """Bring back the pods on nodes without a member, if the group then still has places."""
        taken = set(nodes.values())
        elsewhere = [
            unit for unit in self.vacancy.units if not any(placed.pod.node_name in taken for placed in unit)
        ]
        if not elsewhere:
            return nodes
        for unit in elsewhere:
            self.vacancy.put_back(unit)
            yield
        if (places := (yield from self._places())) is not None:
            return places
        for unit in elsewhere:
            self.vacancy.take_out(unit)
            yield
        return nodes

    def _places(self) -> Pieces[dict[str, str] | None]:
        """Return the nodes of the members without the removed pods, None if the group has none."""
        assumed = self._assumed.fresh()
        outcome = yield from search(self._request, assumed)
        self._n_decisions += outcome.n_decisions
        nodes = {place.pod.uid: place.node_name for place in assumed.places}
        yield from assumed.take_all_back()
        return nodes if outcome.is_placed else None

    def _may_matter_elsewhere(self, placed: PlacedPod) -> bool:
        """Return whether the pod, once it is back, may keep members from other nodes than its own."""
        return bool(placed.terms or placed.pod.spec.claim_volumes) or self.vacancy.has_freed(placed.pod)

    def _in_place(self, late: Iterable[EvictionUnit]) -> Pieces[dict[str, str] | None]:
        """Bring back the pods that let every member keep its node. Return the nodes, None without places."""
        assumed = self._assumed.fresh()
        if not (yield from search(self._request, assumed)).is_placed:
            return None
        by_node: dict[str, list[AssumedPlace]] = {}
        for place in assumed.places:
            by_node.setdefault(place.node_name, []).append(place)
        is_local = all(_matters_on_its_node_only(pod) for pod in self._request.members)
        for unit in late:
            names = {placed.pod.node_name for placed in unit}
            beside = [place for name in names for place in by_node.get(name, ())]
            if not is_local or any(map(self._may_matter_elsewhere, unit)):
                continue
            self.vacancy.put_back(unit)
            yield
            if not (yield from assumed.still_take(beside)):
                self.vacancy.take_out(unit)
        holds = yield from assumed.still_take(assumed.places)
        nodes = {place.pod.uid: place.node_name for place in assumed.places}
        yield from assumed.take_all_back()
        return nodes if holds else None


def _matters_on_its_node_only(pod: Pod) -> bool:
    """Return whether a pod of lower priority can only keep the member out of the node that it runs on."""
    spec = pod.spec
    return not (spec.affinity.required_anti or spec.spread or spec.claim_volumes or spec.disks)
