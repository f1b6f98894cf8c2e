"""
Groups that wait for places, and the pods that move so that one of them fits, at most `for_groups` for each.

The scheduler has to have said that a group fits nowhere, and the moves have to have existed for `hold_s`. They are
looked for anew before each eviction, with the pods that end already counted as gone. What is left of the moves for a
group counts again once it is placed or gone.

Before an eviction, the members are nominated to the places that the search found: so the scheduler keeps these from
pods of the members' priority or lower, the evicted pod among them, for as long as `engine.core.group_nominations`
says. Places that are kept in this way are taken for the next group, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.engine.core.group_holes import HoleSearch
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import PodGone, PodSeen, Stimulus
from scheduler.engine.state.batches import Pieces, batches
from scheduler.engine.state.cluster import ClusterState
from scheduler.tools.enforcer.instructions import Move
from scheduler.tools.enforcer.limits import RebalanceLimits

#: A group for which no moves are found is looked at again after this time: a search takes up to half a second.
_SEARCH_AGAIN_S: Final = 60.0


@dataclass(slots=True)
class _Wait:
    """`held_since_s`: when moves were found, None if there are none. `search_at_s`: not before."""

    n_left: int
    held_since_s: float | None = None
    search_at_s: float = 0.0


class WaitingGroups:
    """Follows the pending members of groups, which a state without a queue lacks, and finds moves for the groups."""

    def __init__(self, state: ClusterState, profiles: Mapping[str, Profile], limits: RebalanceLimits) -> None:
        self._state, self._profiles, self._limits = state, profiles, limits
        self._pending: dict[str, Pod] = {}
        self._waits: dict[GroupKey, _Wait] = {}

    def apply(self, stimulus: Stimulus) -> None:
        """Follow members that come, change, and are bound or gone."""
        groups = self._state.groups
        match stimulus:
            case PodSeen(pod) if pod.group is not None and not pod.node_name and not pod.is_terminal:
                self._pending[pod.uid] = pod
                groups.add_pending(pod)
                self._state.nominate(pod, pod.nominated_node_name)
            case PodSeen(Pod(uid=uid)) | PodGone(uid):
                if (known := self._pending.pop(uid, None)) is not None:
                    groups.remove_pending(known)
                    self._state.nominate(known, "")

    def next_move(self, may_move: Callable[[Pod], bool], now_s: float) -> Pieces[Move | None]:
        """Return the first of the moves for one group that are due; None without any. One search at most."""
        waiting = self._waiting()
        self._waits = {key: self._waits.get(key) or _Wait(self._limits.for_groups) for key in waiting}
        for key, wait in self._waits.items():
            if wait.n_left <= 0 or now_s < wait.search_at_s:
                continue
            move = yield from self._move(key, waiting[key], wait.n_left, may_move)
            if move is None:
                wait.held_since_s, wait.search_at_s = None, now_s + _SEARCH_AGAIN_S
                return None
            if wait.held_since_s is None:
                wait.held_since_s = now_s
            if now_s >= wait.held_since_s + self._limits.hold_s:
                return move
            wait.search_at_s = wait.held_since_s + self._limits.hold_s
            return None
        return None

    def note_moved(self, key: GroupKey) -> None:
        """Count a pod that was evicted for the group."""
        if (wait := self._waits.get(key)) is not None:
            wait.n_left -= 1

    def end(self, key: GroupKey) -> None:
        """Look for no more moves for the group while it waits."""
        if (wait := self._waits.get(key)) is not None:
            wait.n_left = 0

    def _waiting(self) -> dict[GroupKey, list[Pod]]:
        """Return the pending members of each group that the scheduler has reported to fit nowhere."""
        waiting: dict[GroupKey, list[Pod]] = {}
        for pod in self._pending.values():
            key = self._state.groups.key_of(pod)
            if key is not None and not pod.gates and not pod.terminating:
                waiting.setdefault(key, []).append(pod)
        return {key: members for key, members in waiting.items() if self._is_told(members)}

    def _is_told(self, members: Sequence[Pod]) -> bool:
        conditions = (pod.scheduled_condition for pod in members)
        names = {pod.scheduler_name for pod in members}
        is_told = any(each is not None and each.reason == "Unschedulable" for each in conditions)
        return is_told and len(names) == 1 and names <= self._profiles.keys()

    def _move(
        self, key: GroupKey, members: Sequence[Pod], n_most: int, may_move: Callable[[Pod], bool]
    ) -> Pieces[Move | None]:
        """Return the first of the moves after which the group fits; None if there are none."""
        movable: list[str] = []
        for few in batches(self._state.placed.items()):
            movable += [uid for uid, placed in few if may_move(placed.pod)]
            yield
        search = HoleSearch(self._state, self._profiles, key, members, n_most)
        moves = yield from search.moves(movable)
        if not moves:
            return None
        nodes = ((pod, search.places.get(pod.uid, "")) for pod in members)
        anew = tuple((pod, name) for pod, name in nodes if name != pod.nominated_node_name)
        why = f"pod group {key.text} waits, and fits after: {'; '.join(move.text for move in moves)}"
        return Move(moves[0].pod, moves[0].node_name, why, key, len(moves) > 1, anew)
