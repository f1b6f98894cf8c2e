"""A run of each kind and shape, as `make chaos` plays them; `make fresh` and nights play seeds that are new."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.proof.chaos.kinds import KINDS, PLAIN, Kind


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_nothing_is_lost_doubled_or_misplaced(kind: Kind) -> None:
    """
    Forty virtual seconds of faults, a quiet time, and the verdict by the write log.

    In a separate process: there the order of sets is fixed, and a seed means one run.
    """
    n_runs = max(2, len(kind.shapes))
    flags = f"--seed 0 --runs {n_runs} --seconds 280 --shrink 0{'' if kind is PLAIN else f' --{kind.name}'}"
    command = [sys.executable, "-m", "tests.proof.chaos", *flags.split()]
    told = subprocess.run(command, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.startswith(f"{n_runs} runs from seed 0, "), told.stdout
    for what in kind.shows:
        assert re.search(f"^[1-9][0-9]* {what}$", told.stdout, re.MULTILINE), told.stdout
