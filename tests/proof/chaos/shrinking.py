"""Shrinking of a failing script to the shortest one that breaks the same promise."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.proof.chaos.happenings import Happening
from tests.proof.chaos.run import Outcome, replay

T = TypeVar("T")
#: A replay ends soon after the moment of the broken promise.
_AFTERWARDS_S = 1.0


def shortest(outcome: Outcome, *, within_s: float) -> Outcome:
    """
    Return a run of the same seed that breaks the same promise, with a script from which nothing can be left out.

    After `within_s` real seconds it is the best run found so far. If the script of `outcome` does not fail again, which
    means that the run does not depend on its script alone, it is `outcome`.
    """
    wanted, found_at_s = outcome.wrongs[0].verdict, outcome.wrongs[0].at_s
    ends_s = None if found_at_s is None else found_at_s - outcome.began_s + _AFTERWARDS_S
    best = outcome

    def fails(script: list[tuple[float, Happening]]) -> bool:
        nonlocal best
        again = replay(
            outcome.seed, outcome.shape, script, outcome.setting, kind=outcome.kind, until_s=ends_s
        )
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
    Return a failing part of `items` from which no single item can be left out; a larger one if `is_over` ends it.

    Delta debugging (Zeller and Hildebrandt 2002) with complements only: where order matters, a subset seldom fails.
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
