"""The results of one run, as written to the JSON file."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import msgspec
import numpy as np

from tests.bench.core_level import CoreResult
from tests.bench.holds import HoldResult
from tests.bench.hostile_level import HostileResult
from tests.bench.http_level import HttpResult
from tests.bench.measuring import yardstick_us


class Machine(msgspec.Struct, frozen=True):
    """The machine of a run; `load` is the one-minute load average at its start: other load disturbs times."""

    cpu: str
    n_cpus: int
    python: str
    numpy: str
    load: float
    #: See `measuring.yardstick_us`.
    yardstick_us: float


class Results(msgspec.Struct):
    """One run; lists of levels that were not requested are empty."""

    machine: Machine
    core: list[CoreResult] = []
    #: The same shapes with crowds of several sizes.
    flatness: list[CoreResult] = []
    http: list[HttpResult] = []
    holds: list[HoldResult] = []
    hostile: list[HostileResult] = []


def this_machine() -> Machine:
    """Return the machine and interpreter of this process."""
    return Machine(
        cpu=platform.processor() or platform.machine(),
        n_cpus=os.cpu_count() or 1,
        python=platform.python_version(),
        numpy=np.__version__,
        load=round(os.getloadavg()[0], 2),
        yardstick_us=round(yardstick_us(), 1),
    )


def write(results: Results, path: Path) -> None:
    """Write the run to the file as indented JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
