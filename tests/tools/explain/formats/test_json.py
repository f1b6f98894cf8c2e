"""The JSON of explanations is stable."""

from __future__ import annotations

import msgspec
from syrupy.assertion import SnapshotAssertion

from scheduler.tools.explain.formats.explanation import Explanation
from scheduler.tools.explain.pending import PendingWorkloads
from scheduler.tools.explain.simulation.drain import Drain
from scheduler.tools.explain.simulation.replicas import Simulation
from tests.support import build
from tests.support.json_cluster import Cluster


def test_the_fields_of_each_part_keep_their_names(snapshot: SnapshotAssertion) -> None:
    """None is ever left out: COMPATIBILITY.md promises it."""
    _, parts = msgspec.json.schema_components([Explanation, Simulation, Drain, PendingWorkloads])
    assert {"RemovePod", "Skew", "RankedNode", "ZoneShare", "StayingPods"} <= parts.keys()
    assert {name: " ".join(part.get("properties", ())) for name, part in parts.items()} == snapshot


def test_scores_of_a_bound_pod_add_up_and_start_with_its_node() -> None:
    nodes = [build.node(f"n{i}", allocatable={"cpu": str(2 + i)}) for i in range(4)]
    pod = build.pod("p", node="n0", cpu="1")
    answer = Cluster(nodes, [pod]).explain(pod)
    assert [ranked.node for ranked in answer.scores] == ["n0", "n3", "n2", "n1"]
    assert [ranked.total for ranked in answer.scores] == [sum(r.scores.values()) for r in answer.scores]
    assert answer.n_feasible == 4
