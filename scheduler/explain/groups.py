"""Groups placed on a copy of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scheduler.core.group_domains import rows_for
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


def group_of(pod: Pod, state: ClusterState) -> GroupKey | None:
    """Return the group with which the pod is placed; None for a pod that is placed on its own."""
    return state.groups.key_of(pod)


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
    problem = next((pod.group.problem for pod in members if pod.group is not None), "")
    if problem:
        return GroupPlaces((), problem)
    n_running = sum(1 for _ in state.groups.placed(key))
    group = state.groups.get(key)
    if key.kind is GroupKind.OWN:
        group = PodGroup(key, max(pod.group.min_count for pod in members if pod.group is not None))
    if group is None or (n_needed := max(1, group.min_count - n_running)) > len(members):
        return GroupPlaces((), waiting_message(key, group, ""))
    profile, volumes = new_profile(Snapshot(state)), VolumeBindings(state, {})
    n_decisions = len(members) + profile.max_search_decisions
    trial = GroupTrial(state, volumes, profile, rng, Unobserved(), lambda _: {}, n_decisions)
    rows = rows_for(state, key, group.topology_key)
    outcome = search(members, n_needed, group.topology_key, rows, trial)
    if outcome.error is not None:
        return GroupPlaces((), outcome.error.message)
    if not outcome.is_placed:
        text = unplaced_message(key, n_needed, n_running, outcome, profile.max_search_decisions)
        return GroupPlaces((), text)
    nodes = [(place.pod, place.node_name) for place in trial.places]
    placed = {pod.uid for pod, _ in nodes}
    surplus = next((outcome.refusals.get(pod.uid) for pod in members if pod.uid not in placed), None)
    return GroupPlaces(nodes, "" if surplus is None else surplus.message())
