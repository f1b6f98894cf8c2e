"""Whom a pending pod would evict, told by `explain`, which evicts nobody."""

from typing import Any

from tests.support import build
from tests.support.build import Json
from tests.support.json_cluster import Cluster


def _pod(name: str, priority: int, **more: Any) -> Json:
    containers = [build.container(requests={"cpu": "1"})]
    return build.pod(name, containers=containers, spec={"priority": priority}, **more)


def test_the_victims_and_their_node_are_named() -> None:
    node = build.node("a", allocatable={"cpu": "2"})
    running = [_pod("low", 1, node="a"), _pod("lower", 0, node="a")]
    answer = Cluster([node], running).explain(_pod("high", 9))
    assert answer.message == "0/1 nodes are available: 1 Insufficient cpu."
    assert answer.notes == ("preemption makes room on node a: it evicts default/lower (priority 0)",)


def test_without_a_victim_the_message_says_why() -> None:
    node = build.node("a", allocatable={"cpu": "1"})
    answer = Cluster([node], [_pod("equal", 9, node="a")]).explain(_pod("high", 9))
    assert answer.notes == ()
    assert answer.message.endswith(
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )
