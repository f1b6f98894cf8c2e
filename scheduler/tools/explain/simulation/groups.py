"""The next cycle of a group, and other groups like it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, cast

from scheduler.engine.core.group_holes import HoleSearch, moves_text
from scheduler.engine.core.group_members import waiting_members
from scheduler.engine.core.group_order import distance_note
from scheduler.engine.core.group_requests import all_levels
from scheduler.engine.model.instructions import Attempted, Bind, Instruction, PatchCondition, WriteReservation
from scheduler.engine.model.match_label_keys import Json
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import CycleDue, TimePassed
from scheduler.engine.state.batches import finished
from scheduler.tools.explain.formats.manifests import Manifest
from scheduler.tools.explain.simulation.world import GROUP_REPORT_S, World

#: Moves that are proposed for a group: no larger set is searched for completely.
_MOST_MOVES: Final = 2
#: Fields of a pod's spec that may name the group, or whose selectors may.
_NAMING: Final = ("schedulingGroup", "affinity", "topologySpreadConstraints")


@dataclass(frozen=True, slots=True)
class GroupCycle:
    """
    What the next cycle of a group does.

    Attributes:
        nodes: by UID, the nodes of the members that are bound.
        messages: by UID, why the others are not.
        n_victims: pods that are evicted for the group.
        victims: the first ten of them, as namespace/name.
    """

    nodes: Mapping[str, str]
    messages: Mapping[str, str]
    n_victims: int = 0
    victims: tuple[str, ...] = ()


def next_cycle(members: Iterable[Pod], world: World) -> GroupCycle:
    """Show the world the members of one group, and return what their next cycle does; nothing of it is carried out."""
    for pod in members:
        world.create(pod)
    instructions: list[Instruction] = []
    while world.machine.has_work() and not instructions:
        instructions = world.handle(CycleDue())
    if not instructions:
        world.now_s += GROUP_REPORT_S
        instructions = world.handle(TimePassed())
    nodes: dict[str, str] = {}
    messages = {uid: world.message_of(uid) for uid in world.unbound}
    n_victims, victims = 0, tuple[str, ...]()
    for instruction in instructions:
        match instruction:
            case Bind(pod, node_name) | WriteReservation(pod, node_name):
                nodes[pod.uid] = node_name
            case PatchCondition(pod, _, message):
                messages[pod.uid] = message
            case Attempted() if instruction.n_victims:
                n_victims = instruction.n_victims
                victims = tuple("/".join(victim) for victim in instruction.victims)
    return GroupCycle(nodes, messages, n_victims, victims)


def rank_notes(members: Iterable[tuple[Pod, str]], world: World) -> tuple[str, ...]:
    """Return a sentence on how far apart neighbours in rank of one group are; none without levels or ranks."""
    placed = list(members)
    first = placed[0][0] if placed else None
    key = None if first is None else world.state.groups.key_of(first)
    group = None if key is None else world.state.groups.get(key)
    if first is None or group is None:
        return ()
    profile = world.profiles[first.scheduler_name]
    levels = all_levels(group.topology, first, world.state, profile)
    note = distance_note(placed, levels, world.state.nodes)
    return (note,) if note else ()


def move_notes(key: GroupKey, world: World) -> tuple[str, ...]:
    """Return a sentence on the moves of running pods that would make room for the members that wait, if any would."""
    members = waiting_members(world.state, key)
    if not members:
        return ()
    search = HoleSearch(world.state, world.profiles, key, members, _MOST_MOVES)
    text = moves_text(finished(search.moves(list(world.state.placed))))
    return (text,) if text else ()


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
