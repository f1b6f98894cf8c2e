"""
Keeps the differences, and proves races: differences that an order of changes of about the same time explains.

The orders of all proven races agree with each other: a difference that only a contradicting order explains is not
proven.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.syntax.words import counted
from scheduler.tools.shadow.differences import as_race, with_note
from scheduler.tools.shadow.orders import ChangeKey, ProvenOrders
from scheduler.tools.shadow.recent_changes import MAX_RECENT, AppliedEvent, RecentChanges
from scheduler.tools.shadow.report import Cause, Difference

_MAX_DIFFERENCES: Final = 1_000
#: Pods with differences for which later changes are tried together with earlier ones: up to 110 decisions each.
_FEW: Final = 4
#: The largest group for which orders are tried: up to 110 searches of 20 ms.
_MOST_MEMBERS: Final = 100


@dataclass(frozen=True, slots=True)
class Unsettled:
    """
    A difference that a later change may explain. `agrees`: whether we would now decide as the other scheduler did.

    `uids`: of the pod, and of the members that were decided with it. `is_bind`: False for a decision that left the pod
    pending.
    """

    uids: Collection[str]
    difference: Difference
    agrees: Callable[[], bool]
    at_s: float
    is_bind: bool = True

    @property
    def uid(self) -> str:
        """Return the UID of the pod."""
        return next(iter(self.uids))

    @property
    def decision(self) -> ChangeKey:
        """Return the key of the decision in an order of changes: that of its bind."""
        return ("Pod", self.uid) if self.is_bind else ("Pending", f"{self.uid} {self.at_s}")


class Races:
    """Keeps the differences of one comparison. It tries other orders on the state, and then restores the state."""

    def __init__(self, state: ClusterState, recent: RecentChanges, *, race_s: float) -> None:
        """`race_s`: the time within which the other scheduler may have seen changes in another order."""
        self._state, self._recent, self._race_s = state, recent, race_s
        self._orders = ProvenOrders()
        #: Both by the number of the difference, in the order in which they were found.
        self._unsettled: dict[int, Unsettled] = {}
        #: At most `_MAX_DIFFERENCES`. Races are dropped first.
        self.kept: dict[int, Difference] = {}
        #: How many differences there are, also those that are not kept.
        self.causes: Counter[Cause] = Counter()

    def interrupt(self) -> None:
        """Decide no difference again: what follows happened in another order."""
        self._unsettled.clear()

    def explain(self, unsettled: Unsettled) -> None:
        """Keep the difference, as a race if another order of recent changes explains it; later ones are tried too."""
        difference, at_s, number = unsettled.difference, unsettled.at_s, self.causes.total()
        if (n_members := len(unsettled.uids)) > _MOST_MEMBERS:
            note = f"no other order is tried for a group of {n_members}"
            self._note(number, with_note(difference, note))
            return
        other = "the end of its nomination" if unsettled.agrees() else self._proven_without(unsettled, at_s)
        if other:
            self._note(number, as_race(difference, other))
            return
        if n_changes := len(self._recent.keys(at_s, but=unsettled.uids)):
            note = f"no order of the {counted(n_changes, 'change')} shortly before explains it"
            difference = with_note(difference, note)
        self._note(number, difference)
        if len(self._unsettled) < MAX_RECENT:
            self._unsettled[number] = unsettled

    def settle(self, latest: AppliedEvent, now_s: float) -> None:
        """Decide again about recent differences with the latest change, which the other scheduler may have known."""
        for number, unsettled in list(self._unsettled.items()):
            if now_s - unsettled.at_s > self._race_s:
                del self._unsettled[number]
            elif latest.key[1] not in unsettled.uids and self._is_explained(unsettled, now_s):
                del self._unsettled[number]
                self.causes[unsettled.difference.cause] -= 1
                self._note(number, as_race(unsettled.difference, latest.what))

    def _proven_without(self, unsettled: Unsettled, now_s: float) -> str:
        """
        Return the last of the recent changes that the other scheduler cannot have known, if one order explains it.

        The order must not contradict the orders of other races. Return '' if no order explains the difference.
        """
        known = self._recent.keys(now_s, but=unsettled.uids)
        for left_out in self._recent.explains(unsettled.agrees, now_s, but=unsettled.uids):
            after = {change.key for change in left_out}
            if self._orders.prove(unsettled.decision, [key for key in known if key not in after], after):
                return left_out[-1].what
        return ""

    def _is_explained(self, unsettled: Unsettled, now_s: float) -> bool:
        """Return whether the pod would be decided now as the other scheduler did, if it were not bound yet."""
        placed = self._state.placed.get(unsettled.uid)
        bound = None if placed is None else placed.pod
        self._state.remove_pod(unsettled.uid)
        known = self._recent.keys(now_s, but=unsettled.uids)
        is_explained = unsettled.agrees() and self._orders.prove(unsettled.decision, known, ())
        if not is_explained and sum(len(each.uids) for each in self._unsettled.values()) <= _FEW:
            is_explained = bool(self._proven_without(unsettled, now_s))
        if bound is not None:
            self._state.upsert_pod(bound)
        return is_explained

    def _note(self, number: int, difference: Difference) -> None:
        """Count the difference, and keep it under its number. If there is no room, drop a race."""
        self.causes[difference.cause] += 1
        if number not in self.kept and len(self.kept) >= _MAX_DIFFERENCES:
            races = (each for each, kept in self.kept.items() if kept.cause is Cause.RACE)
            dropped = next(races, None)
            if dropped is None or difference.cause is Cause.RACE:
                return
            del self.kept[dropped]
        self.kept[number] = difference
