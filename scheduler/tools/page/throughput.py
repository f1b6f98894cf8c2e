"""Counts and durations of the last quarter of an hour, in steps of five seconds."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.tools.explain.formats.explanation import JsonStruct

#: Length of a step, and the number of steps.
STEP_S: Final = 5
N_STEPS: Final = 180
#: Upper bounds of the durations' buckets: from 10 µs to 3 h, each 1.19 times the one before.
_BOUNDS: Final = tuple(1e-5 * 2 ** (exponent / 4) for exponent in range(4 * 30))
#: Steps per column of `DurationMap`, and bounds per bucket, so that each bucket's bound is twice the previous bound.
_STEPS_PER_COLUMN: Final = 6
_BOUNDS_PER_BUCKET: Final = 4
_COLUMN_S: Final = STEP_S * _STEPS_PER_COLUMN
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
        self._bound, self._failed = [0] * N_STEPS, [0] * N_STEPS
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
        """Return the sums of the window."""
        oldest = (self._slot(now_s) + 1) % N_STEPS
        bound, failed = (counts[oldest:] + counts[:oldest] for counts in (self._bound, self._failed))
        recent_s = (_RATE_STEPS - 1) * STEP_S + now_s % STEP_S
        return Throughput(
            pods_per_second=round(sum(bound[-_RATE_STEPS:]) / max(recent_s, 1.0), 1),
            decision=_summary(np.roll(self._decision.by_step, -oldest, axis=0)),
            to_bound=_summary(np.roll(self._to_bound.by_step, -oldest, axis=0)),
            step_seconds=STEP_S,
            bound=tuple(bound),
            failed=tuple(failed),
        )

    def _slot(self, now_s: float) -> int:
        """Return the ring's slot of the second, and clear the slots of steps that have passed since the last call."""
        step = int(now_s // STEP_S)
        if step > self._step:
            for passed in range(max(self._step + 1, step - N_STEPS + 1), step + 1):
                slot = passed % N_STEPS
                self._bound[slot] = self._failed[slot] = 0
                self._decision.by_step[slot] = self._to_bound.by_step[slot] = 0
            self._step = step
        return step % N_STEPS


class _Durations:
    """The number of durations by step and bucket; the last bucket has no bound."""

    def __init__(self) -> None:
        self.by_step = np.zeros((N_STEPS, len(_BOUNDS) + 1), dtype=np.uint32)
        #: The same memory: to add to an element of an array costs 0.6 µs more.
        self._numbers = self.by_step.reshape(-1).data

    def add(self, slot: int, seconds: float) -> None:
        self._numbers[slot * (len(_BOUNDS) + 1) + bisect_left(_BOUNDS, seconds)] += 1


def _summary(by_step: NDArray[np.uint32]) -> Durations:
    """Return percentiles and the map of durations by step, the oldest first, and bucket."""
    n_up_to = by_step.sum(axis=0, dtype=np.int64).cumsum()
    n_measured = n_up_to.item(-1)
    if not n_measured:
        return Durations(None, None, 0, DurationMap(_COLUMN_S, (), ((),) * (N_STEPS // _STEPS_PER_COLUMN)))
    # What is longer than every bound, hours, counts in the last bucket that has one.
    buckets = np.searchsorted(n_up_to[:-1], (0.5 * n_measured, 0.99 * n_measured)).tolist()
    half, most = (_BOUNDS[min(bucket, len(_BOUNDS) - 1)] for bucket in buckets)
    by_step[:, -2] += by_step[:, -1]
    shape = (N_STEPS // _STEPS_PER_COLUMN, _STEPS_PER_COLUMN, -1, _BOUNDS_PER_BUCKET)
    columns = by_step[:, :-1].reshape(shape).sum(axis=(1, 3))
    used = np.flatnonzero(columns.any(axis=0))
    first, end = used.item(0), used.item(-1) + 1
    bounds = _BOUNDS[_BOUNDS_PER_BUCKET - 1 :: _BOUNDS_PER_BUCKET][first:end]
    over_time = DurationMap(_COLUMN_S, bounds, tuple(map(tuple, columns[:, first:end].tolist())))
    return Durations(half, most, n_measured, over_time)
