"""How many more groups like one of the manifests' the cluster holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from scheduler.assembly.loaded_cluster import LoadedCluster
from scheduler.explain.groups import copy_of, place_group
from scheduler.formats.manifests import Manifest
from scheduler.framework.interface import Rng
from scheduler.model.pod_groups import GroupKey, GroupKind
from scheduler.model.pods import Pod
from scheduler.syntax.plurals import counted

#: Pods that are placed at most, 2 to 4 s at 5,000 nodes.
_MOST_PODS: Final = 10_000


class MoreGroups(NamedTuple):
    """How many more groups fit, and why the next one does not; empty if as many were placed as are tried."""

    n_groups: int
    why: str

    def text(self, key: GroupKey) -> str:
        """Return the answer as a sentence."""
        groups = counted(self.n_groups, "more group")
        verb = "fits" if self.n_groups == 1 else "fit"
        if not self.why:
            return f"at least {groups} like {key.text} {verb}"
        return f"{groups} like {key.text} {verb}; the next does not: {self.why}"


def count_more(
    cluster: LoadedCluster, key: GroupKey, members: Sequence[tuple[Manifest, int]], rng: Rng
) -> MoreGroups:
    """
    Place groups like this one until one does not fit, and take them off again.

    `members`: the manifests, and how many pods of each the group has. A claim of a copy keeps what it reserved.
    """
    n_groups, n_pods, why = 0, 0, ""
    placed: list[str] = []
    while n_pods < _MOST_PODS:
        pods: list[Pod] = []
        for manifest, n_replicas in members:
            pods += cluster.create_pods(copy_of(manifest, key, n_groups + 2), n_replicas)
        profile, _ = cluster.profile_for(pods[0])
        other = _create_group(cluster, key, pods[0])
        found = place_group(other, pods, cluster.state, partial(cluster.build_profile, profile), rng)
        cluster.state.groups.remove(other)
        placed += [pod.uid for pod, _ in found.nodes]
        if len(found.nodes) < len(pods):
            why = found.message
            break
        n_groups += 1
        n_pods += len(pods)
    for uid in placed:
        cluster.state.forget(uid)
    return MoreGroups(n_groups, why)


def _create_group(cluster: LoadedCluster, key: GroupKey, member: Pod) -> GroupKey:
    """Add a PodGroup for the member like the one of this group, if that has one. Return the member's group."""
    groups = cluster.state.groups
    other = key if member.group is None else member.group.key
    if other.kind is not GroupKind.OWN and other != key and (group := groups.get(key)) is not None:
        groups.upsert(replace(group, key=other, conditions=()))
    return other
