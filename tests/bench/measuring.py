"""Clocks and the arithmetic of samples."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_N_YARDSTICKS: Final = 400
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Spread(msgspec.Struct, frozen=True):
    """Statistics of a sample of durations, in µs."""

    p50: float
    p99: float
    highest: float
    mean: float
    n: int


def percentile(ordered: Sequence[float], share: float) -> float:
    """
    Return the smallest entry that at least `share` of the ascending entries do not exceed (nearest rank).

    Raises ValueError for an empty sequence or a share outside of (0, 1].
    """
    if not ordered or not 0 < share <= 1:
        raise ValueError(f"percentile {share} of {len(ordered)} entries: expected a share in (0, 1] of some")
    return ordered[math.ceil(share * len(ordered)) - 1]


def spread_us(durations_ns: Sequence[int]) -> Spread:
    """Return the statistics of a sample in µs; raise ValueError for an empty one."""
    ordered = sorted(duration / 1000 for duration in durations_ns)
    return Spread(
        p50=percentile(ordered, 0.5),
        p99=percentile(ordered, 0.99),
        highest=ordered[-1],
        mean=sum(ordered) / len(ordered),
        n=len(ordered),
    )


def yardstick_us() -> float:
    """
    Return the CPU µs of a fixed piece of work that resembles a decision, half of it in arrays.

    It is the median of many, so other load hardly affects it, nor a cost that is divided by it.
    """
    amounts = np.arange(5000, dtype=np.int64)
    ids = amounts % 50
    durations = []
    for _ in range(_N_YARDSTICKS):
        began_ns = time.process_time_ns()
        for number in range(5):
            mask = amounts * 3 + number > 7000
            int(np.where(mask, amounts, -1).argmax())
            np.bincount(ids, weights=mask)
        words = {f"key-{number}": (number, str(number)) for number in range(200)}
        sum(len(word) + pair[0] for word, pair in words.items())
        durations.append(time.process_time_ns() - began_ns)
    return sorted(durations)[len(durations) // 2] / 1000


def cpu_s(pid: int) -> float:
    """Return the user and system seconds that the process has used, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def resident_bytes(pid: int) -> int:
    """Return the process's resident memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def peak_bytes(pid: int) -> int:
    """Return the process's peak resident memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def children_of(pid: int | None = None) -> frozenset[int]:
    """Return the ids of the child processes of `pid`, by default of this process."""
    parent = os.getpid() if pid is None else pid
    children: set[int] = set()
    for task in Path(f"/proc/{parent}/task").iterdir():
        # A thread may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children.update(map(int, (task / "children").read_text().split()))
    return frozenset(children)
