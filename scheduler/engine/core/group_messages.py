"""Messages about a group that is not placed, for conditions, events and logs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from scheduler.engine.core.group_attempt import Outcome, PartRoom, SearchRequest
from scheduler.engine.core.group_members import n_needed
from scheduler.engine.model.group_topology import PART_MIN_COUNT
from scheduler.engine.model.pod_groups import LIMIT_MEMBERS, GroupKey, GroupKind, PodGroup
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.pod_groups import PodGroups

#: Domains that a message names.
_NAMED_DOMAINS: Final = 2

#: Ends the message of a group with members that have rules with fallbacks.
NOT_RELAXED: Final = "Rules with fallbacks are not relaxed for members of groups."

_SAME: Final = "all pods in a single pod group should have the same"

#: Why a group waits if one member has scheduling gates.
GATED: Final = "the pod group waits until none of its pods has scheduling gates"


def waiting_for(groups: PodGroups, key: GroupKey, members: Collection[Pod]) -> str:
    """Return why these pending members are not placed before more come; empty if the group has enough of them."""
    group = groups.get(key)
    problem = next((pod.group.problem for pod in members if pod.group is not None), "")
    problem = problem or whole_group_problem(groups, key)
    if group is not None and group.min_count > LIMIT_MEMBERS:
        problem = f"pod group {key.text} needs {group.min_count} members, expected 1 to {LIMIT_MEMBERS}"
    if group is None or problem or n_needed(groups, key) > len(members):
        return waiting_message(key, group, problem)
    return ""


def whole_group_problem(groups: PodGroups, key: GroupKey) -> str:
    """Return why no member is placed whichever come: one is gated, or they disagree; empty if neither is true."""
    return GATED if groups.is_held_by_gate(key) else groups.disagreement(key)


def waiting_for_part(groups: PodGroups, key: GroupKey, members: Iterable[Pod], request: SearchRequest) -> str:
    """Return why these pending members wait for others of their part; empty if the search has enough of them."""
    if len(request.members) >= request.n_needed:
        return ""
    parts = (pod.group.part for pod in members if pod.group is not None)
    part = next(part for part in parts if part is not None and part.name not in request.parts)
    n_left = part.min_count - groups.n_finished(key, part.name)
    return (
        f"pod group {key.text} waits until {n_left} pods of its part {part.name} exist that may be placed"
        f" ({PART_MIN_COUNT})"
    )


def unlike_members(group: PodGroup, members: Sequence[Pod]) -> str:
    """
    Return the field in which members differ and must not; empty if there is none.

    Source: schedule_one_podgroup.go, validatePodGroup (kubernetes 1.37, which has v1beta1).
    """
    if group.api_version != "v1beta1":
        return ""
    first = members[0]
    for pod in members:
        if pod.scheduler_name != first.scheduler_name:
            return unlike_schedulers(pod.scheduler_name, first.scheduler_name)
        if group.priority not in (None, pod.priority):
            return f"{_SAME} priority as the pod group's priority, got {pod.priority} and {group.priority}"
        if pod.may_preempt != first.may_preempt:
            policies = ("Never", "PreemptLowerPriority")
            return f"{_SAME} preemption policy, got {policies[pod.may_preempt]} and {policies[first.may_preempt]}"
    return ""


def unlike_schedulers(name: str, other: str) -> str:
    """Return that members name different schedulers."""
    return f'{_SAME} .spec.schedulerName set, got: "{name}" and "{other}"'


def waiting_message(key: GroupKey, group: PodGroup | None, problem: str) -> str:
    """Return why a member of an incomplete group waits. The text stays the same while members come."""
    if problem:
        return problem
    if group is None:
        return f"pod group {key.text} waits: there is no PodGroup {key.name} of {key.kind}"
    words = "minMember" if key.kind is GroupKind.COSCHEDULING else "minCount"
    return (
        f"pod group {key.text} waits until {group.min_count} of its pods exist that may be placed ({words})"
    )


def unplaced_message(
    key: GroupKey, n_wanted: int, n_running: int, outcome: Outcome, max_decisions: int
) -> str:
    """Return why the group has no places for `n_wanted` members; `n_running` are on nodes already."""
    running = f" besides {n_running} on nodes" if n_running else ""
    text = f"pod group {key.text} needs {n_wanted} {'place' if n_wanted == 1 else 'places'}{running}"
    if outcome.part_room:
        within = f" in one {outcome.key}" if outcome.key else ""
        text += f"{within}: {_part_room(outcome.part_room)}"
    elif outcome.key:
        text += f" in one {outcome.key}: {_room(outcome.room, n_wanted)}"
    stuck = outcome.stuck
    if stuck is not None:
        where = f" in {stuck.domain}" if stuck.domain else ""
        if not (outcome.key or outcome.part_room) and stuck.n_placed:
            text += f": {stuck.n_placed} found"
        reason = stuck.error.message()
        if outcome.lacks_domain:
            of_part = _level_of(stuck.pod)
            level = outcome.key if outcome.key and not (outcome.room and of_part) else of_part
            reason = f"no node is in a domain of {level} that it may take."
        text += f"; the next, {stuck.pod.name}{where}: {reason}"
    if outcome.is_cut_short:
        text += "" if text.endswith(".") else "."
        text += (
            f" The search ended after {max_decisions} decisions (maxSearchDecisions); there may be places."
        )
    return text


def _level_of(pod: Pod) -> str:
    part = None if pod.group is None else pod.group.part
    return "" if part is None or not part.topology.required else part.topology.required[-1]


def _part_room(rooms: Sequence[PartRoom]) -> str:
    texts = []
    for room in rooms:
        domain = room.domain or "the cluster"
        domains = f"{room.n_domains} {room.key}"
        if room.n_parts == room.n_domains:
            texts.append(f"{domain} has {domains} with room for {room.size}")
        else:
            texts.append(f"{domain} has room for {room.n_parts} parts of {room.size} in {domains}")
    return f"{', '.join(texts)}, the group needs {rooms[0].n_needed}"


def _room(room: Mapping[str, int], n_wanted: int) -> str:
    if not room:
        return "none has room for one"
    roomiest = sorted(room, key=lambda name: (-room[name], name))
    named, others = roomiest[:_NAMED_DOMAINS], roomiest[_NAMED_DOMAINS:]
    texts = [f"{name} has room for {min(room[name], n_wanted)}" for name in named]
    if others:
        others_text = f"{len(others)} others" if len(others) > 1 else "1 other"
        texts.append(f"{others_text} for at most {room[others[0]]}")
    return ", ".join(texts)
