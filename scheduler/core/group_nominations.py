"""
For which places a group waits: where pods are evicted for it, or where room is held until pods end by themselves.

    not placed --> pods of lower priority can make room --> the members are nominated there, these pods are evicted
         |
         `--> waiting for `HOLD_AFTER_S` --> the members are nominated, in this scheduler alone, where as few pods as
              possible of their own or lower priority have to end; for `HOLD_FOR_S`, then as long for no group

Pods of the members' priority or lower get no room that a nominated member needs. So a large group does not starve
behind small pods that each take what comes free; pods of a higher priority are not held up, and at most one group holds
room at a time. A hold is forgotten by a restart, and is not written to the API server, where it would keep autoscalers
from adding nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from scheduler.core.group_preemption import make_room
from scheduler.core.group_search import SearchRequest
from scheduler.core.group_trial import GroupTrial
from scheduler.framework.profile import Profile
from scheduler.model.pod_groups import GroupKey
from scheduler.model.pods import Pod
from scheduler.state.cluster import ClusterState
from scheduler.state.cluster_view import ClusterView

#: How long a group is unplaced before room is held for it, and for how long that is.
HOLD_AFTER_S: Final = 120.0
HOLD_FOR_S: Final = 300.0

HELD: Final = "Room is held for it meanwhile."
NO_ROOM: Final = "preemption: no pods of lower priority were found whose eviction makes room for all members."


@dataclass(frozen=True, slots=True)
class Nominations:
    """
    The next step for a group without places.

    `nodes`: where its members are nominated from now on, by UID. `shown`: the same as the API server has it; None
    leaves that as it is. `victims`: pods to evict. `note`: ends the message; may be empty.
    """

    nodes: Mapping[str, str] = field(default_factory=dict)
    shown: Mapping[str, str] | None = field(default_factory=dict)
    victims: tuple[Pod, ...] = ()
    n_violations: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Hold:
    key: GroupKey
    end_s: float


class GroupNominations:
    """The nominations of groups. Changes the nominations of the machine's state alone."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._view = ClusterView(state)
        self._unplaced_since_s: dict[GroupKey, float] = {}
        self._hold: _Hold | None = None
        self._rest_until_s = 0.0

    def withdraw(self, members: Iterable[Pod]) -> dict[str, str]:
        """End the nominations of the members, and return them by UID. O(1) where no pod is nominated."""
        if not self._state.nominated:
            return {}
        nodes = {}
        for pod in members:
            if node_name := self._state.nominated.node_of(pod.uid):
                nodes[pod.uid] = node_name
                self._state.nominate(pod, "")
        return nodes

    def withdraw_all(self, key: GroupKey) -> list[Pod]:
        """End the nominations of the group's members, and return these pods, each with its nomination."""
        pods = list(self._state.groups.pending(key))
        before = self.withdraw(pods)
        return [replace(pod, nominated_node_name=before[pod.uid]) for pod in pods if pod.uid in before]

    def nominate(self, members: Iterable[Pod], nodes: Mapping[str, str]) -> None:
        """Nominate the members to these nodes, by UID."""
        for pod in members if nodes else ():
            self._state.nominate(pod, nodes.get(pod.uid, ""))

    def next_step(
        self,
        key: GroupKey,
        request: SearchRequest,
        before: Mapping[str, str],
        profile: Profile,
        new_trial: Callable[[], GroupTrial],
        now_s: float,
    ) -> Nominations:
        """Return the next step for a group that has no places. `before`: its nominations, withdrawn."""
        self._unplaced_since_s.setdefault(key, now_s)
        preemptor = next(filter(None, (plugin.group_preemptor for plugin in profile.post_filters)), None)
        if preemptor is None:
            return Nominations()
        members, note = request.members, ""
        priority = min(pod.priority for pod in members)
        reason = preemptor.group_ineligibility(members, set(before.values()), self._view)
        if reason is None:
            room = make_room(request, priority, self._state, preemptor, new_trial)
            if room is not None:
                return Nominations(room.nodes, room.nodes, room.victims, room.n_violations)
            if (self._view.has_lower(priority) & request.rows).any():
                note = NO_ROOM
        else:
            note = f"preemption: {reason}"
            if before and self._hold is None:
                return Nominations(before, None, note=note)
        if self._hold is None and self._may_hold(key, now_s):
            room = make_room(request, priority + 1, self._state, preemptor, new_trial)
            if room is not None:
                self._hold = _Hold(key, now_s + HOLD_FOR_S)
                return Nominations(room.nodes, note=HELD)
        elif self._hold is not None and self._hold.key == key:
            return Nominations(before, note=HELD)
        return Nominations(note=note)

    def _may_hold(self, key: GroupKey, now_s: float) -> bool:
        return now_s >= max(self._rest_until_s, self._unplaced_since_s[key] + HOLD_AFTER_S)

    def forget(self, key: GroupKey) -> None:
        """Note that the group is placed, or that it no longer waits for places."""
        self._unplaced_since_s.pop(key, None)
        if self._hold is not None and self._hold.key == key:
            self._hold = None

    def next_wake_s(self) -> float | None:
        """Return when the hold ends, None without one."""
        return None if self._hold is None else self._hold.end_s

    def end_hold(self, now_s: float) -> list[Pod]:
        """End the hold if its time is over; return the members that were nominated."""
        if self._hold is None or now_s < self._hold.end_s:
            return []
        key = self._hold.key
        self._hold, self._rest_until_s = None, now_s + HOLD_FOR_S
        # Other groups come first.
        self._unplaced_since_s[key] = now_s
        return self.withdraw_all(key)
