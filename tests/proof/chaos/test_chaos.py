"""A share of the chaos suite with fixed seeds; `make chaos` runs as many as time allows."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.proof.chaos.run import Shape


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("shape", list(Shape), ids=lambda shape: shape.value)
def test_nothing_is_lost_doubled_or_misplaced(shape: Shape) -> None:
    """
    Two runs of forty virtual seconds of faults, a quiet time, and the verdict by the write log.

    In a separate process, as `make chaos`: there the order of sets is fixed, and a seed means one run.
    """
    flags = f"--seed 0 --runs 2 --shape {shape.value} --seconds 280 --shrink 0"
    command = [sys.executable, "-m", "tests.proof.chaos", *flags.split()]
    told = subprocess.run(command, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.startswith("2 runs from seed 0, "), told.stdout
    assert (" evictions\n" in told.stdout) == shape.is_ranked, told.stdout
