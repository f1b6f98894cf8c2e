"""The shortest script that still fails: whatever can be left out without the same promise being kept is left out."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.chaos.happenings import Happening
from tests.chaos.run import Outcome, replay

T = TypeVar("T")
#: What breaks a promise at one moment is not played on for longer.
_AFTERWARDS_S = 1.0


def shortest(outcome: Outcome, *, within_s: float) -> Outcome:
    """
    A run of the same seed that breaks the same promise with fewer happenings, each of which it needs.

    Where `within_s` real seconds do not suffice it is the best found so far. The outcome itself where its script does
    not fail again, which would mean that a run is not its script.
    """
    wanted, found_at_s = outcome.wrongs[0].verdict, outcome.wrongs[0].at_s
    ends_s = None if found_at_s is None else found_at_s - outcome.began_s + _AFTERWARDS_S
    best = outcome

    def fails(script: list[tuple[float, Happening]]) -> bool:
        nonlocal best
        again = replay(outcome.seed, outcome.shape, script, outcome.setting, until_s=ends_s)
        if all(one.verdict is not wanted for one in again.wrongs):
            return False
        again.wrongs.sort(key=lambda one: one.verdict is not wanted)
        best = again
        return True

    until_s = time.monotonic() + within_s
    before = [one for one in outcome.script if ends_s is None or one[0] < ends_s]
    if fails(before):
        minimal(before, fails, is_over=lambda: time.monotonic() >= until_s)
    return best


def minimal(items: list[T], fails: Callable[[list[T]], bool], *, is_over: Callable[[], bool]) -> list[T]:
    """
    A part of `items` that fails and of which nothing can be left out alone; larger where `is_over` came first.

    Delta debugging (Zeller and Hildebrandt 2002), complements only: a part alone seldom fails where order matters.
    """
    n_parts = 2
    while len(items) >= 2 and not is_over():
        size = -(-len(items) // n_parts)
        for start in range(0, len(items), size):
            rest = items[:start] + items[start + size :]
            if is_over():
                return items
            if fails(rest):
                items, n_parts = rest, max(n_parts - 1, 2)
                break
        else:
            if size == 1:
                return items
            n_parts = min(n_parts * 2, len(items))
    return items
