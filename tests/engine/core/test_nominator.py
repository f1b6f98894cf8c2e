"""Nominations that end, most before a watch has shown them: who is woken, and what is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler.engine.model.instructions import Bind, ClearNomination, Instruction, PatchCondition
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import NodeGone, VictimFate
from tests.engine.core.preempting import end_eviction, sized_pod, victim_and_preemptor
from tests.support.driving import Driver, each_of, evictions


@pytest.fixture
def cluster(cluster: Driver) -> Driver:
    """Return a machine with one node for two pods of 1 cpu, and one that takes no pod."""
    cluster.node("m", allocatable={"cpu": "2"}, unschedulable=True)
    return cluster


def _nominations(instructions: list[Instruction]) -> list[str | None]:
    return [one.nominated_node_name for one in each_of(instructions, PatchCondition)]


def _binds(instructions: list[Instruction]) -> list[tuple[str, str]]:
    return [(one.pod.name, one.node_name) for one in each_of(instructions, Bind)]


def _is_gone(cluster: Driver, pod: Pod) -> None:
    cluster.lose(pod)


def _is_bound_by_another_scheduler(cluster: Driver, pod: Pod) -> None:
    cluster.update(pod, node_name="m")


def _finds_no_victims(cluster: Driver, pod: Pod) -> None:
    sized_pod(cluster, "important", 20, node="n")
    cluster.pass_time(20)
    cluster.queue.activate_each((pod.uid,), cluster.now_s)
    assert _nominations(cluster.cycle()) == [""]


def _is_taken_back_by_another(cluster: Driver, pod: Pod) -> None:
    """Of a pod that is about to end, and does not take the room itself."""
    shown = cluster.update(pod, nominated_node_name="n")
    cluster.update(shown, nominated_node_name="", terminating=True)


@pytest.mark.parametrize(
    "ends",
    [_is_gone, _is_bound_by_another_scheduler, _finds_no_victims, _is_taken_back_by_another],
    ids=["gone", "bound elsewhere", "no victims", "shown and taken back"],
)
def test_a_nomination_that_ends_wakes_whom_it_kept_out(
    cluster: Driver, ends: Callable[[Driver, Pod], None]
) -> None:
    low, high = victim_and_preemptor(cluster)
    end_eviction(cluster, high, low)
    cluster.update(low, terminating=True)
    cluster.lose(low)
    sized_pod(cluster, "small", 9)
    assert _binds(cluster.cycle()) == []
    ends(cluster, high)
    cluster.pass_time(20)
    assert _binds([one for _ in range(2) for one in cluster.cycle()]) == [("small", "n")]


def test_a_pod_that_is_held_for_its_evictions_hears_of_a_node_that_came_meanwhile(cluster: Driver) -> None:
    low, high = victim_and_preemptor(cluster)
    cluster.node("new", allocatable={"cpu": "2"})
    cluster.pass_time(20)
    assert cluster.cycle() == []
    end_eviction(cluster, high, low)
    # It takes its time to end.
    cluster.update(low, terminating=True)
    assert _binds(cluster.cycle()) == [("high", "new")]


def test_a_nomination_that_no_watch_shows_after_an_attempt_is_written_again(cluster: Driver) -> None:
    low = sized_pod(cluster, "low", 0, node="n", cpu="2")
    high = sized_pod(cluster, "high", 9, cpu="2")
    assert _nominations(cluster.cycle()) == ["n"]
    end_eviction(cluster, high, low, VictimFate.FAILED)
    cluster.pass_time(20)
    assert _nominations(cluster.cycle()) == ["n"]


def test_a_nomination_is_written_again_after_its_end_which_no_watch_shows_yet(cluster: Driver) -> None:
    sized_pod(cluster, "low", 0, node="n", cpu="2")
    high = sized_pod(cluster, "high", 9, status={"nominatedNodeName": "n"}, cpu="2")
    assert cluster.handle(NodeGone("n")) == [ClearNomination(high)]
    cluster.node("n", allocatable={"cpu": "2"})
    cluster.pass_time(20)
    told = cluster.cycle()
    assert evictions(told) == ["low"]
    assert _nominations(told) == ["n"]


def test_a_pod_that_moves_its_nomination_is_not_tried_again_for_that(cluster: Driver) -> None:
    low = sized_pod(cluster, "low", 0, node="n", cpu="2")
    high = sized_pod(cluster, "high", 9, status={"nominatedNodeName": "m"}, cpu="2")
    assert _nominations(cluster.cycle()) == ["n"]
    end_eviction(cluster, high, low)
    cluster.update(low, terminating=True)
    cluster.update(high, nominated_node_name="n")
    cluster.pass_time(20)
    assert cluster.cycle() == []
