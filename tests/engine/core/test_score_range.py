"""Scores have to be from 0 to 100 on feasible nodes; what others have, nobody reads."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler.engine.core.decide import _out_of_range
from scheduler.engine.framework.interface import FeasibleNodes
from tests.conformance.product import ProductSubject
from tests.support import build

FEASIBLE = FeasibleNodes(np.array([True, True, False]))


@pytest.mark.parametrize("scores", [[0, 100, 50], [100, 0, -1], [1, 99, 101]])
def test_scores_in_range_and_those_of_refused_nodes_are_right(scores: list[int]) -> None:
    assert _out_of_range("Mine", np.array(scores), FEASIBLE) == ""


@pytest.mark.parametrize(("scores", "named"), [([0, 101, 0], 101), ([-1, 0, 0], -1), ([200, 300, 0], 200)])
def test_the_first_score_out_of_range_is_named_in_upstreams_words(scores: list[int], named: int) -> None:
    assert _out_of_range("Mine", np.array(scores), FEASIBLE) == (
        "applying score defaultWeights on Score plugins: "
        f'plugin "Mine" returns an invalid score {named}, it should in the range of [0, 100] after normalizing'
    )


def test_a_score_that_wraps_ends_the_cycle_as_upstreams_does() -> None:
    """A hundred times so many bytes exceed what 64 bits hold; upstream multiplies before it divides."""
    strategy = {"type": "LeastAllocated", "resources": [{"name": "memory", "weight": 1}]}
    subject = ProductSubject(build.configuration({"NodeResourcesFit": {"scoringStrategy": strategy}}))
    for name in "ab":
        subject.apply(build.node(name, allocatable={"memory": "128Pi", "pods": "9"}))
    pod = build.pod("p", containers=[build.container(requests={"memory": "1Ki"})])
    assert "returns an invalid score -29," in subject.evaluate(pod)["error"]
