"""Counts and durations of the last quarter of an hour, in steps of five seconds."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduler.tools.explain.formats.explanation import JsonStruct

#: Length of a step, and the number of steps.
STEP_S: Final = 5
N_STEPS: Final = 180
#: Upper bounds of the durations' buckets: from 10 µs to 3 h, each 1.19 times the one before.
_BOUNDS: Final = tuple(1e-5 * 2 ** (exponent / 4) for exponent in range(4 * 30))
#: Steps in a column of a map of durations, and bounds in one of its buckets, each twice the one before.
_STEPS_PER_COLUMN: Final = 6
_BOUNDS_PER_BUCKET: Final = 4
#: Steps of the current rate: a rate of one step jumps.
_RATE_STEPS: Final = 2


class DurationMap(JsonStruct, frozen=True):
    """
    How many durations were measured when: by column of `column_seconds`, the oldest first, and within it by bucket.

    `bounds`: the buckets' upper bounds in seconds; all durations are in these.
    """

    column_seconds: int
    bounds: tuple[float, ...]
    columns: tuple[tuple[int, ...], ...]


class Durations(JsonStruct, frozen=True):
    """Percentiles in seconds, exact to a fifth; null if nothing was measured. `n_measured` durations."""

    p50: float | None
    p99: float | None
    n_measured: int
    over_time: DurationMap


class Throughput(JsonStruct, frozen=True, kw_only=True):
    """
    The last quarter of an hour.

    `decision`: one cycle, without its bind. `to_bound`: from the first entry into the active queue to the bind.
    `bound` and `failed`: attempts per step, the oldest step first, the running one last.
    """

    pods_per_second: float
    decision: Durations
    to_bound: Durations
    step_seconds: int
    bound: tuple[int, ...]
    failed: tuple[int, ...]


class Window:
    """Counts per step in a ring. Seconds are of a monotonic clock. Memory: 180 KB. Cost of a count: 0.5 µs."""

    def __init__(self) -> None:
        #: The number of the newest step since the clock's zero; older steps are behind it in the ring.
        self._step = 0
        self._bound = [0] * N_STEPS
        self._failed = [0] * N_STEPS
        self._decision, self._to_bound = _Durations(), _Durations()

    def add_decision(self, seconds: float, now_s: float) -> None:
        """Count a cycle."""
        self._decision.add(self._slot(now_s), seconds)

    def add_bound(self, seconds: float, now_s: float) -> None:
        """Count a bound pod, and the time from its first entry into the active queue."""
        slot = self._slot(now_s)
        self._bound[slot] += 1
        self._to_bound.add(slot, seconds)

    def add_failed(self, now_s: float) -> None:
        """Count an attempt that failed."""
        self._failed[self._slot(now_s)] += 1

    def summary(self, now_s: float) -> Throughput:
        """Return the sums of the window. 0.5 ms."""
        newest = self._slot(now_s)
        order = [(newest + 1 + offset) % N_STEPS for offset in range(N_STEPS)]
        bound = tuple(self._bound[slot] for slot in order)
        recent_s = (_RATE_STEPS - 1) * STEP_S + now_s % STEP_S
        return Throughput(
            pods_per_second=round(sum(bound[-_RATE_STEPS:]) / max(recent_s, 1.0), 1),
            decision=self._decision.summary(order),
            to_bound=self._to_bound.summary(order),
            step_seconds=STEP_S,
            bound=bound,
            failed=tuple(self._failed[slot] for slot in order),
        )

    def _slot(self, now_s: float) -> int:
        """Return the ring's slot of the second, and clear the slots of steps that have passed since the last call."""
        step = int(now_s // STEP_S)
        if step > self._step:
            for passed in range(max(self._step + 1, step - N_STEPS + 1), step + 1):
                slot = passed % N_STEPS
                self._bound[slot] = self._failed[slot] = 0
                self._decision.clear(slot)
                self._to_bound.clear(slot)
            self._step = step
        return step % N_STEPS


class _Durations:
    """Durations by bucket, in a ring of steps and in total."""

    def __init__(self) -> None:
        self._steps = [_no_durations() for _ in range(N_STEPS)]
        self._totals = _no_durations()

    def add(self, slot: int, seconds: float) -> None:
        bucket = bisect_left(_BOUNDS, seconds)
        self._steps[slot][bucket] += 1
        self._totals[bucket] += 1

    def clear(self, slot: int) -> None:
        for bucket, count in enumerate(self._steps[slot]):
            self._totals[bucket] -= count
        self._steps[slot] = _no_durations()

    def summary(self, order: Sequence[int]) -> Durations:
        """Return percentiles and the map. `order`: the slots, the oldest first."""
        n_measured = sum(self._totals)
        half, most = (_percentile(self._totals, n_measured, share) for share in (0.5, 0.99))
        return Durations(half, most, n_measured, self._over_time(order))

    def _over_time(self, order: Sequence[int]) -> DurationMap:
        by_bound = np.array([self._steps[slot] for slot in order], dtype=np.int64)
        # The last bucket has what is longer than every bound: hours.
        by_bound[:, -2] += by_bound[:, -1]
        shape = (N_STEPS // _STEPS_PER_COLUMN, _STEPS_PER_COLUMN, -1, _BOUNDS_PER_BUCKET)
        columns = by_bound[:, :-1].reshape(shape).sum(axis=(1, 3))
        used = np.flatnonzero(columns.any(axis=0))
        first, end = (used.item(0), used.item(-1) + 1) if len(used) else (0, 0)
        bounds = _BOUNDS[_BOUNDS_PER_BUCKET - 1 :: _BOUNDS_PER_BUCKET][first:end]
        return DurationMap(
            STEP_S * _STEPS_PER_COLUMN, bounds, tuple(map(tuple, columns[:, first:end].tolist()))
        )


def _no_durations() -> array[int]:
    return array("I", bytes(4 * (len(_BOUNDS) + 1)))


def _percentile(totals: array[int], n_measured: int, share: float) -> float | None:
    """Return the upper bound of the bucket that holds the percentile."""
    if not n_measured:
        return None
    seen = 0
    for bound, count in zip(_BOUNDS, totals, strict=False):
        seen += count
        if seen >= share * n_measured:
            return bound
    return _BOUNDS[-1]
