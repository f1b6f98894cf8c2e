"""The same runs on a real API server in real time, behind a gateway that makes the faults."""

from __future__ import annotations

import asyncio

import pytest

from tests.proof.chaos.kinds import PLAIN, Shape
from tests.proof.chaos.real import RealVenue
from tests.proof.chaos.run import run_at
from tests.support.apiserver import Address

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.mark.parametrize("shape", PLAIN.shapes, ids=lambda shape: shape.value)
def test_nothing_is_lost_doubled_or_misplaced(shape: Shape, real_server: Address) -> None:
    """Twenty seconds of faults, a quiet time, then the verdict by the watches of the test."""
    outcome = asyncio.run(run_at(RealVenue.at(real_server), 1, shape))
    assert not outcome.wrongs, outcome.story()
    assert outcome.judgement.n_binds > 0
