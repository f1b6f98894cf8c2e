"""Nominations that end, also before a watch has shown them: who is woken, and what is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from scheduler.model.instructions import Bind, EvictVictim, Instruction, PatchCondition
from scheduler.model.pods import Pod
from scheduler.model.stimuli import EvictionEnded, PodSeen, VictimFate
from tests.support import build
from tests.support.driving import Driver


@pytest.fixture
def cluster() -> Iterator[Driver]:
    """One node for two pods of 1 cpu, and one that takes no pod."""
    made = Driver()
    made.node("n", allocatable={"cpu": "2"})
    made.node("m", allocatable={"cpu": "2"}, unschedulable=True)
    yield made
    made.audit()


def _pod(cluster: Driver, name: str, priority: int, *, cpu: str = "2", **more: Any) -> Pod:
    return cluster.pod(name, containers=[build.container(requests={"cpu": cpu})], priority=priority, **more)


def _show(cluster: Driver, pod: Pod, **changes: Any) -> Pod:
    """A watch shows the pod changed."""
    seen = replace(pod, resource_version=cluster.next_version(), **changes)
    cluster.handle(PodSeen(seen))
    return seen


def _nominations(instructions: list[Instruction]) -> list[str | None]:
    return [one.nominated_node_name for one in instructions if isinstance(one, PatchCondition)]


def _binds(instructions: list[Instruction]) -> list[tuple[str, str]]:
    return [(one.pod.name, one.node_name) for one in instructions if isinstance(one, Bind)]


def _is_gone(cluster: Driver, pod: Pod) -> None:
    cluster.lose(pod)


def _is_bound_by_another_scheduler(cluster: Driver, pod: Pod) -> None:
    _show(cluster, pod, node_name="m")


def _finds_no_victims(cluster: Driver, pod: Pod) -> None:
    _pod(cluster, "important", 20, cpu="1", node="n")
    cluster.pass_time(20)
    # Its hint says nothing of the other pod, which needs 1 cpu alone.
    _show(cluster, pod, labels={"changed": "yes"})
    cluster.queue.activate(pod.uid, cluster.now_s)
    assert _nominations(cluster.cycle()) == [""]


@pytest.mark.parametrize(
    "ends",
    [_is_gone, _is_bound_by_another_scheduler, _finds_no_victims],
    ids=["gone", "bound elsewhere", "no victims"],
)
def test_a_nomination_that_no_watch_showed_wakes_whom_it_kept_out(
    cluster: Driver, ends: Callable[[Driver, Pod], None]
) -> None:
    low = _pod(cluster, "low", 0, node="n")
    high = _pod(cluster, "high", 9)
    cluster.cycle()
    cluster.handle(EvictionEnded(high.uid, low.uid, VictimFate.DELETED))
    _show(cluster, low, terminating=True)
    cluster.lose(low)
    small = _pod(cluster, "small", 1, cpu="1")
    assert _binds(cluster.cycle()) == []
    ends(cluster, high)
    cluster.pass_time(20)
    assert _binds([one for _ in range(2) for one in cluster.cycle()]) == [("small", "n")]
    assert small.uid not in cluster.state.preempting


def test_a_pod_that_is_held_for_its_evictions_hears_of_a_node_that_came_meanwhile(cluster: Driver) -> None:
    low = _pod(cluster, "low", 0, node="n")
    high = _pod(cluster, "high", 9)
    assert any(isinstance(one, EvictVictim) for one in cluster.cycle())
    cluster.node("new", allocatable={"cpu": "2"})
    cluster.pass_time(20)
    assert cluster.cycle() == []
    cluster.handle(EvictionEnded(high.uid, low.uid, VictimFate.DELETED))
    # It takes its time to end.
    _show(cluster, low, terminating=True)
    assert _binds(cluster.cycle()) == [("high", "new")]


def test_a_nomination_that_no_watch_shows_after_an_attempt_is_written_again(cluster: Driver) -> None:
    low = _pod(cluster, "low", 0, node="n")
    high = _pod(cluster, "high", 9)
    assert _nominations(cluster.cycle()) == ["n"]
    cluster.handle(EvictionEnded(high.uid, low.uid, VictimFate.FAILED))
    cluster.pass_time(20)
    assert _nominations(cluster.cycle()) == ["n"]


def test_a_nomination_is_written_again_after_its_end_which_no_watch_shows_yet(cluster: Driver) -> None:
    _pod(cluster, "low", 0, node="n")
    high = _pod(cluster, "high", 9, status={"nominatedNodeName": "n"})
    cluster.lose_node("n")
    cluster.node("n", allocatable={"cpu": "2"})
    cluster.pass_time(20)
    told = cluster.cycle()
    assert [one.preemptor.uid for one in told if isinstance(one, EvictVictim)] == [high.uid]
    assert _nominations(told) == ["n"]


def test_a_pod_that_moves_its_nomination_is_not_tried_again_for_that(cluster: Driver) -> None:
    low = _pod(cluster, "low", 0, node="n")
    high = _pod(cluster, "high", 9, status={"nominatedNodeName": "m"})
    assert _nominations(cluster.cycle()) == ["n"]
    cluster.handle(EvictionEnded(high.uid, low.uid, VictimFate.DELETED))
    _show(cluster, low, terminating=True)
    _show(cluster, high, nominated_node_name="n")
    cluster.pass_time(20)
    assert cluster.cycle() == []
