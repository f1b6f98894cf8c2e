"""Groups placed on a copy of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from scheduler.core.group_domains import rows_for
from scheduler.core.group_messages import unplaced_message, waiting_message
from scheduler.core.group_search import SearchRequest, search
from scheduler.core.group_trial import GroupTrial
from scheduler.core.reservations import Reservations
from scheduler.formats.manifests import Manifest
from scheduler.framework.interface import Rng
from scheduler.framework.observer import Unobserved
from scheduler.framework.profile import Profile
from scheduler.model.match_label_keys import Json
from scheduler.model.pod_groups import GroupKey, GroupKind, PodGroup
from scheduler.model.pods import Pod
from scheduler.state.cluster import ClusterState
from scheduler.state.cluster_view import ClusterView

#: Fields of a pod's spec that may name the group, or whose selectors may.
_NAMING: Final = ("schedulingGroup", "affinity", "topologySpreadConstraints")


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
    new_profile: Callable[[ClusterView], Profile],
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
    profile, reservations = new_profile(ClusterView(state)), Reservations(state, {})
    n_decisions = len(members) + profile.max_search_decisions
    trial = GroupTrial(state, reservations, profile, rng, Unobserved(), lambda _: {}, n_decisions)
    rows = rows_for(state, key, group.topology_key)
    outcome = search(SearchRequest(members, n_needed, group.topology_key, rows), trial)
    if outcome.error is not None:
        return GroupPlaces((), outcome.error.message)
    if not outcome.is_placed:
        text = unplaced_message(key, n_needed, n_running, outcome, profile.max_search_decisions)
        return GroupPlaces((), text)
    nodes = [(place.pod, place.node_name) for place in trial.places]
    placed = {pod.uid for pod, _ in nodes}
    surplus = next((outcome.refusals.get(pod.uid) for pod in members if pod.uid not in placed), None)
    return GroupPlaces(nodes, "" if surplus is None else surplus.message())


def copy_of(manifest: Manifest, key: GroupKey, number: int) -> Manifest:
    """
    Return the manifest of another group like this one: its name ends with the number.

    Labels, annotations and selectors whose value is the group's name follow it; all others stay.
    """
    name, spec = f"{key.name}-{number}", dict(manifest.spec)
    spec |= {field: _renamed(spec[field], key.name, name) for field in _NAMING if field in spec}
    return replace(
        manifest,
        name=f"{manifest.name}-{number}",
        labels=cast(Json, _renamed(manifest.labels, key.name, name)),
        annotations=cast(Json, _renamed(manifest.annotations, key.name, name)),
        spec=spec,
    )


def _renamed(value: object, old: str, new: str) -> object:
    """Return the JSON value with `new` for every string that is `old`, keys aside."""
    if isinstance(value, dict):
        return {field: _renamed(one, old, new) for field, one in value.items()}
    if isinstance(value, list):
        return [_renamed(one, old, new) for one in value]
    return new if value == old else value
