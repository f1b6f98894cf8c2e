"""Groups that their members' labels or annotations name, placed on a copy of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scheduler.core.group_messages import unplaced_message, waiting_message
from scheduler.core.group_search import search
from scheduler.core.group_trial import GroupTrial
from scheduler.core.volume_binding import VolumeBindings
from scheduler.framework.interface import Rng
from scheduler.framework.observer import Unobserved
from scheduler.framework.profile import Profile
from scheduler.model.pod_groups import GroupKey, GroupKind, PodGroup
from scheduler.model.pods import Pod
from scheduler.state.cluster import ClusterState
from scheduler.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class GroupPlaces:
    """Where the members of a group go, and why it, or the members without a place, cannot; empty if all can."""

    nodes: Sequence[tuple[Pod, str]]
    message: str


def group_of(pod: Pod) -> GroupKey | None:
    """Return the pod's group if its members say themselves how many they are; None otherwise."""
    if pod.group is None or pod.group.key.kind is not GroupKind.OWN or pod.group.problem:
        return None
    return pod.group.key


def place_group(
    key: GroupKey,
    members: Sequence[Pod],
    state: ClusterState,
    new_profile: Callable[[Snapshot], Profile],
    rng: Rng,
) -> GroupPlaces:
    """
    Place the members in the state, which then has them; none if fewer have places than the group needs.

    Members that the state has on nodes count. Cost: one decision per member, or as many as the search may take.
    """
    n_running = sum(1 for _ in state.groups.placed(key))
    min_count = max(pod.group.min_count for pod in members if pod.group is not None)
    n_needed = max(1, min_count - n_running)
    if n_needed > len(members):
        return GroupPlaces((), waiting_message(key, PodGroup(key, min_count), ""))
    profile, volumes = new_profile(Snapshot(state)), VolumeBindings(state, {})
    n_decisions = len(members) + profile.max_search_decisions
    trial = GroupTrial(state, volumes, profile, rng, Unobserved(), lambda _: {}, n_decisions)
    outcome = search(members, n_needed, "", state.nodes.alive.copy(), trial)
    if outcome.error is not None:
        return GroupPlaces((), outcome.error.message)
    if not outcome.is_placed:
        text = unplaced_message(key, n_needed, n_running, outcome, profile.max_search_decisions)
        return GroupPlaces((), text)
    nodes = [(place.pod, place.node_name) for place in trial.places]
    placed = {pod.uid for pod, _ in nodes}
    surplus = next((outcome.refusals.get(pod.uid) for pod in members if pod.uid not in placed), None)
    return GroupPlaces(nodes, "" if surplus is None else surplus.message())
