"""percentageOfNodesToScore: how many feasible nodes are scored, as upstream's numFeasibleNodesToFind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.model.stimuli import BindDone
from tests.support.driving import Driver, attempt_of


@pytest.mark.parametrize(
    ("n_nodes", "n_deleted", "percentage", "n_scored"),
    [
        (300, 0, 0, 300),  # every node, our default
        (300, 0, 100, 300),
        (300, 0, 50, 150),
        (300, 0, 10, 100),  # never fewer than 100
        (300, 0, 1, 100),
        (400, 200, 60, 120),  # of the live nodes, not of the rows that deleted ones leave
        (90, 0, 50, 90),
    ],
)
def test_the_percentage_is_of_live_nodes_and_never_fewer_than_a_hundred(
    n_nodes: int, n_deleted: int, percentage: int, n_scored: int
) -> None:
    """The pod's report says how many nodes were evaluated, and how many feasible ones were scored."""
    settings = default_settings()
    profiles = tuple(replace(one, percentage_of_nodes_to_score=percentage) for one in settings.profiles)
    cluster = Driver(settings=replace(settings, profiles=profiles))
    for number in range(n_nodes):
        cluster.node(f"n{number}")
    for number in range(n_deleted):
        cluster.lose_node(f"n{number}")
    pod = cluster.pod("p")
    cluster.cycle()
    attempt = attempt_of(cluster.handle(BindDone(pod.uid)))
    assert (attempt.n_evaluated, attempt.n_feasible) == (n_nodes - n_deleted, n_scored)
    cluster.audit()
