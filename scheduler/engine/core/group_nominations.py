"""
For which places a group waits: where pods are evicted for it, or where room is held until pods end or move.

    not placed --> pods of lower priority can make room --> the members are nominated there, these pods are evicted
         |
         `--> waiting for `HOLD_AFTER_S` --> the members are nominated, in this scheduler alone, where as few pods as
              possible of their own or lower priority have to end; for `HOLD_FOR_S`, then as long for no group

    nominated by another, such as `enforce --rebalance-for-groups` --> so it stays until the group is placed, or
              `HOLD_FOR_S` have passed since a watch has shown it, or pods are evicted for the group elsewhere

    moves as a whole --> stand-ins of its members are nominated where these go, in this scheduler alone, until the group
              is placed or `HOLD_FOR_S` have passed; its members leave meanwhile, and are created anew with other UIDs

Pods of the members' priority or lower get no room that a nominated member needs. So a large group does not starve
behind small pods that each take what comes free; pods of a higher priority are not held up, and at most one group holds
room of its own accord at a time. Such a hold is forgotten by a restart, and is not written to the API server, where it
would keep autoscalers from adding nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from scheduler.engine.core.group_attempt import SearchRequest
from scheduler.engine.core.group_preemption import Nominations, make_room, preemptor_of
from scheduler.engine.core.group_trial import GroupTrial
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView

#: How long a group is unplaced before room is held for it, and for how long that is.
HOLD_AFTER_S: Final = 120.0
HOLD_FOR_S: Final = 300.0

#: Ends the UID of a stand-in.
STAND_IN: Final = " moves"

HELD: Final = "Room is held for it meanwhile."
NO_ROOM: Final = "preemption: no pods of lower priority were found whose eviction makes room for all members."


@dataclass(frozen=True, slots=True)
class _Hold:
    key: GroupKey
    end_s: float


@dataclass(frozen=True, slots=True)
class _Move:
    """`stand_ins`: by UID, each with the node of a member."""

    stand_ins: Mapping[str, tuple[Pod, str]]
    end_s: float


_NO_MOVE: Final = _Move({}, 0.0)


class GroupNominations:
    """Decides where members of groups are nominated, and holds room for one group at a time."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._view = ClusterView(state)
        self._unplaced_since_s: dict[GroupKey, float] = {}
        self._hold: _Hold | None = None
        self._rest_until_s = 0.0
        #: By group that another has nominated: until when that counts.
        self._shown_until_s: dict[GroupKey, float] = {}
        #: Groups that have left their nodes and are not placed anew yet.
        self._moves: dict[GroupKey, _Move] = {}

    def begin_move(
        self, key: GroupKey, places: Mapping[str, str], now_s: float
    ) -> Collection[tuple[Pod, str]]:
        """Return the stand-ins of the group's members, each with its node. `places`: the nodes by the members' UIDs."""
        members = (*self._state.groups.pending(key), *self._state.groups.placed(key))
        stand_ins = {
            (uid := f"{pod.uid}{STAND_IN}"): (replace(pod.recreated(), uid=uid), places[pod.uid])
            for pod in members
            if pod.uid in places
        }
        self._moves[key] = _Move(stand_ins, now_s + HOLD_FOR_S)
        return stand_ins.values()

    def stand_ins(self, key: GroupKey) -> Collection[str]:
        """Return the UIDs of the stand-ins of the group's members; empty for a group that does not move."""
        return self._moves.get(key, _NO_MOVE).stand_ins.keys()

    def end_move(self, key: GroupKey) -> list[Pod]:
        """Note that the places are held no more. Return the stand-ins."""
        return [pod for pod, _ in self._moves.pop(key, _NO_MOVE).stand_ins.values()]

    def moving(self) -> Collection[GroupKey]:
        """Return the groups for which places are held while they move."""
        return self._moves.keys()

    def note_shown(self, key: GroupKey, now_s: float) -> None:
        """Note that a watch has shown a new nomination of a member that was not made here."""
        self._shown_until_s[key] = now_s + HOLD_FOR_S

    def is_shown(self, key: GroupKey) -> bool:
        """Return whether nominations count that another has made."""
        return key in self._shown_until_s

    def next_step(
        self,
        key: GroupKey,
        request: SearchRequest,
        before: Mapping[str, str],
        trial: GroupTrial,
        now_s: float,
    ) -> Pieces[Nominations]:
        """
        Return the next step for a group that has no places.

        `before`: its nominations by UID, which do not count meanwhile. `trial`: as the one that has found no places.
        """
        self._unplaced_since_s.setdefault(key, now_s)
        preemptor = preemptor_of(trial.profile)
        is_shown = bool(before) and self.is_shown(key)
        if preemptor is None:
            return Nominations(before, None, note=HELD) if is_shown else Nominations()
        members, note = request.members, ""
        priority = min(map(self._view.preemptor_priority, members))
        reason = preemptor.group_ineligibility(members, priority, set(before.values()), self._view)
        if reason is None:
            room = yield from make_room(request, priority, self._state, preemptor, trial)
            if room is not None:
                self._shown_until_s.pop(key, None)
                return room
            if (self._view.has_lower(priority) & request.rows).any():
                note = NO_ROOM
        else:
            note = f"preemption: {reason}"
            if before and self._hold is None:
                return Nominations(before, None, note=note)
        if is_shown:
            return Nominations(before, None, note=HELD)
        if self._hold is None and self._may_hold(key, now_s):
            room = yield from make_room(request, priority + 1, self._state, preemptor, trial)
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
        self._shown_until_s.pop(key, None)
        if self._hold is not None and self._hold.key == key:
            self._hold = None

    def next_wake_s(self) -> float | None:
        """Return when the next hold ends, None without one. O(groups that another has nominated, or that move)."""
        ends_s = [*self._shown_until_s.values(), *([] if self._hold is None else [self._hold.end_s])]
        ends_s += [move.end_s for move in self._moves.values()]
        return min(ends_s, default=None)

    def end_holds(self, now_s: float) -> list[GroupKey]:
        """End the holds whose time is over; return the groups for which room was held, for `end_move` too."""
        ended = [key for key, end_s in self._shown_until_s.items() if end_s <= now_s]
        for key in ended:
            del self._shown_until_s[key]
        if self._hold is not None and now_s >= self._hold.end_s:
            key = self._hold.key
            self._hold, self._rest_until_s = None, now_s + HOLD_FOR_S
            # Other groups come first.
            self._unplaced_since_s[key] = now_s
            ended.append(key)
        return [*ended, *(key for key, move in self._moves.items() if move.end_s <= now_s)]
