"""What a decision left behind: brought up to date at the rows that moved, and read again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Final

import numpy as np

from scheduler.core.decide import Placement, placed
from scheduler.core.kind_totals import KindTotals
from scheduler.core.standings import Chance, Leaders, Scored, Standings
from scheduler.framework.by_kind import ByKind
from scheduler.framework.interface import LEAST, MOST, NodeFilter, PodFilter, reads_pods
from scheduler.framework.observer import Observer
from scheduler.framework.recalling import Recalled
from scheduler.framework.verdicts import Code
from scheduler.state.arrays import Mask, Rows, Scores
from scheduler.state.snapshot import Snapshot

#: Rows that moved since, past which all is decided anew.
_FEW_ROWS: Final = 16


@dataclass(slots=True)
class _Passed:
    """
    Whom all filters let through: bool array of shape (n_rows,).

    `by`: the masks of those that read pods, held so that their ids, by which this is found again, stay theirs.
    `rejected`: how many nodes are refused for each reason; None where that has to be counted. `sole`: the filter that
    refuses all of these, for the same reason; None where there is none, or that is not known. `highest`: what a total
    may be, the most of its numbers for who passed and the least for others; None before anybody asks for it.
    """

    by: Sequence[Mask]
    mask: Mask
    n: int
    rejected: Counter[str] | None = None
    sole: NodeFilter | None = None
    highest: Scores | None = None

    def set(self, row: int, *, fits: bool) -> None:
        """The row passes now, or does not any more."""
        self.n += 1 if fits else -1
        if self.highest is not None:
            self.highest[row] = (MOST if fits else LEAST)[self.highest.dtype]

    def rule_out_others(self, totals: Scores) -> None:
        """Whoever did not pass has the least of all numbers. O(n_rows), 1 µs at 5,000."""
        if self.n == len(self.mask):
            return
        if self.highest is None:
            dtype = totals.dtype
            self.highest = np.where(self.mask, MOST[dtype], LEAST[dtype]).astype(dtype)
        np.minimum(totals, self.highest, out=totals)


@dataclass(slots=True)
class _Summed:
    """
    The totals of those who passed: array of shape (n_rows,).

    `passed` and `unsteady`, the scores that may be others next, are held as `_Passed.by` is.
    """

    passed: _Passed
    unsteady: Sequence[Scored]
    totals: Scores


class Kept:
    """The last decision about a class of pods, its arrays and those who gave them."""

    def __init__(self, standings: Standings, snapshot: Snapshot) -> None:
        """As of now."""
        self._snapshot = snapshot
        self._n_rows = snapshot.n_rows
        self._version = snapshot.nodes.moved.version
        self._filtered = standings.filtered
        self._feasible = standings.feasible
        self._scores = list(standings.scores)
        #: Whom the filters let through that read no pods; None before the first repetition.
        self._fixed: Mask | None = None
        #: Of those that do: which of all they are, names, and they themselves.
        self._moving: list[tuple[int, str, PodFilter]] = []
        #: Filters that may refuse any node, and which of all they are.
        self._refusing: list[int] = []
        #: Which scores have never moved but at rows that did; and which ones have.
        self._steady_at = list(range(len(self._scores)))
        self._unsteady_at: list[int] = []
        #: The sum of the steady ones, whoever is feasible; None before anybody asks for it.
        self._steady: Scores | None = None
        self._passed = _Passed((), self._feasible.mask, self._feasible.n)
        self._summed = _Summed(self._passed, (), standings.totals())
        #: What is open and full, preferred and shunned, comes and goes by domains, of which there are few.
        self._passed_before: Recalled[_Passed] = Recalled(snapshot.nodes.moved)
        self._summed_before: Recalled[_Summed] = Recalled(snapshot.nodes.moved)
        #: Where one plugin's scores alone are unsteady, and by kind: these totals are looked at, not those summed.
        self._by_kind: KindTotals | None = None
        self._by_kind_before: Recalled[KindTotals] = Recalled(snapshot.nodes.moved)
        #: Scores by kind as arrays, where there are other unsteady ones; `which` is held as in `_Passed.by`.
        self._on_nodes_before: Recalled[tuple[Rows, Scores]] = Recalled(snapshot.nodes.moved)

    def again(self, chance: Chance, observer: Observer) -> Placement | None:
        """
        What is decided now, in the same epoch.

        None where too many rows have moved or hardly any node is feasible, after which this is of no use. Filters that
        were asked for that are asked once more by who decides anew.
        """
        snapshot = self._snapshot
        if snapshot.n_rows != self._n_rows:
            return None
        moved = snapshot.nodes.moved.since(self._version)
        if moved is None or len(moved) > _FEW_ROWS:
            return None
        rows = moved if len(moved) < 2 else list(dict.fromkeys(moved))
        observer.enter("Filter")
        self._filter(rows, observer)
        if self._feasible.n < 2:
            return None
        observer.leave("Filter", Code.SUCCESS)
        observer.enter("Score")
        leaders = self._score(rows, observer)
        observer.leave("Score", Code.SUCCESS)
        self._version = snapshot.nodes.moved.version
        standings = Standings.drawn(
            leaders,
            self._feasible,
            self._totals,
            self._scores,
            self._filtered,
            chance,
            rejected=self._count_rejected,
        )
        return placed(snapshot, standings)

    def _filter(self, rows: Sequence[int], observer: Observer) -> None:
        """Who is feasible is brought up to date."""
        masks, feasible = self._filtered.masks, self._feasible
        fixed = self._part_filters() if self._fixed is None else self._fixed
        is_new = False
        for index, name, one in self._moving:
            mask = observer.ask(name, "Filter", one.again, rows)
            if mask is not masks[index]:
                masks[index], is_new = mask, True
        moving = [masks[index] for index, _, _ in self._moving]
        if is_new:
            rows = self._pass_others(moving, fixed)
        passed = self._passed
        for row in rows:
            fits = fixed.item(row)
            for mask in moving:
                fits = fits and mask.item(row)
            if passed.mask.item(row) != fits:
                passed.set(row, fits=fits)
                feasible.set(row, fits=fits)
                self._refuse(row, fits=fits)
            elif not fits and passed.rejected is not None and self._refusing_at(row) is not passed.sole:
                # It may have been refused for something else.
                passed.rejected = None

    def _pass_others(self, moving: Sequence[Mask], fixed: Mask) -> Sequence[int]:
        """Other masks decide who is feasible. Returns the rows that are to be looked at still."""
        by = tuple(map(id, moving))
        recalled = self._passed_before.recall(by)
        rows: Sequence[int]
        if recalled is not None:
            self._passed, rows = recalled
        else:
            mask, rows = reduce(and_, moving, fixed), ()
            self._passed = _Passed(moving, mask, int(np.count_nonzero(mask)))
            self._passed_before.keep(by, self._passed)
        self._feasible.become(self._passed.mask, self._passed.n)
        return rows

    def _part_filters(self) -> Mask:
        filtered = self._filtered
        nodes = fixed = filtered.nodes
        for index, ((name, one), mask) in enumerate(zip(filtered.filters, filtered.masks, strict=True)):
            if reads_pods(one):
                self._moving.append((index, name, one))
                self._refusing.append(index)
                continue
            fixed = fixed & mask
            if (nodes & ~mask).any():
                self._refusing.append(index)
        self._fixed = fixed
        return fixed

    def _refuse(self, row: int, *, fits: bool) -> None:
        """The row was feasible and is refused now, or the other way."""
        passed = self._passed
        if fits or passed.rejected is None:
            passed.rejected = None
            return
        refusing = self._refusing_at(row)
        if refusing is not passed.sole:
            passed.sole = None
        status = None if refusing is None else refusing.refusals().status_at(row)
        if status is not None:
            for reason in status.reasons:
                passed.rejected[reason] += 1

    def _refusing_at(self, row: int) -> NodeFilter | None:
        """The first filter that refuses the row; None where none does, or it is no node."""
        filtered = self._filtered
        for index in self._refusing:
            if not filtered.masks[index].item(row):
                return filtered.filters[index][1]
        return None

    def _count_rejected(self) -> Counter[str]:
        passed = self._passed
        if passed.rejected is None:
            filtered = self._filtered
            filtered.refused.clear()
            left, n_left = filtered.nodes, int(np.count_nonzero(filtered.nodes))
            for index in self._refusing:
                left, n_left = filtered.sift(filtered.filters[index][1], filtered.masks[index], left, n_left)
            passed.rejected = filtered.rejected()
            refusing = [one.node_filter for one in filtered.refused]
            is_sole = len(refusing) == 1 and len(refusing[0].refusals().statuses) == 1
            passed.sole = refusing[0] if is_sole else None
        return passed.rejected

    def _score(self, rows: Sequence[int], observer: Observer) -> Leaders:
        """The totals are brought up to date. Returns who leads by them."""
        rows, are_others = self._rescore(rows, observer)
        scores = self._scores
        if len(self._unsteady_at) == 1:
            one = scores[self._unsteady_at[0]]
            if isinstance(one.scores, ByKind):
                return self._count_kinds(one.scores, rows).leaders(one.scores, one.weight)
        self._by_kind = None
        for index in self._unsteady_at:
            one = scores[index]
            if isinstance(one.scores, ByKind):
                scores[index] = one._replace(scores=self._on_nodes(one.scores))
        if are_others or self._summed.passed is not self._passed:
            rows = self._sum_others()
        self._add_up(rows)
        return Leaders.of(self._summed.totals)

    def _rescore(self, rows: Sequence[int], observer: Observer) -> tuple[Sequence[int], bool]:
        """Every scorer is asked. Returns the rows that may have other scores, and whether more of them may have."""
        scores, steady_at = self._scores, self._steady_at
        are_others = False
        more: set[int] = set()
        for index, one in enumerate(scores):
            now, changed = observer.ask(one.plugin, "Score", one.scorer.again, rows)
            if changed is not rows:
                more.update(changed)
            if now is not one.scores:
                scores[index] = Scored(one.plugin, one.weight, now, one.scorer)
                are_others = True
                if index in steady_at:
                    steady_at.remove(index)
                    self._unsteady_at.append(index)
                    self._steady = None
        if more:
            # Sums of before do not know of these.
            self._summed_before.forget()
            self._by_kind_before.forget()
            rows = list(more.union(rows))
        steady = self._steady
        if steady is not None:
            least, most = LEAST[steady.dtype], MOST[steady.dtype]
            for row in rows:
                # Who is not feasible may have any scores, and more of them than totals can be.
                steady[row] = min(max(least, self._at(row, steady_at)), most)
        return rows, are_others

    def _count_kinds(self, scores: ByKind, rows: Sequence[int]) -> KindTotals:
        """The totals by kind, brought up to date."""
        totals, mask, which = self._by_kind, self._passed.mask, scores.which
        if totals is None or totals.mask is not mask or totals.which is not which:
            recalled = self._by_kind_before.recall((id(mask), id(which)))
            if recalled is None:
                totals, rows = KindTotals(self._steady_sum(), which, mask), ()
                self._by_kind_before.keep((id(mask), id(which)), totals)
            else:
                totals, rows = recalled
            self._by_kind = totals
        totals.follow(self._steady_sum(), rows)
        return totals

    def _on_nodes(self, scores: ByKind) -> Scores:
        """The scores of nodes: the array of before, brought up to date, where those of kinds are as they were then."""
        which = scores.which
        of = scores.among(self._feasible.kinds(which))
        key = (id(which), *of.items())
        recalled = self._on_nodes_before.recall(key)
        if recalled is None:
            found = scores.on_nodes()
            self._on_nodes_before.keep(key, (which, found))
            return found
        (_, found), rows = recalled
        for row in rows:
            found[row] = scores.item(row)
        return found

    def _totals(self) -> Scores:
        """As of this decision: array of shape (n_rows,), the least of its numbers on rows that are not feasible."""
        return self._summed.totals if self._by_kind is None else self._sum()

    def _sum(self) -> Scores:
        """Everybody's totals added up: a fresh array as `_totals` has it. O(n_rows)."""
        totals = self._steady_sum()
        for index in self._unsteady_at:
            totals = totals + self._scores[index].weighted(totals.dtype)
        if not self._unsteady_at:
            totals = totals.copy()
        self._passed.rule_out_others(totals)
        return totals

    def _steady_sum(self) -> Scores:
        """The sum of the steady scores, whoever is feasible. O(n_rows) when it is asked for the first time."""
        if self._steady is None:
            self._steady = np.zeros_like(self._summed.totals)
            for index in self._steady_at:
                self._steady += self._scores[index].weighted(self._steady.dtype)
        return self._steady

    def _sum_others(self) -> Sequence[int]:
        """Others are feasible, or have other scores. Returns the rows that are to be added up still."""
        unsteady = [self._scores[index] for index in self._unsteady_at]
        key = (id(self._passed), *[id(one.scores) for one in unsteady])
        recalled = self._summed_before.recall(key)
        if recalled is not None:
            self._summed, rows = recalled
            return rows
        self._summed = _Summed(self._passed, unsteady, self._sum())
        self._summed_before.keep(key, self._summed)
        return ()

    def _add_up(self, rows: Sequence[int]) -> None:
        totals, mask, steady = self._summed.totals, self._passed.mask, self._steady
        least = LEAST[totals.dtype]
        if steady is None:
            every = range(len(self._scores))
            for row in rows:
                totals[row] = self._at(row, every) if mask.item(row) else least
            return
        unsteady = [(self._scores[index].weight, self._scores[index].scores) for index in self._unsteady_at]
        for row in rows:
            if mask.item(row):
                total = steady.item(row)
                for weight, scores in unsteady:
                    total += weight * scores.item(row)
                totals[row] = total
            else:
                totals[row] = least

    def _at(self, row: int, which: Sequence[int]) -> int:
        """The weighted sum of some of the scores at one row."""
        total = 0
        for index in which:
            _, weight, scores, _ = self._scores[index]
            total += weight * scores.item(row)
        return total
