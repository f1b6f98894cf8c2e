"""
Lays members out in the order of their ranks, so that neighbours in rank share the lowest domain that they can.

Members that no plugin tells apart exchange the places that the search has found for them. Then on each level as few
pairs of neighbours as possible are in different domains: one less than the domains that are used.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import pairwise

from scheduler.engine.core.group_attempt import Attempt
from scheduler.engine.core.group_domains import domain_ids
from scheduler.engine.model.group_forms import Rank
from scheduler.engine.model.group_topology import Topology
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.node_table import NodeTable

#: The domains of a node from the outside in, the node last.
Path = Sequence[Hashable]


def lay_out_ranks(attempt: Attempt) -> Pieces[None]:
    """Give each kind's places to its members by rank, if the group asks for levels; members with reservations stay."""
    topology = attempt.request.topology
    for kind in attempt.kinds if topology else ():
        places = [
            (index, place)
            for index, place in enumerate(attempt.assumed.places)
            if attempt.kind_of[place.pod.uid] is kind and not (place.is_reserved or place.is_owed)
        ]
        ranked = sorted((place.pod for _, place in places), key=lambda pod: pod.rank)
        if ranked and ranked[-1].rank:
            by_node = paths((place.node_name for _, place in places), topology, attempt.view.nodes)
            places.sort(key=lambda entry: by_node[entry[1].node_name])
            yield from attempt.assumed.exchange([index for index, _ in places], ranked)


def paths(node_names: Iterable[str], topology: Topology, nodes: NodeTable) -> dict[str, tuple[int, ...]]:
    """Return the path of each node by the levels that a group asks for."""
    keys = (*topology.required, *topology.preferred)
    levels = [domain_ids((key,), nodes).ids for key in keys]
    rows = {name: nodes.row_by_name[name] for name in node_names}
    return {name: (*(ids.item(row) for ids in levels), row) for name, row in rows.items()}


def mean_distance(members: Sequence[tuple[Rank, Path]]) -> float | None:
    """
    Return how many steps up members next in rank are from their first common domain, on average.

    0: they share the node; the length of a path: they share no domain. None if fewer than two members have ranks.
    """
    ranked = [
        path for _, path in sorted(((rank, path) for rank, path in members if rank), key=lambda each: each[0])
    ]
    if len(ranked) < 2:
        return None
    return sum(_distance(*pair) for pair in pairwise(ranked)) / (len(ranked) - 1)


def _distance(first: Path, second: Path) -> int:
    n_common = 0
    for one, other in zip(first, second, strict=True):
        if one != other:
            break
        n_common += 1
    return len(first) - n_common


def distance_note(members: Iterable[tuple[Pod, str]], topology: Topology, nodes: NodeTable) -> str:
    """Return a sentence on how far apart neighbours in rank are, empty without levels or ranks. Nodes are by name."""
    placed = [(pod, node_name) for pod, node_name in members if node_name in nodes.row_by_name]
    by_node = paths((node_name for _, node_name in placed), topology, nodes)
    mean = mean_distance([(pod.rank, by_node[node_name]) for pod, node_name in placed])
    if mean is None or not topology:
        return ""
    keys = ("node", *reversed(topology.preferred), *reversed(topology.required))
    meanings = ", ".join(f"{number}: one {key}" for number, key in enumerate(keys))
    return (
        f"neighbours in rank are {mean:.2f} levels apart on average ({meanings}, {len(keys)}: none of these)"
    )
