"""
Ratios of costs of one run, which are compared between versions instead of times.

core    decision of a shape : decision of `basic` (p50)
flat    decision with the largest crowd : with the smallest, of one shape (p50)
bytes   a pod event of a shape : of `basic`
http    scheduler's CPU per pod of a shape : of `basic`, on the embedded cluster

The cost of `basic` is in yardsticks (`measuring.yardstick_us`), so that a slowdown of every shape is found too.
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
_BASIC: Final = "basic"

Ratios = Mapping[str, float]


def ratios_of(results: Results) -> dict[str, float]:
    """Return every ratio of the run by row: `level/shape`."""
    ours = [r for r in results.http if r.scheduler == "ours" and r.server == "devcluster"]
    us_by_shape = {
        "core": {r.shape: r.decision.p50 for r in results.core},
        "bytes": {r.shape: r.event_us for r in results.bytes},
        "http": {r.shape: r.cpu_ms_per_pod * 1000 for r in ours},
    }
    found = _flatness(results)
    for level, costs in us_by_shape.items():
        found |= _against_basic(level, costs, results.machine.yardstick_us)
    return found


def _against_basic(level: str, us_by_shape: Mapping[str, float], yardstick_us: float) -> dict[str, float]:
    basic = us_by_shape.get(_BASIC)
    if not basic:
        return {}
    bases = {name: yardstick_us if name == _BASIC else basic for name in us_by_shape}
    return {f"{level}/{name}": round(us / bases[name], 3) for name, us in us_by_shape.items() if bases[name]}


def _flatness(results: Results) -> dict[str, float]:
    found: dict[str, float] = {}
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
