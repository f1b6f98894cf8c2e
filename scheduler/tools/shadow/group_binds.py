"""
Compares where another scheduler has placed the members of a group with where we would, as one decision.

Its placement is as good as ours if it is ours, up to members between which no plugin tells a difference; or if it has
enough members in as few domains of each level, and there is an order in which each member's node is one of the best
within the domain that all share. Which of several such domains it took does not matter.

It comes in pieces, of a decision each. The members are not in the state before its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from scheduler.engine.core.assumed_places import (
    AssumedPlaces,
    CycleBrokenError,
    OutOfDecisionsError,
    detached_places,
)
from scheduler.engine.core.decide import ScheduleResult
from scheduler.engine.core.group_attempt import SearchRequest
from scheduler.engine.core.group_domains import domain_ids
from scheduler.engine.core.group_members import part_of
from scheduler.engine.core.group_requests import search_request
from scheduler.engine.core.group_search import search
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.arrays import Mask
from scheduler.engine.state.batches import Pieces, finished
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.tools.shadow.differences import count_best, difference_of
from scheduler.tools.shadow.report import Cause, Difference

#: Decisions on each member, beyond those of the search.
_MOST_TRIES: Final = 6


@dataclass(slots=True)
class GroupBinds:
    """Members of one group that were bound shortly after each other. `members`: the pods before their bind."""

    key: GroupKey
    last_s: float = 0.0
    members: dict[str, Pod] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)

    def add(self, pod: Pod, node_name: str, now_s: float) -> None:
        """Add a member that is bound to the node."""
        self.members[pod.uid], self.nodes[pod.uid], self.last_s = pod, node_name, now_s

    def difference(self, member: Pod, cause: Cause, here: str, text: str) -> Difference:
        """Return what is wrong with the node of the member."""
        text = f"pod group {self.key.text}: {text}"
        return difference_of(member, cause, self.nodes[member.uid], here, text)


class GroupComparison:
    """Runs the search for groups on a state, and then restores the state."""

    def __init__(self, state: ClusterState, profile: Profile) -> None:
        self._state, self._profile = state, profile

    def fits(self, key: GroupKey, members: Mapping[str, Pod]) -> Pieces[bool]:
        """Return whether the search finds places for the group with these pending members."""
        with self._pending(members):
            return bool((yield from self._places(key, list(members.values()))))

    def worse(self, binds: GroupBinds) -> Pieces[Difference | None]:
        """Return for one member why the placement is not as good as ours; None if it is."""
        with self._pending(binds.members):
            return (yield from self._worse(binds))

    @contextmanager
    def _pending(self, members: Mapping[str, Pod]) -> Iterator[None]:
        """Let these pods count as pending members, and on no node, within the block."""
        state, bound = self._state, [self._state.placed.get(uid) for uid in members]
        pods = [placed.pod for placed in bound if placed is not None]
        for pod in members.values():
            state.groups.add_pending(pod)
            state.remove_pod(pod.uid)
        try:
            with state.without_nominations(members.keys()):
                yield
        finally:
            for pod in pods:
                state.upsert_pod(pod)
            for pod in members.values():
                state.groups.remove_pending(pod)

    def _request(self, key: GroupKey, members: Sequence[Pod]) -> SearchRequest | None:
        group = self._state.groups.get(key)
        return None if group is None else search_request(self._state, key, group, members, self._profile)

    def _assumed(self, key: GroupKey, n_members: int) -> AssumedPlaces:
        most = _MOST_TRIES * n_members + self._profile.max_search_decisions
        return detached_places(self._state, self._profile, key.text, most)

    def _places(self, key: GroupKey, members: Sequence[Pod]) -> Pieces[dict[str, str]]:
        """Return the nodes that the search finds, by UID; none if the group has no places."""
        request = self._request(key, members)
        if request is None:
            return {}
        assumed = self._assumed(key, len(members))
        yield from search(request, assumed)
        places = {place.pod.uid: place.node_name for place in assumed.places}
        yield from assumed.take_all_back()
        return places

    def _worse(self, binds: GroupBinds) -> Pieces[Difference | None]:
        members = list(binds.members.values())
        request, first = self._request(binds.key, members), members[0]
        if request is None:
            return None
        ours = yield from self._places(binds.key, members)
        here = ours.get(first.uid, "")
        if len(request.members) < request.n_needed:
            text = f"it has {len(members)} places, the group needs {request.n_needed}"
            return binds.difference(first, Cause.RULE, here, text)
        if _by_kind(members, ours) == _by_kind(members, binds.nodes):
            return None
        for name, topology in (
            ("", request.topology),
            *((name, part.topology) for name, part in request.parts.items()),
        ):
            uids = [pod.uid for pod in members if not name or part_of(pod) == name]
            for keys, is_required in (
                (topology.required, True),
                (topology.required + topology.preferred, False),
            ):
                n_there, n_here = (self._n_domains(keys, nodes, uids) for nodes in (binds.nodes, ours))
                if n_there > (1 if is_required else max(1, n_here)):
                    text = f"it is in {n_there} domains of {keys[-1]}, here in {n_here}"
                    cause = Cause.RULE if is_required else Cause.SCORE
                    return binds.difference(first, cause, here, text)
        return (yield from self._in_turn(binds, request, here))

    def _n_domains(self, keys: Sequence[str], nodes: Mapping[str, str], uids: Sequence[str]) -> int:
        """Return in how many domains of these keys the members are; 0 without keys."""
        row_by_name = self._state.nodes.row_by_name
        rows = [row_by_name[nodes[uid]] for uid in uids if nodes.get(uid) in row_by_name]
        return len(set(domain_ids(keys, self._state.nodes).ids[rows].tolist())) if keys else 0

    def _shared_rows(self, binds: GroupBinds, request: SearchRequest) -> Mask:
        """Return the rows that may be chosen in the innermost domain that all members share."""
        nodes, keys = self._state.nodes, request.topology.required + request.topology.preferred
        taken = [nodes.row_by_name[name] for name in binds.nodes.values() if name in nodes.row_by_name]
        for n_keys in range(len(keys), 0, -1):
            ids = domain_ids(keys[:n_keys], nodes).ids
            if len(set(ids[taken].tolist())) == 1:
                shared: Mask = request.rows & (ids == ids.item(taken[0]))
                return shared
        return request.rows

    def _in_turn(self, binds: GroupBinds, request: SearchRequest, here: str) -> Pieces[Difference | None]:
        """Place each member once its node is one of the best. Return why that failed; None if it did not."""
        rows, assumed = self._shared_rows(binds, request), self._assumed(binds.key, len(request.members))
        left, behind = list(request.members), None
        try:
            while left:
                pod = next(
                    (pod for pod in left if self._place(assumed, pod, binds.nodes[pod.uid], rows)), None
                )
                if pod is None:
                    # A lack of points is reported only if no rule is broken.
                    behind = behind or left[0]
                    pod = next(
                        (pod for pod in left if self._place(assumed, pod, binds.nodes[pod.uid], None)), None
                    )
                if pod is None:
                    text = f"{binds.nodes[left[0].uid]} is refused here beside the other members"
                    return binds.difference(left[0], Cause.RULE, here, text)
                left.remove(pod)
                yield
        except (OutOfDecisionsError, CycleBrokenError):
            return None
        finally:
            finished(assumed.take_all_back())
        if behind is None:
            return None
        text = f"no order of the members makes {binds.nodes[behind.uid]} one of the best"
        return binds.difference(behind, Cause.SCORE, here, text)

    def _place(self, assumed: AssumedPlaces, pod: Pod, node: str, rows: Mask | None) -> bool:
        """Place the member on the node if it fits there; with `rows`, only if none of them has more points."""
        row = self._state.nodes.row_by_name.get(node)
        if row is None:
            return False
        if rows is not None:
            decision = finished(assumed.deciding(pod, rows))
            if not count_best(decision, self._state, node):
                return False
        only = ClusterView(self._state).alive & False
        only[row] = True
        decision = finished(assumed.deciding(pod, only))
        if isinstance(decision, ScheduleResult):
            assumed.place(pod, decision, is_owed=False)
            return True
        return False


def _by_kind(members: Sequence[Pod], nodes: Mapping[str, str]) -> Counter[tuple[object, ...]]:
    """Return how many members of a kind are on each node."""
    return Counter(
        (pod.spec, frozenset(pod.labels.items()), part_of(pod), nodes.get(pod.uid, "")) for pod in members
    )
