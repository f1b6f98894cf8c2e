"""A share of the chaos suite with fixed seeds; `make chaos` runs as many as time allows."""

from __future__ import annotations

import pytest

from tests.chaos.run import Shape, run


@pytest.mark.slow
@pytest.mark.parametrize("shape", list(Shape), ids=lambda shape: shape.value)
@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_lost_doubled_or_misplaced(seed: int, shape: Shape) -> None:
    """Faults for forty seconds of the run's own clock, then peace, then the verdict of the write log."""
    outcome = run(seed, shape)
    assert not outcome.wrongs, outcome.story()
    assert outcome.n_binds > 0
