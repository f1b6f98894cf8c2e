"""Clocks and the arithmetic of samples."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import msgspec

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Spread(msgspec.Struct, frozen=True):
    """What a sample of durations says, in µs."""

    p50: float
    p99: float
    highest: float
    mean: float
    n: int


def percentile(ordered: Sequence[float], share: float) -> float:
    """
    The smallest entry that at least `share` of the ascending entries do not exceed (nearest rank).

    Raises ValueError for an empty sequence or a share outside of (0, 1].
    """
    if not ordered or not 0 < share <= 1:
        raise ValueError(f"percentile {share} of {len(ordered)} entries: expected a share in (0, 1] of some")
    return ordered[math.ceil(share * len(ordered)) - 1]


def spread_us(durations_ns: Sequence[int]) -> Spread:
    """The sample in µs. Raises ValueError for an empty one."""
    ordered = sorted(duration / 1000 for duration in durations_ns)
    return Spread(
        p50=percentile(ordered, 0.5),
        p99=percentile(ordered, 0.99),
        highest=ordered[-1],
        mean=sum(ordered) / len(ordered),
        n=len(ordered),
    )


def cpu_s(pid: int) -> float:
    """User and system seconds that the process has used; 10 ms steps."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def resident_bytes(pid: int) -> int:
    """Memory that the process holds now."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * PAGE_BYTES


def peak_bytes(pid: int) -> int:
    """The most memory that the process ever held."""
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
