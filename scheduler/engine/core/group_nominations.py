"""
For which places a group waits: where pods are evicted for it, or where room is held until pods end or move.

    not placed --> pods of lower priority can make room --> the members are nominated there, these pods are evicted
         |
         `--> waiting for `HOLD_AFTER_S` --> the members are nominated, in this scheduler alone, where as few pods as
              possible of their own or lower priority have to end; for `HOLD_FOR_S`, then as long for no group

    nominated by another, such as `enforce --rebalance-for-groups` --> so it stays until the group is placed, or
              `HOLD_FOR_S` have passed since a watch has shown it, or pods are evicted for the group elsewhere

Pods of the members' priority or lower get no room that a nominated member needs. So a large group does not starve
behind small pods that each take what comes free; pods of a higher priority are not held up, and at most one group holds
room of its own accord at a time. Such a hold is forgotten by a restart, and is not written to the API server, where it
would keep autoscalers from adding nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.engine.core.assumed_places import AssumedPlaces
from scheduler.engine.core.group_attempt import SearchRequest
from scheduler.engine.core.group_preemption import NOWHERE, NextStep, find_room, preemptor_of
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView

#: How long a group is unplaced before room is held for it, and how long the room is held.
HOLD_AFTER_S: Final = 120.0
HOLD_FOR_S: Final = 300.0

HELD: Final = "Room is held for it meanwhile."
NO_ROOM: Final = "preemption: no pods of lower priority were found whose eviction makes room for all members."


@dataclass(frozen=True, slots=True)
class _Hold:
    """Room kept for nominated members. `is_ours`: this scheduler nominated them, for one group at a time."""

    is_ours: bool
    end_s: float

    def kept(self, nodes: Mapping[str, str]) -> NextStep:
        """Return the nominations to these nodes, as they were. Ours are not in the API server; those of others are."""
        return NextStep(nodes, {} if self.is_ours else None, note=HELD)


class GroupNominations:
    """Decides where members of groups are nominated, and for how long room is held there."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._view = ClusterView(state)
        self._unplaced_since_s: dict[GroupKey, float] = {}
        self._holds: dict[GroupKey, _Hold] = {}
        self._rest_until_s = 0.0

    def is_shown(self, key: GroupKey) -> bool:
        """Return whether nominations count that another has made."""
        hold = self._holds.get(key)
        return hold is not None and not hold.is_ours

    def next_step(
        self,
        key: GroupKey,
        request: SearchRequest,
        before: Mapping[str, str],
        assumed: AssumedPlaces,
        now_s: float,
    ) -> Pieces[NextStep]:
        """Return the next step for a group without places. `before`: its nominations by UID, which do not count now."""
        self._unplaced_since_s.setdefault(key, now_s)
        preemptor = preemptor_of(assumed.profile)
        hold = self._holds.get(key)
        if hold is not None and not hold.is_ours and not before:
            # The nodes are gone, or taken by pods of higher priority.
            hold = None
        if preemptor is None:
            return NOWHERE if hold is None else hold.kept(before)
        members, note = request.members, ""
        priority = min(map(self._view.state.groups.preemptor_priority, members))
        reason = preemptor.group_ineligibility(members, priority, set(before.values()), self._view)
        if reason is None:
            room = yield from find_room(request, priority, self._state, preemptor, assumed)
            if room is not None:
                if self.is_shown(key):
                    del self._holds[key]
                return room
            if (self._view.has_lower(priority) & request.rows).any():
                note = NO_ROOM
        else:
            note = f"preemption: {reason}"
            if before and (hold is None or not hold.is_ours):
                # Pods end there.
                return NextStep(before, None, note=note)
        if hold is not None:
            return hold.kept(before)
        if self._may_hold(key, now_s):
            room = yield from find_room(request, priority + 1, self._state, preemptor, assumed)
            if room is not None:
                self._holds[key] = hold = _Hold(is_ours=True, end_s=now_s + HOLD_FOR_S)
                return hold.kept(room.nodes)
        return NextStep(note=note)

    def _may_hold(self, key: GroupKey, now_s: float) -> bool:
        if any(hold.is_ours for hold in self._holds.values()):
            return False
        return now_s >= max(self._rest_until_s, self._unplaced_since_s[key] + HOLD_AFTER_S)

    def forget(self, key: GroupKey) -> None:
        """Note that the group is placed, or that it no longer waits for places."""
        self._unplaced_since_s.pop(key, None)
        self._holds.pop(key, None)

    def end_at(self, key: GroupKey, end_s: float) -> None:
        """Let `end_holds` end the nominations of the group's members, which were not made here, at this time."""
        self._holds[key] = _Hold(is_ours=False, end_s=end_s)

    def next_wake_s(self) -> float | None:
        """Return when the next hold ends, None without one."""
        return min((hold.end_s for hold in self._holds.values()), default=None)

    def end_holds(self, now_s: float) -> list[GroupKey]:
        """End the holds whose time is over; return the groups for which room was held."""
        ended = [key for key, hold in self._holds.items() if hold.end_s <= now_s]
        for key in ended:
            if self._holds.pop(key).is_ours:
                # Other groups come first.
                self._unplaced_since_s[key], self._rest_until_s = now_s, now_s + HOLD_FOR_S
        return ended
