"""What happens in the middle of a preemption: watches that lag, other preemptors, nodes that change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from scheduler.model.instructions import Bind, ClearNomination, EvictVictim, Instruction, PatchCondition
from scheduler.model.pods import Pod
from scheduler.model.stimuli import EvictionEnded, PodSeen, VictimFate
from tests.support import build
from tests.support.driving import Driver


@pytest.fixture
def cluster() -> Iterator[Driver]:
    """One node for two pods of 1 cpu."""
    made = Driver()
    made.node("n", allocatable={"cpu": "2"})
    yield made
    made.audit()


def _pod(cluster: Driver, name: str, priority: int = 0, *, cpu: str = "1", **more: Any) -> Pod:
    return cluster.pod(name, containers=[build.container(requests={"cpu": cpu})], priority=priority, **more)


def _evictions(instructions: list[Instruction]) -> list[str]:
    return [one.victim.name for one in instructions if isinstance(one, EvictVictim)]


def _end(cluster: Driver, pod: Pod, victim: Pod, fate: VictimFate = VictimFate.DELETED) -> list[Instruction]:
    return cluster.handle(EvictionEnded(pod.uid, victim.uid, fate))


def _show(cluster: Driver, pod: Pod, **changes: Any) -> Pod:
    """A watch shows the pod changed."""
    seen = replace(pod, resource_version=cluster.next_version(), **changes)
    cluster.handle(PodSeen(seen))
    return seen


def test_nobody_else_is_evicted_while_no_watch_has_shown_the_victim_s_end(cluster: Driver):
    cluster.node("m", allocatable={"cpu": "2"})
    low, other = _pod(cluster, "low", 0, cpu="2", node="n"), _pod(cluster, "other", 1, cpu="2", node="m")
    high = _pod(cluster, "high", 9, cpu="2")
    assert _evictions(cluster.cycle()) == ["low"]
    _end(cluster, high, low)
    # Something else wakes the pod before the watch shows that `low` ends.
    small = _pod(cluster, "small", 20, cpu="0", node="n")
    _show(cluster, other, priority=-1)
    cluster.lose(small)
    cluster.pass_time(20)
    assert _evictions(cluster.cycle()) == []
    cluster.lose(low)
    cluster.pass_time(20)
    assert [one.node_name for one in cluster.cycle() if isinstance(one, Bind)] == ["n"]


def test_two_preemptors_of_one_victim_are_both_tried_once_it_is_gone(cluster: Driver):
    low = _pod(cluster, "low", 0, cpu="2", node="n")
    first = _pod(cluster, "first", 5, cpu="1")
    assert _evictions(cluster.cycle()) == ["low"]
    second = _pod(cluster, "second", 9, cpu="1")
    cluster.cycle()
    cluster.lose(low)
    _end(cluster, first, low, VictimFate.GONE)
    _end(cluster, second, low, VictimFate.GONE)
    cluster.pass_time(20)
    bound = {one.pod.name for _ in range(4) for one in cluster.cycle() if isinstance(one, Bind)}
    assert bound == {"first", "second"}


def test_a_node_that_is_cordoned_in_the_middle_costs_no_further_victim(cluster: Driver):
    low, lower = _pod(cluster, "low", 1, node="n"), _pod(cluster, "lower", 0, node="n")
    high = _pod(cluster, "high", 9, cpu="2")
    assert _evictions(cluster.cycle()) == ["low"]
    assert cluster.machine.wants_eviction(high.uid, low.uid)
    _end(cluster, high, low)
    assert cluster.machine.wants_eviction(high.uid, lower.uid)
    cluster.node("n", allocatable={"cpu": "2"}, unschedulable=True)
    assert not cluster.machine.wants_eviction(high.uid, lower.uid)


def test_room_that_another_pod_took_costs_no_further_victim(cluster: Driver):
    low, lower = _pod(cluster, "low", 1, node="n"), _pod(cluster, "lower", 0, node="n")
    high = _pod(cluster, "high", 9, cpu="2")
    cluster.cycle()
    _end(cluster, high, low)
    cluster.lose(low)
    _pod(cluster, "thief", 9, node="n")
    assert not cluster.machine.wants_eviction(high.uid, lower.uid)


def test_a_nomination_that_no_watch_has_shown_yet_is_cleared_all_the_same(cluster: Driver):
    low = _pod(cluster, "low", 0, cpu="2", node="n")
    high = _pod(cluster, "high", 9, cpu="2")
    assert [one.nominated_node_name for one in cluster.cycle() if isinstance(one, PatchCondition)] == ["n"]
    _end(cluster, high, low, VictimFate.FAILED)
    cluster.node("n", allocatable={"cpu": "2"}, unschedulable=True)
    cluster.pass_time(20)
    assert [one.nominated_node_name for one in cluster.cycle() if isinstance(one, PatchCondition)] == [""]


def test_a_nomination_that_no_watch_has_shown_yet_yields_to_a_higher_priority(cluster: Driver):
    _pod(cluster, "low", 0, cpu="2", node="n")
    middle = _pod(cluster, "middle", 5, cpu="2")
    cluster.cycle()
    _pod(cluster, "high", 9, cpu="2")
    told = cluster.cycle()
    assert [one.pod.uid for one in told if isinstance(one, ClearNomination)] == [middle.uid]
    assert [pod.name for pod in cluster.state.nominated.on("n")] == ["high"]
