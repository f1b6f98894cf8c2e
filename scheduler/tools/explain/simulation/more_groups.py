"""Other groups like those of the manifests: one beside a group that runs, and how many more the cluster holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Final

from scheduler.engine.framework.interface import Rng
from scheduler.engine.model.pod_groups import GroupKey, GroupKind
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.pod_groups import PodGroups
from scheduler.engine.syntax.plurals import counted
from scheduler.tools.explain.formats.manifests import Manifest
from scheduler.tools.explain.simulation.groups import copy_of
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from scheduler.tools.explain.simulation.replicas import place_lists
from scheduler.tools.explain.simulation.world import World

#: Pods that are placed at most, 2 to 4 s at 5,000 nodes.
_MOST_PODS: Final = 10_000


def beside_running(groups: PodGroups, manifests: Sequence[Manifest]) -> list[Manifest]:
    """Return the manifests, those of groups that run as the manifests of other groups like these."""
    found: list[Manifest] = []
    numbers: dict[GroupKey, int] = {}
    for manifest in manifests:
        key = manifest.group
        if key is None or manifest.is_daemon_set or not _runs(groups, key):
            found.append(manifest)
            continue
        if key not in numbers:
            numbers[key] = next(_free_numbers(groups, key))
        found.append(copy_of(manifest, key, numbers[key]))
    return found


def running_note(groups: PodGroups, key: GroupKey | None, simulated: GroupKey | None) -> tuple[str, ...]:
    """Return a sentence on the group that the pods are in if the manifests' runs, before the pods have places."""
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
            for pod in cluster.create_pods(copy_of(manifest, key, number), n_replicas)
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
        world.create_group(replace(group, key=other, conditions=()))
