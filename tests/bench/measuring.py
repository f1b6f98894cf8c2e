"""Clocks and the arithmetic of samples."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

_N_YARDSTICKS: Final = 400
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Spread(msgspec.Struct, frozen=True):
    """Statistics of a sample of durations, in µs."""

    p50: float
    p99: float
    highest: float
    n: int


def percentile(entries: Sequence[float], percent: float) -> float:
    """Return the smallest entry that so many of the entries do not exceed (nearest rank)."""
    return float(np.percentile(entries, percent, method="inverted_cdf"))


def spread_us(durations_ns: Sequence[int]) -> Spread:
    """Return the statistics of a sample in µs."""
    p50, p99, highest = (percentile(durations_ns, percent) / 1000 for percent in (50, 99, 100))
    return Spread(p50, p99, highest, len(durations_ns))


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
    return percentile(durations, 50) / 1000


def cpu_s(pid: int) -> float:
    """Return the user and system seconds that the process has used, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def resident_bytes(pid: int) -> int:
    """Return the process's resident memory."""
    return _status_bytes(pid, "VmRSS")


def peak_bytes(pid: int) -> int:
    """Return the process's peak resident memory, which psutil does not tell."""
    return _status_bytes(pid, "VmHWM")


def _status_bytes(pid: int, field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0
