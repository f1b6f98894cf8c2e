"""The next cycle of a group; other groups like it: one beside a group that runs, and how many more fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Final, cast

from scheduler.engine.core.group_holes import HoleSearch, moves_text
from scheduler.engine.core.group_members import waiting_members
from scheduler.engine.core.group_order import distance_note
from scheduler.engine.core.group_requests import all_levels
from scheduler.engine.framework.interface import Rng
from scheduler.engine.model.instructions import Attempted, Bind, Instruction, PatchCondition, WriteReservation
from scheduler.engine.model.pod_groups import GroupKey, GroupKind
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import CycleDue, PodGroupSeen, PodSeen, TimePassed
from scheduler.engine.state.batches import finished
from scheduler.engine.state.pod_groups import PodGroups
from scheduler.engine.syntax.match_label_keys import Json
from scheduler.engine.syntax.words import counted
from scheduler.tools.explain.formats.manifests import Manifest
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from scheduler.tools.explain.simulation.replicas import place_lists
from scheduler.tools.explain.simulation.world import GROUP_REPORT_S, World

#: Moves that are proposed for a group: no larger set is searched for completely.
_MOST_MOVES: Final = 2
#: Pods of further groups that are placed at most, in 2 to 4 s at 5,000 nodes.
_MOST_PODS: Final = 10_000
#: Fields of a pod's spec that may name the group, or whose selectors may.
_NAMING: Final = ("schedulingGroup", "affinity", "topologySpreadConstraints")


def next_cycle(
    members: Iterable[Pod], world: World
) -> tuple[dict[str, str], dict[str, str], Attempted | None]:
    """
    Show the world the members of one group, and return what their next cycle does; nothing of it is carried out.

    Return by UID the nodes of its members, and why others have none; and the attempt that evicts pods, if one does.
    """
    for pod in members:
        world.process(PodSeen(pod))
    instructions: list[Instruction] = []
    while world.machine.has_work() and not instructions:
        instructions = world.handle(CycleDue())
    if not instructions:
        world.now_s += GROUP_REPORT_S
        instructions = world.handle(TimePassed())
    nodes: dict[str, str] = {}
    messages = {uid: world.message_of(uid) for uid in world.unbound}
    evicting: Attempted | None = None
    for instruction in instructions:
        match instruction:
            case Bind(pod, node_name) | WriteReservation(pod, node_name):
                nodes[pod.uid] = node_name
            case PatchCondition(pod, _, message):
                messages[pod.uid] = message
            case Attempted() if instruction.n_victims:
                evicting = instruction
    return nodes, messages, evicting


def rank_notes(placed: Sequence[tuple[Pod, str]], world: World) -> tuple[str, ...]:
    """Return a sentence on how far apart neighbours in rank of one group are; none without levels or ranks."""
    key = world.state.groups.key_of(placed[0][0]) if placed else None
    group = None if key is None else world.state.groups.get(key)
    if group is None:
        return ()
    first = placed[0][0]
    levels = all_levels(group.topology, first, world.state, world.profiles[first.scheduler_name])
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


def beside_running(groups: PodGroups, manifests: Sequence[Manifest]) -> list[Manifest]:
    """Return the manifests; if their group runs already, as manifests of another group like it."""
    found: list[Manifest] = []
    numbers: dict[GroupKey, int] = {}
    for manifest in manifests:
        key = manifest.group
        if key is not None and not manifest.is_daemon_set and _runs(groups, key):
            if key not in numbers:
                numbers[key] = next(_free_numbers(groups, key))
            manifest = _copy_of(manifest, key, numbers[key])
        found.append(manifest)
    return found


def running_note(groups: PodGroups, key: GroupKey | None, simulated: GroupKey | None) -> tuple[str, ...]:
    """Return a sentence on the group that the pods join if that of the manifests runs; call it before they run too."""
    if key is None or simulated is None or not _runs(groups, key):
        return ()
    runs = f"pod group {key.text} runs already, with {counted(groups.n_placed(key), 'member')}"
    if simulated == key:
        return (f"{runs}: the replicas join it",)
    return (f"{runs}: the answer is about another group like it, {simulated.text}",)


def _runs(groups: PodGroups, key: GroupKey) -> bool:
    return any(groups.key_of(member) == key for member in groups.placed(key))


def _free_numbers(groups: PodGroups, key: GroupKey) -> Iterator[int]:
    """Yield the numbers, from 2 on, of copies whose names no group has that is known or runs."""
    for number in count(2):
        copied = key._replace(name=f"{key.name}-{number}")
        if groups.get(copied) is None and not groups.n_placed(copied):
            yield number


def count_more(
    cluster: LoadedCluster, key: GroupKey, members: Sequence[tuple[Manifest, int]], rng: Rng
) -> tuple[int, str]:
    """
    Place groups like this one in a copy of the cluster until one does not fit, or only with evictions.

    `members`: the manifests, and how many pods of each the group has. Return how many fit, and a sentence on that.
    """
    cluster = cluster.copy()
    world = cluster.world(rng, (manifest.scheduler_name for manifest, _ in members))
    placed = place_lists(_copies(cluster, key, members, world), world, evicts=False)
    n_groups, why = placed.n_lists, placed.message
    if placed.victims:
        why = f"{counted(len(placed.victims), 'pod')} of lower priority would be evicted for it"
    fit = f"{counted(n_groups, 'more group')} like {key.text} {'fits' if n_groups == 1 else 'fit'}"
    return n_groups, f"{fit}; the next does not: {why}" if why else f"at least {fit}"


def _copies(
    cluster: LoadedCluster, key: GroupKey, members: Sequence[tuple[Manifest, int]], world: World
) -> Iterator[list[Pod]]:
    """Yield the pods of group after group like this one, each once the one before has places."""
    n_pods, numbers = 0, _free_numbers(cluster.state.groups, key)
    while n_pods < _MOST_PODS:
        number = next(numbers)
        pods = [
            pod
            for manifest, n_replicas in members
            for pod in cluster.create_pods(_copy_of(manifest, key, number), n_replicas)
        ]
        create_group(world, key, pods[0])
        yield pods
        n_pods += len(pods)


def create_group(world: World, key: GroupKey | None, member: Pod) -> None:
    """Add a PodGroup for the member like the one of this group, if that has one."""
    if key is None or member.group is None:
        return
    other, group = member.group.key, world.state.groups.get(key)
    if other.kind is not GroupKind.OWN and other != key and group is not None:
        world.process(PodGroupSeen(replace(group, key=other, conditions=())))


def _copy_of(manifest: Manifest, key: GroupKey, number: int) -> Manifest:
    """Return the manifest of another group, whose name replaces this one's in labels, annotations and selectors."""
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
