"""
Pods that are decided alike, one after the other: what the last of them left behind is brought up to date, and read.

Between two pods of a deployment one node has changed. Filters and scorers of the last decision are asked again with the
rows that moved, and totals are added up there alone; only a plugin whose other rows moved too is added up everywhere.
What is decided is what `decide` says, and the draw is the same. kube-scheduler 1.36 has the same idea with other
means (OpportunisticBatching, KEP-5598): it remembers the order of the nodes, where no pod affinity or spread is asked.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.decide import Decision, Placement, decided, placed
from scheduler.core.standings import Chance, Scored, Standings, weighted_scores
from scheduler.framework.interface import LEAST, PodFilter
from scheduler.framework.observer import Observer
from scheduler.framework.profile import Profile
from scheduler.framework.verdicts import Code
from scheduler.model.pods import Owner, Pod, PodSpec
from scheduler.state.arrays import Mask, Scores
from scheduler.state.selection import LabelSet
from scheduler.state.snapshot import Snapshot

#: Classes of pods whose last decision is kept for as long as the epoch lasts, at 5,000 nodes 50 KB each.
MAX_KEPT: Final = 32

#: Rows that moved since, past which all is decided anew.
_FEW_ROWS: Final = 16


class _Class(NamedTuple):
    """All that a decision reads of a pod."""

    spec: PodSpec
    label_set: LabelSet
    owner: Owner | None
    scheduler_name: str


class Repeating:
    """Decides as `core.decide` does, in a third of the time where a pod like it was decided shortly before."""

    def __init__(self, snapshot: Snapshot, chance: Chance, observer: Observer) -> None:
        """Nothing was decided yet."""
        self.snapshot = snapshot
        self._chance = chance
        self._observer = observer
        #: Decided longest ago first, all in the same epoch: none of those before is of use, and they hold counts.
        self._kept: OrderedDict[_Class, _Kept] = OrderedDict()
        self._epoch = snapshot.epoch

    def __len__(self) -> int:
        return len(self._kept)

    def decide(self, pod: Pod, profile: Profile) -> Decision:
        """The best node for the pod."""
        watched = self._observer.begin(profile)
        if _is_alone(pod, profile) or self.snapshot.nodes.may_wrap:
            decision = decided(pod, self.snapshot, watched, self._chance, self._observer)
        else:
            # Plugins that are wrapped to be timed are not to be asked again by themselves.
            decision = self._like_others(pod, watched, keeps=watched is profile)
        self._observer.end()
        return decision

    def _like_others(self, pod: Pod, profile: Profile, *, keeps: bool) -> Decision:
        snapshot = self.snapshot
        if self._epoch != snapshot.epoch:
            self._kept.clear()
            self._epoch = snapshot.epoch
        like = _Class(pod.spec, snapshot.label_set(pod), pod.owner, profile.scheduler_name)
        kept = self._kept.pop(like, None)
        if kept is not None:
            again = kept.again(snapshot, self._chance, self._observer)
            if again is not None:
                self._kept[like] = kept
                return again
        decision = decided(pod, snapshot, profile, self._chance, self._observer)
        # Questions that were not asked for long may have been forgotten for the sake of this pod's.
        is_same = self._epoch == snapshot.epoch
        if keeps and is_same and isinstance(decision, Placement) and decision.standings.lasts:
            self._kept[like] = _Kept(decision.standings, _stamp(snapshot))
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return decision


def _is_alone(pod: Pod, profile: Profile) -> bool:
    """Whether something counts in its decision that is not of its class, or that is drawn."""
    is_sampled = 0 < profile.percentage_of_nodes_to_score < 100
    return is_sampled or bool(pod.nominated_node_name or pod.node_name) or pod.resize is not None


class _Stamp(NamedTuple):
    """When in an epoch a decision was made: the number of rows, and the version of those that moved."""

    n_rows: int
    version: int


def _stamp(snapshot: Snapshot) -> _Stamp:
    return _Stamp(snapshot.n_rows, snapshot.nodes.moved.version)


class _Kept:
    """The last decision about a class of pods, its arrays and those who gave them."""

    def __init__(self, standings: Standings, stamp: _Stamp) -> None:
        self._stamp = stamp
        self._filtered = standings.filtered
        self._feasible = standings.feasible
        self._scores = list(standings.scores)
        #: Whom the filters let through that read no pods; None before the first repetition.
        self._fixed: Mask | None = None
        #: Of those that do: which of all they are, names, and they themselves.
        self._moving: list[tuple[int, str, PodFilter]] = []
        #: Which scores have never moved but at rows that did, and their sum; and which ones have.
        self._steady_at = list(range(len(self._scores)))
        self._steady = standings.totals
        self._unsteady_at: list[int] = []
        #: How many nodes are refused for each reason; None where that has to be counted.
        self._rejected: Counter[str] | None = None

    def again(self, snapshot: Snapshot, chance: Chance, observer: Observer) -> Placement | None:
        """
        What is decided now, in the same epoch.

        None where too many rows have moved or hardly any node is feasible, after which this is of no use. Filters that
        were asked for that are asked once more by who decides anew.
        """
        before, now = self._stamp, _stamp(snapshot)
        if now.n_rows != before.n_rows:
            return None
        moved = snapshot.nodes.moved.since(before.version)
        if moved is None or len(moved) > _FEW_ROWS:
            return None
        rows = moved if len(moved) < 2 else list(dict.fromkeys(moved))
        observer.enter("Filter")
        is_new = self._filter(rows, observer)
        if self._feasible.n < 2:
            return None
        observer.leave("Filter", Code.SUCCESS)
        observer.enter("Score")
        totals = self._score(rows, observer, is_new=is_new)
        observer.leave("Score", Code.SUCCESS)
        self._stamp = now
        standings = Standings.drawn(
            self._feasible, totals, self._scores, self._filtered, chance, rejected=self._count_rejected
        )
        return placed(snapshot, standings)

    def _filter(self, rows: Sequence[int], observer: Observer) -> bool:
        """Who is feasible is brought up to date. Returns whether that may have changed at other rows too."""
        masks, feasible = self._filtered.masks, self._feasible
        fixed = self._part_filters() if self._fixed is None else self._fixed
        is_new = False
        for index, name, one in self._moving:
            mask = observer.ask(name, "Filter", one.again, rows)
            if mask is not masks[index]:
                masks[index], is_new = mask, True
        moving = [masks[index] for index, _, _ in self._moving]
        if is_new:
            feasible.become(reduce(and_, moving, fixed))
            self._rejected = None
            return True
        for row in rows:
            fits = fixed.item(row) and all(mask.item(row) for mask in moving)
            if feasible.mask.item(row) != fits:
                feasible.set(row, fits=fits)
                self._refuse(row, fits=fits)
            elif not fits:
                self._rejected = None
        return False

    def _part_filters(self) -> Mask:
        fixed = self._filtered.nodes
        for index, ((name, one), mask) in enumerate(
            zip(self._filtered.filters, self._filtered.masks, strict=True)
        ):
            if isinstance(one, PodFilter):
                self._moving.append((index, name, one))
            else:
                fixed = fixed & mask
        self._fixed = fixed
        return fixed

    def _refuse(self, row: int, *, fits: bool) -> None:
        """The row was feasible and is refused now, or the other way."""
        if fits or self._rejected is None:
            self._rejected = None
            return
        for (_, one), mask in zip(self._filtered.filters, self._filtered.masks, strict=True):
            if not mask.item(row) and (status := one.refusals().status_at(row)) is not None:
                for reason in status.reasons:
                    self._rejected[reason] += 1
                return

    def _count_rejected(self) -> Counter[str]:
        if self._rejected is None:
            filtered = self._filtered
            filtered.refused.clear()
            left, n_left = filtered.nodes, int(np.count_nonzero(filtered.nodes))
            for (_, one), mask in zip(filtered.filters, filtered.masks, strict=True):
                left, n_left = filtered.sift(one, mask, left, n_left)
            self._rejected = filtered.rejected()
        return self._rejected

    def _score(self, rows: Sequence[int], observer: Observer, *, is_new: bool) -> Scores:
        """The totals, array of shape (n_rows,). `is_new`: whether rows that did not move may be feasible now."""
        scores = self._scores
        for index, one in enumerate(scores):
            now = observer.ask(one.plugin, "Score", one.scorer.again, rows)
            if now is not one.scores:
                scores[index] = Scored(one.plugin, one.weight, now, one.scorer)
                if index in self._steady_at:
                    self._steady_at.remove(index)
                    self._unsteady_at.append(index)
                    is_new = True
        steady = [scores[index] for index in self._steady_at]
        if is_new:
            self._steady = np.zeros_like(self._steady)
            for one in steady:
                self._steady += weighted_scores(one.scores, one.weight, self._steady.dtype)
        else:
            self._add_up(rows, steady)
        totals = self._steady
        for index in self._unsteady_at:
            one = scores[index]
            totals = totals + weighted_scores(one.scores, one.weight, totals.dtype)
        return totals

    def _add_up(self, rows: Sequence[int], steady: Sequence[Scored]) -> None:
        totals, mask = self._steady, self._feasible.mask
        for row in rows:
            # What is not feasible may have any score, and is passed over.
            total = LEAST[totals.dtype]
            if mask.item(row):
                total = 0
                for _, weight, scores, _ in steady:
                    total += weight * scores.item(row)
            totals[row] = total
