"""
The hole that a waiting group waits for: the domain of its level with the most room for its members.

Room is counted as if all members were like the one that takes the largest share of the cluster, by its filters on every
node, as the search for the group counts it. The state is not changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from scheduler.engine.core.assumed_places import CycleBrokenError, detached_places
from scheduler.engine.core.group_attempt import Attempt, SearchRequest
from scheduler.engine.core.group_domains import domain_ids
from scheduler.engine.core.group_members import kinds_of, n_needed, part_of, waiting_members
from scheduler.engine.core.group_parts import in_whole_parts
from scheduler.engine.core.group_requests import search_request
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.state.arrays import Amounts, Mask
from scheduler.engine.state.batches import finished
from scheduler.engine.state.cluster import ClusterState
from scheduler.tools.explain.formats.explanation import JsonStruct

#: At most so many members are grouped into kinds, and so many levels are drawn.
_MOST_MEMBERS: Final = 100
_MOST_LEVELS: Final = 8


class Hole(JsonStruct, frozen=True, kw_only=True):
    """
    What a waiting group waits for: `n_needed` places in one `domain` of `level`; both are empty if any nodes will do.

    `member`: the first by name. `n_room`: the most that a domain has; of a group with parts, in whole parts.
    `n_lacking`: missing places; 0 if there is room by this count and only a rule between members prevents it.
    `n_missing`: members that do not exist yet; then no room is counted.
    """

    namespace: str
    name: str
    member: str
    level: str
    domain: str
    n_needed: int
    n_room: int
    n_lacking: int
    n_missing: int


@dataclass(frozen=True, slots=True)
class HoleRows:
    """
    A hole by rows, each of shape (n_rows,).

    `room`: for how many members a row has room. `whole`: the same, of parts that have to share a domain in whole parts,
    on one row of each domain. `mask`: the rows of the hole. `levels`: of the group and its parts, from the outside in.
    """

    hole: Hole
    room: Amounts
    whole: Amounts
    mask: Mask
    levels: tuple[str, ...]


def hole_of(state: ClusterState, key: GroupKey, profile: Profile) -> HoleRows | None:
    """Return the hole of the group, None if no member waits. One decision without scores."""
    group, members = state.groups.get(key), waiting_members(state, key)
    if group is None or not members:
        return None
    needed = n_needed(state.groups, key)
    request = search_request(state, key, group, members, profile)
    n_missing = max(0, needed - len(request.members))
    room = whole = np.zeros(state.nodes.n_rows, dtype=np.int64)
    if not n_missing:
        room, whole = _room(state, key, request, profile)
    n_room, mask, domain = int(whole.sum()), room > 0, ""
    if request.topology.required:
        ids = domain_ids(request.topology.required, state.nodes)
        rooms = ids.per_domain(whole)
        number = int(rooms.argmax())
        n_room = rooms.item(number)
        domain, mask = (ids.value_of(number), ids.ids == number) if n_room else ("", mask & False)
    hole = Hole(
        namespace=key.namespace,
        name=key.name,
        member=min(pod.name for pod in members),
        level=group.topology.required[-1] if group.topology.required else "",
        domain=domain,
        n_needed=needed,
        n_room=n_room,
        n_lacking=0 if n_missing else max(0, needed - n_room),
        n_missing=n_missing,
    )
    return HoleRows(hole, room, whole, mask, _levels(request))


def _levels(request: SearchRequest) -> tuple[str, ...]:
    """Return the levels of the group and of its parts, from the outside in."""
    topologies = (request.topology, *(part.topology for part in request.parts.values()))
    keys = (key for topology in topologies for key in (*topology.required, *topology.preferred))
    return tuple(islice(dict.fromkeys(keys), _MOST_LEVELS))


def _room(
    state: ClusterState, key: GroupKey, request: SearchRequest, profile: Profile
) -> tuple[Amounts, Amounts]:
    """Return for how many members each row has room, and the same in whole parts."""
    assumed = detached_places(state, profile, key.text, _MOST_MEMBERS)
    with state.without_nominations({pod.uid for pod in request.members}):
        kinds = finished(kinds_of(request.members[:_MOST_MEMBERS], assumed.view))
        try:
            attempt = Attempt(request, assumed, kinds)
            room = finished(attempt.room_of(kinds[0], request.rows, len(request.members)))
        except CycleBrokenError:
            room = None
    if room is None:
        room = np.zeros(state.nodes.n_rows, dtype=np.int64)
    part = request.parts.get(kinds[0].part)
    if part is None or not part.topology.required:
        return room, room
    ids = domain_ids(part.topology.required, state.nodes)
    size = sum(part_of(pod) == kinds[0].part for pod in request.members)
    return room, in_whole_parts(room, ids, part.n_needed, size)
