"""The promises that a run can break."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """A promise that a run can break."""

    TWICE = "a pod was bound twice"
    LEASE = "a bind was sent without the Lease"
    RULE = "a bind broke a rule, or took room that there was not"
    STRANGE = "a bind that nobody decided, or a decision on a pod that was bound already"
    HALF = "a decision placed part of a group"
    VICTIM = "a pod was evicted that Kubernetes would have kept"
    AGAIN = "a pod was evicted twice"
    NEEDLESS = "a pod was evicted whose place was not needed any more"
    EARLY = "a pod was tried before the evictions for it had ended, or without a pause after one that failed"
    STALE = "a nomination that will not come true"
    LEFT = "a pod that can be placed was left over"
    UNTRIED = "a pod that can evict others was left over"
    CACHE = "the cache is not what the server has"
    COUNTS = "counts differ from a recount"
    HISTORY = "the history of writes breaks its specification"
    CRASH = "an instance crashed"


@dataclass(frozen=True, slots=True)
class Wrong:
    """One broken promise."""

    verdict: Verdict
    text: str
    #: The moment of the break, if there is one.
    at_s: float | None = None

    def __str__(self) -> str:
        return f"{self.verdict.value}: {self.text}"
