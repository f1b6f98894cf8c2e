"""Rules over all nodes, as a filter holds them: which nodes keep them all, and which one the others break first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scheduler.framework.verdicts import Refusals, Status
from scheduler.state.arrays import Mask

#: In their order: who keeps each rule, bool array of shape (n_rows,) not to be written to; and what the others hear.
Rules = Sequence[tuple[Mask, Status]]


class KeptRules:
    """What `NodeFilter` and `PodFilter` ask for, from rules that the arrays of are kept and moved by the state."""

    def __init__(self, rules: Rules, n_rows: int) -> None:
        """The rules as of now; without any all nodes keep them."""
        self._rules = rules
        self._n_rows = n_rows
        self._fitting = self._keeping_all()

    def fits(self) -> Mask:
        """Nodes that keep every rule; not to be written to. O(1)."""
        return self._fitting

    def again(self, rules: Rules, rows: Sequence[int]) -> Mask:
        """
        The rules are these now; see `PodFilter.again`.

        O(rows) where their arrays are those of before, which then are different at no other rows; else O(n_rows).
        """
        before, self._rules = self._rules, rules
        if len(rules) == 1:
            self._fitting = rules[0][0]
            return self._fitting
        are_others = len(rules) != len(before)
        for (kept, _), (kept_before, _) in zip(rules, before, strict=False):
            are_others |= kept is not kept_before
        if are_others:
            self._fitting = self._keeping_all()
            return self._fitting
        for row in rows:
            fits = True
            for kept, _ in rules:
                fits &= kept.item(row)
            self._fitting[row] = fits
        return self._fitting

    def refusals(self) -> Refusals:
        """The first rule that each node breaks."""
        if not self._rules:
            return Refusals(np.zeros(self._n_rows, dtype=np.uint8), ())
        return Refusals.by_rule(self._rules)

    def _keeping_all(self) -> Mask:
        """An array of its own where there is not exactly one rule."""
        if not self._rules:
            return np.ones(self._n_rows, dtype=np.bool_)
        fitting = self._rules[0][0]
        for kept, _ in self._rules[1:]:
            fitting = fitting & kept
        return fitting
