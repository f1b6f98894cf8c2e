"""
What a stage answers: a status, a skip, or per-node refusals kept as codes until somebody has to read them.

Not fitting is a value, never an exception. Source: staging/src/k8s.io/kube-scheduler/framework, Status (1.36).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from scheduler.state.arrays import Codes, Mask

#: So many statuses are counted one by one where rows are more than so many, the others together.
_FEW_STATUSES: Final = 3
_FEW_ROWS: Final = 256


class Code(Enum):
    """What a status means to the machinery; values are upstream's names, as metrics have them."""

    SUCCESS = "Success"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    PENDING = "Pending"
    SKIP = "Skip"

    @property
    def rejects(self) -> bool:
        """Whether the pod was refused, as opposed to the plugin having failed."""
        return self in (Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING)


@dataclass(frozen=True, slots=True)
class Status:
    """Why a plugin said no (or failed): `reasons` are the texts that operators see, in order."""

    code: Code
    reasons: tuple[str, ...]

    @property
    def message(self) -> str:
        """The reasons in one line."""
        return ", ".join(self.reasons)


def unschedulable(*reasons: str) -> Status:
    """A refusal that removing pods could lift."""
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    """A refusal that removing pods cannot lift."""
    return Status(Code.UNRESOLVABLE, reasons)


class Skip(Enum):
    """The plugin has nothing to do for this pod: its filter or score is not run in this cycle."""

    SKIP = "Skip"
    FOR_NOW = "Skip for now"


SKIP: Final = Skip.SKIP
#: The same, of a plugin that has something to do once pods have come to other nodes or left some.
SKIP_FOR_NOW: Final = Skip.FOR_NOW


class Refusals:
    """
    Which nodes a plugin refuses and why: as codes, or as rules of which codes are made for who reads them.

    A node has one of the `statuses`, or none where it fits.
    """

    __slots__ = ("_codes", "_n_by_code", "_rules", "_statuses")

    def __init__(self, codes: Codes, statuses: Sequence[Status], n_by_code: Sequence[int] = ()) -> None:
        """See `codes`. `n_by_code`: how many of all rows have each code, where that is known."""
        self._codes: Codes | None = codes
        self._rules: Sequence[tuple[Mask, Status]] = ()
        self._n_by_code = n_by_code
        self._statuses = statuses

    @classmethod
    def by_rule(cls, rules: Sequence[tuple[Mask, Status]]) -> Refusals:
        """
        Each node has the status of the first rule that it does not keep.

        Rules are bool arrays of shape (n_rows,), one at least, not to be written to for as long as this is read.
        """
        refusals = cls.__new__(cls)
        refusals._codes = None
        refusals._n_by_code = refusals._statuses = ()
        refusals._rules = rules
        return refusals

    @classmethod
    def where(cls, refused: Mask, status: Status) -> Refusals:
        """One status for every refused row."""
        return cls.by_rule([(~refused, status)])

    @property
    def statuses(self) -> Sequence[Status]:
        """What the plugin says: of each rule, or of each code from 1 on."""
        return [status for _, status in self._rules] if self._rules else self._statuses

    @property
    def codes(self) -> Codes:
        """Integers of shape (n_rows,): 0 where the node fits, i where it is refused with `statuses[i - 1]`."""
        if self._codes is None:
            self._codes = np.zeros(len(self._rules[0][0]), dtype=np.uint8)
            for code in range(len(self._rules), 0, -1):
                np.putmask(self._codes, ~self._rules[code - 1][0], code)
        return self._codes

    def counts(self, rows: Mask, n: int) -> Iterator[tuple[Status, int]]:
        """
        Each status that any of the `rows` has, and how many have it; one that stands twice may come twice.

        Args:
            rows: bool array of shape (n_rows,), some that are refused.
            n: how many they are.

        Cost at 5,000 nodes: 1 µs a rule, or where the rows are all that are refused and it is known how many have each
        code; else 3 µs for few rows or for each status that occurs, 10 µs for any number.
        """
        statuses = self.statuses
        if len(statuses) == 1:
            n_of: Sequence[int] = [n]
        elif sum(self._n_by_code[1:]) == n:
            n_of = self._n_by_code[1:]
        elif self._rules:
            n_of = _broken_first(self._rules, rows, n)
        else:
            n_of = _coded(self.codes, rows, n)
        return ((status, n) for status, n in zip(statuses, n_of, strict=False) if n)

    def status_at(self, row: int) -> Status | None:
        """Why the row is refused, None where it fits."""
        if self._codes is not None:
            code = self._codes.item(row)
            return None if code == 0 else self.statuses[code - 1]
        for kept, status in self._rules:
            if not kept.item(row):
                return status
        return None


def _broken_first(rules: Sequence[tuple[Mask, Status]], rows: Mask, n: int) -> list[int]:
    """For each rule how many of the rows keep all before it, and not it; who keeps all but the last breaks that."""
    n_of = []
    for kept, _ in rules[:-1]:
        rows = rows & kept
        n_left = int(np.count_nonzero(rows))
        n_of.append(n - n_left)
        n = n_left
    return [*n_of, n]


def _coded(codes: Codes, rows: Mask, n: int) -> list[int]:
    """For each code from 1 to the highest that occurs how many of the rows have it."""
    found: dict[int, int] = {}
    # Of many codes one or two are common: these are counted where they stand.
    for _ in range(_FEW_STATUSES):
        if n <= _FEW_ROWS:
            break
        code = codes.item(rows.argmax())
        same = (codes == code) & rows
        found[code] = int(np.count_nonzero(same))
        n -= found[code]
        rows = rows ^ same
    n_codes = max(found, default=0) + 1
    n_of = np.bincount(codes.take(rows.nonzero()[0]), minlength=n_codes).tolist() if n else [0] * n_codes
    for code, n_same in found.items():
        n_of[code] = n_same
    return n_of[1:]
