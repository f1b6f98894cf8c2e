"""Faults while pods wait for the time after which their rules count as preferred."""

from __future__ import annotations

import pytest

from tests.proof.chaos.run import Outcome, Shape, run
from tests.reference.fallback import marked


def _n_relaxed(outcome: Outcome) -> int:
    assert outcome.journal is not None
    pods = [one.obj for one in outcome.journal.written if one.kind == "Pod" and one.obj is not None]
    return len({pod["metadata"]["uid"] for pod in pods if marked(pod)})


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("shape", "seed"), [(Shape.ALONE, 5), (Shape.ELECTED, 0), (Shape.RIVALS, 3)])
def test_pods_are_relaxed_never_early_and_only_where_their_rules_yield(shape: Shape, seed: int) -> None:
    """Patient pods and few others; instances die, lose the Lease and their answers. Judged as every run."""
    outcome = run(seed, shape, ("patient", "patient", "plain", "zonal"))
    assert not outcome.wrongs, outcome.story()
    assert _n_relaxed(outcome) > 0, "no pod was relaxed: choose another seed"
