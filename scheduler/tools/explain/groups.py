"""
Explains a group that has no places: which member is refused once others have theirs, and what would help the group.

The search is the one of the group's cycle, on a copy of the cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from scheduler.engine.core.assumed_places import (
    AssumedPlace,
    AssumedPlaces,
    CycleBrokenError,
    detached_places,
)
from scheduler.engine.core.group_attempt import Outcome, Stuck
from scheduler.engine.core.group_members import n_needed
from scheduler.engine.core.group_messages import whole_group_problem
from scheduler.engine.core.group_requests import search_request
from scheduler.engine.core.group_search import search
from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.changes import (
    AddRoom,
    Change,
    Changes,
    RecreateWithMatchLabelKey,
    RemovePod,
    RollOutInPlace,
)
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.revisions import REVISION_KEY
from scheduler.engine.state.batches import finished
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.pod_groups import PodGroups
from scheduler.tools.explain.formats.explanation import Incomplete, PodRef, Pods, RefusedMember
from scheduler.tools.explain.inspection import Inspection, inspect_pod
from scheduler.tools.explain.simulation.changes import changed_by, made
from scheduler.tools.explain.suggestions import proposals
from scheduler.tools.explain.workloads import workload_of

#: Kinds with a number of replicas.
_REPLICATED: Final = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController")
#: Members that are named as having places.
_SHOWN_MEMBERS: Final = 20
#: Decisions for all searches of one explanation: about four seconds at 5,000 nodes.
_MOST_DECISIONS: Final = 20_000
#: How often a proposal is completed by one for the next member.
_MOST_ROUNDS: Final = 16


@dataclass
class GroupChangeCheck:
    """
    Decides where a pod goes with its group if changes are made.

    Args:
        pod: a pending member.
        members: the pending members without gates, the pod among them. The state counts them as pending.
        state: a copy of the cluster, which nothing else changes.
        profile: of the state.
        kept_pods: see `ExplainRequest`.
    """

    pod: Pod
    members: Sequence[Pod]
    key: GroupKey
    state: ClusterState
    profile: Profile
    kept_pods: Collection[str] = ()
    #: The refused member of the group without changes; changes of pods are of all members with its spec.
    subject: Pod = field(init=False)
    _n_left: int = field(init=False, default=_MOST_DECISIONS)

    def __post_init__(self) -> None:
        self.subject = self.pod

    def node_after(self, changes: Changes) -> str | None:
        """Return the pod's node once all changes are made; None if it has none, or too much was tried already."""
        if self._n_left <= 0:
            return None
        with self._searched(changes) as (_, assumed, _members):
            return self._node_in(assumed)

    def _node_in(self, assumed: AssumedPlaces) -> str | None:
        return next((place.node_name for place in assumed.places if place.pod.uid == self.pod.uid), None)

    def completed(self, changes: Changes) -> Changes | None:
        """Return the changes with further ones of their types, for the members that still have no place beside them."""
        types, n_placed = frozenset(map(type, changes)), -1
        for _ in range(_MOST_ROUNDS):
            if self._n_left <= 0:
                return None
            with self.stuck(changes) as stuck:
                if stuck is None:
                    return changes
                if stuck.n_placed <= n_placed:
                    return None
                n_placed = stuck.n_placed
                more = [one for one in self.proposed(stuck) if types.issuperset(map(type, one))]
                further = min(more, key=_room, default=None)
            if further is None:
                return None
            changes = _merged(changes, further)
        return None

    @contextmanager
    def stuck(self, changes: Changes = ()) -> Iterator[Stuck | None]:
        """
        Return where the search comes furthest once the changes are made; within the block the members there have their
        places. None if the pod has a place, or no member is refused.
        """
        with self._searched(changes) as (outcome, assumed, members):
            again = assumed.fresh()
            try:
                yield self._stuck(outcome, assumed, again, members)
            finally:
                finished(again.take_all_back())

    def _stuck(
        self, outcome: Outcome, assumed: AssumedPlaces, again: AssumedPlaces, members: Sequence[Pod]
    ) -> Stuck | None:
        """Return where the search came furthest; `again` gets the places there, if they are not in `assumed`."""
        if self._node_in(assumed) is not None:
            return None
        try:
            if not outcome.is_placed:
                _place_again(again, () if outcome.stuck is None else outcome.stuck.places, members)
                return outcome.stuck
            pod = next(member for member in members if member.uid == self.pod.uid)
            decision = finished(again.deciding(pod, assumed.view.alive))
        except CycleBrokenError:
            return None
        if not isinstance(decision, FitError):
            return None
        return Stuck(tuple(assumed.places), "", assumed.view.alive, pod, decision)

    def inspect(self, stuck: Stuck, pending_pods: Sequence[Pod] = ()) -> Inspection | None:
        """Return the inspection of the refused member; None if a PreFilter refuses it as a whole."""
        inspection = inspect_pod(stuck.pod, self.state, self.profile, pending_pods, self.kept_pods)
        return inspection if stuck.error.prefilter is None and isinstance(inspection, Inspection) else None

    def proposed(self, stuck: Stuck, avoided_nodes: Collection[str] = ()) -> list[Changes]:
        """Return the changes to try for the refused member; none takes a member of the group away."""
        inspection = self.inspect(stuck)
        if inspection is None:
            return []
        own = {pod.uid for pod in chain(self.members, self.state.groups.placed(self.key))}

        def concerns_group(change: Change) -> bool:
            if isinstance(change, RemovePod):
                return change.uid in own
            # The pods that these create anew may be members.
            return isinstance(change, RecreateWithMatchLabelKey | RollOutInPlace)

        found = proposals(inspection, avoided_nodes, stuck.rows)
        return [changes for changes in found if not any(map(concerns_group, changes))]

    @contextmanager
    def _searched(self, changes: Changes) -> Iterator[tuple[Outcome, AssumedPlaces, Sequence[Pod]]]:
        """Return what the group's search finds once the changes are made; within the block its places are taken."""
        state = self.state
        group = state.groups.get(self.key)
        with made(changes, self.subject, state), state.without_nominations({pod.uid for pod in self.members}):
            members = self._changed_members(changes)
            assumed, outcome = detached_places(state, self.profile, self.key.text, 0), Outcome()
            if group is not None:
                request = search_request(state, self.key, group, members, self.profile)
                most = self.profile.max_search_decisions
                assumed.max_decisions = request.max_decisions(
                    min(most, 100 + 4 * len(self.members)) if changes else most
                )
                outcome = finished(search(request, assumed))
            self._n_left -= assumed.n_decisions
            try:
                yield outcome, assumed, members
            finally:
                finished(assumed.take_all_back())

    def _changed_members(self, changes: Changes) -> list[Pod]:
        """Return the members; those like the refused one share its spec after the changes, as they share it before."""
        spec, revision = self.subject.spec, self.subject.labels.get(REVISION_KEY)
        changed = changed_by(self.subject, changes).spec
        return [
            replace(pod, spec=changed)
            if pod.spec is spec and pod.labels.get(REVISION_KEY) == revision
            else pod
            for pod in self.members
        ]


def _place_again(assumed: AssumedPlaces, places: Sequence[AssumedPlace], members: Sequence[Pod]) -> None:
    """Give the members the places that they had in another search."""
    left = {pod.uid: pod for pod in members}
    for place in places:
        del left[place.pod.uid]
        only = assumed.view.alive & False
        only[assumed.view.nodes.row_by_name[place.node_name]] = True
        decision = finished(assumed.deciding(place.pod, only, tuple(left.values()) if place.is_owed else ()))
        if not isinstance(decision, FitError):
            assumed.place(place.pod, decision, is_owed=place.is_owed)


def incomplete_group(groups: PodGroups, key: GroupKey, waiting: Sequence[Pod]) -> Incomplete | None:
    """Return how many pods the group lacks beside those that wait for places; None if it lacks none."""
    group = groups.get(key)
    n_missing = n_needed(groups, key) - len(waiting)
    if group is None or n_missing <= 0 or whole_group_problem(groups, key):
        return None
    members = {pod.uid: pod for pod in (*waiting, *groups.placed(key))}.values()
    workloads = {workload_of(pod) for pod in members}
    only = workloads.pop() if len(workloads) == 1 else None
    named = f"{only.kind} {only.namespace}/{only.name}" if only and only.kind in _REPLICATED else ""
    n_pods = group.min_count - n_missing
    return Incomplete(n_pods, group.min_count, named, len(members) + n_missing if named else 0)


def refused_member(stuck: Stuck) -> RefusedMember:
    """Return the refused member, and the members that have places, as an explanation has them."""
    places = sorted(stuck.places, key=lambda place: place.pod.key)[:_SHOWN_MEMBERS]
    shown = tuple(PodRef(place.pod.namespace, place.pod.name, place.node_name) for place in places)
    return RefusedMember(stuck.pod.namespace, stuck.pod.name, stuck.domain, Pods(stuck.n_placed, shown))


def _room(changes: Changes) -> tuple[int, int]:
    """Return the number of changes, and how much room they add: the order in which they complete others."""
    return len(changes), sum(change.amount for change in changes if isinstance(change, AddRoom))


def _merged(changes: Changes, more: Changes) -> Changes:
    """Return all changes, with one sum for each resource of a node."""
    merged: dict[object, Change] = {}
    for change in (*changes, *more):
        if isinstance(change, AddRoom):
            place = change.node, change.resource
            known = merged.get(place)
            amount = change.amount + (known.amount if isinstance(known, AddRoom) else 0)
            merged[place] = AddRoom(*place, amount)
        else:
            merged[change] = change
    return tuple(merged.values())
