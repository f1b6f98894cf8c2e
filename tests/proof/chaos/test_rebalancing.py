"""Faults while pods wait for the time after which their rules bend, and an enforcer moves them to better nodes."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.proof.chaos.rebalancing import LIMITS, RebalancedVenue, evictions, most_per_place
from tests.proof.chaos.run import Outcome, Run, Shape, repeatable
from tests.proof.chaos.virtual import run_virtually

_SHAPES = ("patient", "patient", "plain", "plain", "zonal", "even zones")
#: The moves of a run have ended so long before its end.
_QUIET_S = 100.0


def _run(seed: int, venue: RebalancedVenue) -> Outcome:
    with repeatable(seed):
        return run_virtually(Run(seed, Shape.ALONE, venue=venue, pods=_SHAPES).play())


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [24, 37])
def test_moves_are_few_spare_budgets_and_end(seed: int) -> None:
    """The enforcer dies with its memory, evictions lose their answers, nodes come and go. Judged as every run."""
    venue = RebalancedVenue(seed)
    outcome = _run(seed, venue)
    assert not outcome.wrongs, outcome.story()
    assert venue.crashes == []
    assert venue.others == []
    assert outcome.journal is not None
    found = list(evictions(outcome.journal))
    assert found, "no pod was moved: choose another seed"
    assert venue.n_lives > 1
    assert [one for one in found if one.breaks_budget] == []
    assert most_per_place(found) == 1
    for one, then in pairwise(found):
        assert then.at_s - one.at_s >= (LIMITS.pause_s if one.by == then.by else LIMITS.hold_s)
    last_at_s = outcome.began_s + venue.pace.last_at_s
    assert [one for one in found if last_at_s - _QUIET_S <= one.at_s < last_at_s] == []
