"""The answers of a node to claims that ask for devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

_T = TypeVar("_T")

#: Values that an audit compares at once, 20 to 50 µs each.
_AUDITED_AT_ONCE: Final = 64


class Answer(IntEnum):
    """Whether a node has devices for all claims."""

    UNKNOWN = 0
    DEVICES = 1
    NO_DEVICES = 2
    #: No devices found, and a pool of the node is invalid.
    INVALID_POOLS = 3
    #: The search ended at its limit.
    LIMIT = 4
    #: The budget was spent before the search on this node ended: ask again.
    POSTPONED = 5
    #: An error, which ends the pod's cycle.
    ERROR = 6


@dataclass(frozen=True, slots=True)
class NotAllocated:
    """Why a node cannot serve the claims, in upstream's words; the limit of the search in ours."""

    text: str
    answer: Answer = Answer.ERROR


ENDED_AT_LIMIT: Final = "search for devices ended at its limit"
#: The budget of evaluations, or of devices to look at, is spent.
UNFINISHED: Final = NotAllocated(ENDED_AT_LIMIT, Answer.POSTPONED)


class AuditWindow:
    """A window that moves over the values."""

    def __init__(self) -> None:
        self._next = 0

    def of(self, values: Sequence[_T]) -> Sequence[_T]:
        """Return the next few of the values."""
        start = self._next if self._next < len(values) else 0
        self._next = start + _AUDITED_AT_ONCE
        return values[start : self._next]
