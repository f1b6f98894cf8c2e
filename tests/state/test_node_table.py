"""Taints of nodes: which are not tolerated, and how many lists of them are remembered."""

from __future__ import annotations

import json

import pytest

from scheduler.model.instructions import Bind
from scheduler.model.nodes import decode_node
from scheduler.model.stimuli import CycleDue
from scheduler.model.terms import Toleration
from scheduler.state.cluster import ClusterState
from tests.support import build
from tests.support.driving import Driver


@pytest.mark.parametrize(
    ("tolerations", "soft", "hard"),
    [
        pytest.param((), [0, 1, 2, 0], [0, 0, 0, 1], id="none tolerated"),
        pytest.param((Toleration("k", "Exists"),), [0, 0, 1, 0], [0, 0, 0, 0], id="one key, every effect"),
        pytest.param(
            (Toleration("k", "Exists", effect="NoSchedule"),), [0, 1, 2, 0], [0, 0, 0, 0], id="one effect"
        ),
        pytest.param((Toleration(operator="Exists"),), [0, 0, 0, 0], [0, 0, 0, 0], id="all tolerated"),
    ],
)
def test_taints_are_counted_by_effect_unless_they_are_tolerated(
    tolerations: tuple[Toleration, ...], soft: list[int], hard: list[int]
) -> None:
    state = ClusterState()
    taints: tuple[list[str], ...] = (
        [],
        ["k=v:PreferNoSchedule"],
        ["k=v:PreferNoSchedule", "l:PreferNoSchedule"],
        ["k=v:NoSchedule"],
    )
    for number, its in enumerate(taints):
        state.upsert_node(decode_node(json.dumps(build.node(f"n{number}", taints=its)).encode()))
    assert state.masks.n_untolerated_taints(tolerations, ("PreferNoSchedule",)).tolist() == soft
    assert state.masks.n_untolerated_taints(tolerations, ("NoSchedule", "NoExecute")).tolist() == hard
    assert state.masks.tolerated(tolerations).tolist() == [not n for n in hard]


def test_taint_lists_that_no_node_has_any_more_are_forgotten() -> None:
    """Autoscalers put a time into their taints: a year of them is not remembered, and scores stay right."""
    driver = Driver()
    driver.node("plain")
    for number in range(1000):
        driver.node("busy", taints=[f"deletion={number}:PreferNoSchedule"])
        if number % 250 == 0:
            driver.pod(f"p{number}")
            (bind,) = [order for order in driver.handle(CycleDue()) if isinstance(order, Bind)]
            assert bind.node_name == "plain"
    assert len(driver.state.nodes.taint_sets) < 100
