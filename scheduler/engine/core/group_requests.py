"""Builds the request of a group for the search of places, within the domains that its running members leave open."""

from __future__ import annotations

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from scheduler.engine.core.group_attempt import PartRequest, SearchRequest
from scheduler.engine.core.group_domains import domain_ids
from scheduler.engine.core.group_members import n_needed, part_of
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.group_topology import ANYWHERE, Topology
from scheduler.engine.model.pod_groups import GroupKey, PodGroup
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.arrays import Amounts, Mask
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.columns import ABSENT


def search_request(
    state: ClusterState, key: GroupKey, group: PodGroup, pending: Iterable[Pod], profile: Profile
) -> SearchRequest:
    """Return the request to place these pending members of the group; none of them is in a part with too few."""
    # They may go to other nodes than their room is on.
    members = [replace(pod, nominated_node_name="") if pod.nominated_node_name else pod for pod in pending]
    running = list(state.groups.placed(key))
    topology = all_levels(group.topology, members[0], state, profile)
    rows, held = _rows(state, topology, running, members)
    parts: dict[str, PartRequest] = {}
    if any(map(part_of, members)):
        parts = _parts(state, key, members, profile)
        members = [pod for pod in members if part_of(pod) in parts]
    return SearchRequest(members, n_needed(state.groups, key), topology, rows, held, parts)


def _parts(
    state: ClusterState, key: GroupKey, members: Sequence[Pod], profile: Profile
) -> dict[str, PartRequest]:
    """Return what the parts with enough members need, by name; a part counts as its first member describes it."""
    firsts = {part_of(pod): pod for pod in reversed(members)}
    parts: dict[str, PartRequest] = {}
    sizes, running_of = Counter(map(part_of, members)), defaultdict[str, list[Pod]](list)
    for pod in state.groups.placed(key):
        running_of[part_of(pod)].append(pod)
    for name, first in firsts.items():
        part = None if first.group is None else first.group.part
        # If some members have a part, each member without one is on its own.
        min_count, levels = (1, ANYWHERE) if part is None else (part.min_count, part.topology)
        running = [] if part is None else running_of[name]
        topology = all_levels(levels, first, state, profile)
        rows, held = _rows(state, topology, running, [pod for pod in members if part_of(pod) == name])
        # Members that finished do not come back; nor do replaced ones while others run.
        n_missing = min_count - len(running)
        n_missing = min(n_missing, sizes[name]) if running else n_missing - state.groups.n_finished(key, name)
        if sizes[name] >= n_missing:
            parts[name] = PartRequest(max(1, n_missing), topology, rows, held)
    return parts


def all_levels(asked: Topology, member: Pod, state: ClusterState, profile: Profile) -> Topology:
    """Return the request with all levels that the machine room's hierarchy implies: the configuration's, or Kueue's."""
    if profile.topology_levels:
        return asked.within(profile.topology_levels)
    return state.hierarchies.implied(asked, member.spec.required_node_affinity.node_selector or ())


def _rows(
    state: ClusterState, topology: Topology, running: Sequence[Pod], pending: Iterable[Pod]
) -> tuple[Mask, Amounts]:
    """Return `rows` and `held` of `SearchRequest`: the domains in which members run, if all have to share one."""
    held, rows = np.zeros(state.nodes.n_rows, dtype=np.int64), state.nodes.alive.copy()
    held[[state.placed[pod.uid].row for pod in running]] = 1
    ids = domain_ids(topology.required, state.nodes).ids
    domains = np.flatnonzero(np.bincount(ids[held > 0])[1:]) + 1
    rows &= np.isin(ids, domains) if len(domains) else ids != ABSENT
    ranked = sorted((rank, state.placed[pod.uid].row) for pod in running if (rank := pod.rank))
    for pod in pending if ranked else ():
        if rank := pod.rank:
            after = bisect(ranked, rank, key=lambda each: each[0])
            for _, row in ranked[max(0, after - 1) : after + 1]:
                held[row] = 2
    return rows, held
