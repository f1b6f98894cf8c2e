"""
Finds running pods that would be placed clearly better today, one move at a time.

A pod qualifies if, without it on its node, the scheduler's own decision
    - finds a node that holds all of its rules, of which some are relaxed now (`engine.model.fallback`), and its
      node does not;
    - or gives the best node at least `min_gain` points more than the pod's node, which still fits.

 1. A move is returned once its pod has qualified for `hold_s`, checked again at that moment: the new place was found
    first, and held. Nothing reserves it; the scheduler decides anew when the pod has been recreated.
 2. The next move begins `pause_s` after the last one ended at the earliest.
 3. A pod moves only after `cool_down_s` on its node, counted from when this process first saw it there.
 4. A workload's pod never leaves the same node twice within `memory_s`: a pod that came back to where it was stays, so
    that every sequence of moves ends, whatever the scheduler decides. See `Rebalancer._left`.
 5. A pod stays if it has no controller, or claims, whose volumes tie it to nodes; if it is of a group, which is placed
    as one; if it is not movable, terminating, or not of a scheduler that `profiles` knows.
 6. Pods that move for a group that waits (`waiting_groups`) go first, one directly after the other, and the group's
    places are kept for it. Neither 4 nor the gain count for them; their number per group is limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from scheduler.engine.core.decide import ScheduleResult, decide
from scheduler.engine.framework.interface import Rng
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.wire import Owner
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.tools.enforcer.instructions import Move
from scheduler.tools.enforcer.limits import RebalanceLimits
from scheduler.tools.enforcer.waiting_groups import WaitingGroups

#: How often the loop checks. A check asks about this many pods, 0.3 ms each at 5,000 nodes, and about the ones that
#: qualify already.
CHECK_PERIOD_S: Final = 2.0
_PODS_PER_CHECK: Final = 50
_MOST_QUALIFIED: Final = 10


class Rebalancer:
    """Decides which pod moves next. It changes the state only during a decision, from which it removes the pod."""

    def __init__(
        self,
        state: ClusterState,
        profiles: Mapping[str, Profile],
        rng: Rng,
        limits: RebalanceLimits,
        *,
        is_movable: Callable[[Pod], bool],
    ) -> None:
        """
        `profiles`: by schedulerName, built on this state. `rng`: chooses among equally good nodes, of which none is a
        reason to move. `is_movable`: returns whether a pod may be evicted and would then be placed anew.
        """
        self._state, self._view = state, ClusterView(state)
        # All nodes are compared, and no pod is evicted to make room.
        self._profiles = {
            name: replace(profile, percentage_of_nodes_to_score=0, post_filters=())
            for name, profile in profiles.items()
        }
        self._rng, self._limits = rng, limits
        self._is_movable = is_movable
        self.waiting = WaitingGroups(state, self._profiles, limits)
        #: Since when a pod is on its node and since when it qualifies, by UID.
        self._placed_s: dict[str, tuple[str, float]] = {}
        self._qualified_s: dict[str, float] = {}
        #: When pods of a controller in a namespace last left a node for a better one.
        self._left: dict[tuple[str, Owner | None, str], float] = {}
        self._queue: list[str] = []
        self._from_s = 0.0

    def check(self, now_s: float) -> Pieces[Move | None]:
        """
        Return the pod to move now, None if none is. The caller asks again only after `on_result`.

        Each piece is one decision. The caller changes the state only after the last piece.
        """
        self._note_pods(now_s)
        if now_s < self._from_s:
            return None
        if self._limits.for_groups:
            may_move = partial(self._may_move, now_s=now_s)
            if (move := (yield from self.waiting.next_move(may_move, now_s))) is not None:
                return move
        for uid in self._next_pods():
            placed = self._state.placed.get(uid)
            move = None if placed is None else self._move(placed.pod, now_s)
            yield
            if move is None:
                self._qualified_s.pop(uid, None)
            elif now_s - self._qualified_s.setdefault(uid, now_s) >= self._limits.hold_s:
                return move
        return None

    def on_result(self, move: Move, *, evicted: bool, now_s: float) -> None:
        """Take the result of the move; one that was refused is found again later."""
        self._from_s = now_s + self._limits.pause_s
        if evicted and move.group is not None:
            self.waiting.note_moved(move.group)
            self._from_s = now_s if move.others_follow else self._from_s
        self._qualified_s.pop(move.pod.uid, None)
        if evicted:
            self._left[move.pod.namespace, move.pod.owner, move.pod.node_name] = now_s

    def on_announced(self, move: Move, now_s: float) -> None:
        """Take the move of a dry run as made, and with it the other moves for its group, which it names."""
        if move.group is not None:
            self.waiting.end(move.group)
        self.on_result(move, evicted=True, now_s=now_s)

    def _note_pods(self, now_s: float) -> None:
        """Follow which pods came, moved and left. O(pods)."""
        placed_s = self._placed_s
        for uid, placed in self._state.placed.items():
            known = placed_s.get(uid)
            if known is None or known[0] != placed.pod.node_name:
                placed_s[uid] = (placed.pod.node_name, now_s)
        if len(placed_s) > len(self._state.placed):
            self._placed_s = {uid: since for uid, since in placed_s.items() if uid in self._state.placed}
            self._qualified_s = {uid: s for uid, s in self._qualified_s.items() if uid in self._state.placed}
        oldest_s = now_s - self._limits.memory_s
        self._left = {where: at_s for where, at_s in self._left.items() if at_s > oldest_s}

    def _next_pods(self) -> Iterator[str]:
        """Yield pods that qualify already, then some of the others in turn."""
        yield from list(self._qualified_s)
        if len(self._qualified_s) >= _MOST_QUALIFIED:
            return
        if not self._queue:
            self._queue = [uid for uid in self._state.placed if uid not in self._qualified_s]
        for _ in range(min(_PODS_PER_CHECK, len(self._queue))):
            yield self._queue.pop()

    def _move(self, pod: Pod, now_s: float) -> Move | None:
        """Return the move of a pod that qualifies. Cost: a decision."""
        profile = self._profiles.get(pod.scheduler_name)
        if profile is None or (pod.namespace, pod.owner, pod.node_name) in self._left:
            return None
        if not self._may_move(pod, now_s):
            return None
        self._state.remove_pod(pod.uid)
        try:
            return self._better_place(pod, profile)
        finally:
            self._state.upsert_pod(pod)

    def _may_move(self, pod: Pod, now_s: float) -> bool:
        """Return whether a pod may leave its node, if it is better for it or for a group."""
        if pod.owner is None or pod.spec.claim_volumes or pod.group is not None:
            return False
        if pod.terminating or pod.phase != "Running" or not self._is_movable(pod):
            return False
        if now_s - self._placed_s[pod.uid][1] < self._limits.cool_down_s:
            return False
        return self._state.node(pod.node_name) is not None

    def _better_place(self, pod: Pod, profile: Profile) -> Move | None:
        anew = replace(pod, spec=pod.spec.unrelaxed or pod.spec, node_name="", nominated_node_name="")
        decision = decide(anew, self._view, profile, self._rng)
        if not isinstance(decision, ScheduleResult) or decision.node_name == pod.node_name:
            return None
        here = self._state.nodes.row_by_name[pod.node_name]
        totals = decision.scores.totals
        if not decision.scores.feasible.mask.item(here):
            # A rule that only had to hold at scheduling is no reason to move, but one that was relaxed is.
            if not pod.spec.relaxed:
                return None
            names = ", ".join(one.name for one in pod.spec.relaxed)
            return Move(pod, decision.node_name, f"{names} can hold again")
        gain = totals.item(decision.scores.chosen) - totals.item(here)
        if gain < self._limits.min_gain:
            return None
        return Move(pod, decision.node_name, f"its score is {gain} points higher there")
