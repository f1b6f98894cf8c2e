"""The same runs on a real API server, behind a gateway of the tests' own that makes the faults; there time is real."""

from __future__ import annotations

import asyncio

import pytest

from tests.apiserver import Address
from tests.chaos.real import RealVenue
from tests.chaos.run import Shape, run_at

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(150)]


@pytest.mark.parametrize("shape", list(Shape), ids=lambda shape: shape.value)
@pytest.mark.parametrize("seed", [1])
def test_nothing_is_lost_doubled_or_misplaced(seed: int, shape: Shape, real_server: Address) -> None:
    """Faults for twenty seconds, then peace, then the verdict of what watches of the test's own have seen."""
    outcome = asyncio.run(run_at(RealVenue(real_server), seed, shape))
    assert not outcome.wrongs, outcome.story()
    assert outcome.n_binds > 0
