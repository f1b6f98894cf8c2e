"""
Results of plugins: a status, SKIP, or a status per refused node.

A refusal is a value, never an exception. Source: staging/src/k8s.io/kube-scheduler/framework, Status (1.36).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from scheduler.engine.state.arrays import Codes, Mask


class Code(Enum):
    """The code of a status; values are upstream's names, as metrics have them."""

    SUCCESS = "Success"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNSCHEDULABLE_AND_UNRESOLVABLE = "UnschedulableAndUnresolvable"
    PENDING = "Pending"
    SKIP = "Skip"

    @property
    def rejects(self) -> bool:
        """Whether the plugin rejected the pod, rather than failed or succeeded."""
        return self in (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING)


@dataclass(frozen=True, slots=True)
class Status:
    """Why a plugin rejected a pod, refused a node, or failed. `reasons`: texts for operators, in order."""

    code: Code
    reasons: tuple[str, ...]

    @property
    def message(self) -> str:
        """The reasons in one line."""
        return ", ".join(self.reasons)


def unschedulable(*reasons: str) -> Status:
    """Return the status of a refusal that removing pods may lift."""
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    """Return the status of a refusal that removing pods cannot lift."""
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)


def failed(*reasons: str) -> Status:
    """Return the status of a plugin that could not do its work."""
    return Status(Code.ERROR, reasons)


SUCCESS: Final = Status(Code.SUCCESS, ())


class Skip(Enum):
    """The result of a plugin that has nothing to do for the pod: its Filter or Score is not run in this cycle."""

    SKIP = "Skip"


SKIP: Final = Skip.SKIP


@dataclass(frozen=True, slots=True)
class NodeStatuses:
    """
    The status of every node that a plugin refuses.

    `codes`: integers of shape (n_rows,), 0 where the node fits, i where it is refused with `statuses[i - 1]`.
    """

    codes: Codes
    statuses: Sequence[Status]

    @classmethod
    def first_broken(cls, rules: Sequence[tuple[Mask, Status]], n_rows: int) -> NodeStatuses:
        """Return for each row the status of the first rule (bool array of shape (n_rows,)) that it does not satisfy."""
        codes = np.zeros(n_rows, dtype=np.uint16)
        for code in range(len(rules), 0, -1):
            np.putmask(codes, ~rules[code - 1][0], code)
        return cls(codes, [status for _, status in rules])

    @classmethod
    def by_row(cls, status_by_row: Mapping[int, Status], n_rows: int) -> NodeStatuses:
        """Return the statuses of these rows; the others fit."""
        codes = np.zeros(n_rows, dtype=np.intp)
        code_by_status: dict[Status, int] = {}
        for row, status in status_by_row.items():
            codes[row] = code_by_status.setdefault(status, len(code_by_status) + 1)
        return cls(codes, list(code_by_status))

    @classmethod
    def combined(cls, short: Sequence[Mask], unresolvable: Mask, reasons: Sequence[str]) -> NodeStatuses:
        """
        Return the statuses of the rows, one status per combination of shortages that occurs.

        `short`: per reason the rows to which it applies, in the order in which a node reports them. `unresolvable`:
        rows on which removing pods does not help; each has a reason.
        """
        codes = np.zeros(len(unresolvable), dtype=np.intp)
        combinations: list[tuple[bool, ...]] = [()]
        for applies in (*short, unresolvable):
            n_applying = int(np.count_nonzero(applies))
            if n_applying in (0, len(applies)):
                # A mask with one value splits no combination, such as that of a resource which no node has.
                combinations = [(*combination, n_applying > 0) for combination in combinations]
                continue
            # Codes are renumbered after each mask, so that they stay small however many resources a pod requests.
            codes = 2 * codes + applies
            occurs = np.bincount(codes) > 0
            combinations = [(*combinations[c >> 1], bool(c & 1)) for c in np.flatnonzero(occurs).tolist()]
            codes = (np.cumsum(occurs) - 1)[codes]
        # Code 0 means no shortage. It is the lowest combination; if it does not occur, all codes are raised by 1.
        starts_fitting = not any(combinations[0])
        statuses = [
            Status(
                Code.UNSCHEDULABLE_AND_UNRESOLVABLE if is_unresolvable else Code.UNSCHEDULABLE,
                tuple(reason for reason, applies in zip(reasons, applying, strict=True) if applies),
            )
            for *applying, is_unresolvable in combinations[int(starts_fitting) :]
        ]
        return cls(codes if starts_fitting else codes + 1, statuses)

    def at(self, row: int) -> Status | None:
        """Return why the row is refused, None if it fits."""
        code = self.codes.item(row)
        return None if code == 0 else self.statuses[code - 1]

    def counts(self, rows: Mask) -> Iterator[tuple[Status, int]]:
        """Yield each status of the refused `rows` (bool array of shape (n_rows,)) with its number of rows."""
        if len(self.statuses) == 1:
            yield self.statuses[0], int(np.count_nonzero(rows))
            return
        n_by_code = np.bincount(self.codes[rows], minlength=1).tolist()
        for status, n in zip(self.statuses, n_by_code[1:], strict=False):
            if n:
                yield status, n
