"""
What is compared between versions: ratios of costs measured in one run, never times.

core    decision of a shape (p50), in yardsticks (`measuring.yardstick_us`)
flat    decision with the largest crowd : with the smallest, of one shape (p50)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tests.bench.results import Results

COMMITTED: Final = Path(__file__).with_name("ratios.json")
#: Growth of a ratio that does not count as a regression.
TOLERANCE: Final = 0.25

Ratios = Mapping[str, float]


def ratios_of(results: Results) -> dict[str, float]:
    """Return every ratio that the run gives, by row: `level/shape`."""
    yardstick_us = results.machine.yardstick_us
    found = {f"core/{row.shape}": round(row.decision.p50 / yardstick_us, 3) for row in results.core}
    for shape in dict.fromkeys(row.shape for row in results.flatness):
        rows = sorted((r for r in results.flatness if r.shape == shape), key=lambda r: r.n_running)
        if len(rows) > 1:
            found[f"flat/{shape}"] = round(rows[-1].decision.p50 / rows[0].decision.p50, 3)
    return found


def regressions(measured: Ratios, committed: Ratios) -> list[str]:
    """Return one line for each row that is more than 25 % slower than committed, or has no committed ratio."""
    lines = []
    for row, ratio in measured.items():
        known = committed.get(row)
        if known is None:
            lines.append(f"{row}: {ratio:.2f}, nothing committed to compare with")
        elif ratio > known * (1 + TOLERANCE):
            lines.append(f"{row}: {ratio:.2f}, committed {known:.2f}, at most {known * (1 + TOLERANCE):.2f}")
    return lines


def lower(first: Ratios, second: Ratios) -> dict[str, float]:
    """Return the lower ratio of two runs for each row, since disturbances only make measurements slower."""
    return {row: min(ratio, second.get(row, ratio)) for row, ratio in first.items()}


def read(path: Path = COMMITTED) -> dict[str, float]:
    """Return the committed ratios; none if there is no file."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, float]) if path.exists() else {}


def write(ratios: Ratios, path: Path = COMMITTED) -> None:
    """Write these ratios to the file, and keep its other rows."""
    merged = dict(sorted({**read(path), **ratios}.items()))
    path.write_bytes(msgspec.json.format(msgspec.json.encode(merged), indent=2) + b"\n")
