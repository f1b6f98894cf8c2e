"""Clocks and the arithmetic of samples."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

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
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def resident_bytes(pid: int) -> int:
    """Memory that the process holds now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def peak_bytes(pid: int) -> int:
    """The most memory that the process ever held."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def children_of(pid: int | None = None) -> frozenset[int]:
    """Process ids whose parent is `pid`, ours unless said otherwise."""
    parent = os.getpid() if pid is None else pid
    tasks = Path(f"/proc/{parent}/task").iterdir()
    return frozenset(int(child) for task in tasks for child in (task / "children").read_text().split())
