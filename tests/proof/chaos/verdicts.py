"""The promises that a run can break."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

#: What is printed of a run: broken promises, lines of its story, and of each so many characters.
_MAX_TOLD, _LINES, _WIDTH = 8, 40, 600


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
    CLAIM = "a pod and its claims are not as they have to be"
    ROOM = "the room of a pod that waits between Reserve and Bind was not kept for it"
    MOVE = "a pod was moved that had to stay"
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


def story(title: str, wrongs: Sequence[Wrong], told: Sequence[tuple[float, str]]) -> str:
    """Return what went wrong and what happened before, as text."""
    return "\n".join(
        [
            f"{title}:",
            *(str(one)[:_WIDTH] for one in wrongs[:_MAX_TOLD]),
            "what happened last:",
            *(f"{at_s:10.3f} {text[:_WIDTH]}" for at_s, text in told[-_LINES:]),
        ]
    )
