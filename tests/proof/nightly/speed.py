"""The ratios of the last nights, in which a slow decline is seen that no comparison with one number shows."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Final

import msgspec

from tests.bench.ratios import Ratios, ratios_of
from tests.bench.results import Results

_FILE: Final = Path(__file__).with_name("ratios.json")
#: Nights that are kept, and how many of them it takes to speak of a decline.
_MOST, _LEAST = 30, 3
#: Growth beyond the median of the nights.
_TOLERANCE: Final = 0.10


class Night(msgspec.Struct):
    """The ratios of one night."""

    date: str
    commit: str
    ratios: dict[str, float]


def measured(path: Path) -> dict[str, float]:
    """Return the ratios of a run whose results are in the file; none without a file."""
    return ratios_of(msgspec.json.decode(path.read_bytes(), type=Results)) if path.exists() else {}


def nights(path: Path = _FILE) -> list[Night]:
    """Return the nights that are kept, the oldest first."""
    return msgspec.json.decode(path.read_bytes(), type=list[Night]) if path.exists() else []


def declines(ratios: Ratios, path: Path = _FILE) -> list[str]:
    """Return a line for each ratio that is over a tenth more than the median of the nights before."""
    lines = []
    for row, ratio in ratios.items():
        before = [night.ratios[row] for night in nights(path) if row in night.ratios]
        if len(before) >= _LEAST and ratio > (usual := statistics.median(before)) * (1 + _TOLERANCE):
            lines.append(f"decline {row}: {ratio:.2f}, {usual:.2f} in the {len(before)} nights before")
    return lines


def remember(ratios: Ratios, date: str, commit: str, path: Path = _FILE) -> None:
    """Add a night, and forget the oldest."""
    kept = [*nights(path), Night(date, commit, dict(ratios))][-_MOST:]
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
