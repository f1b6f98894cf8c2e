"""Without the gate SchedulerAsyncPreemption the loop waits for the evictions, and reports the attempt after them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.model.instructions import Bind, ClearNomination, EmitEvent, Instruction, PatchCondition
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Gate, semantics_of
from scheduler.engine.model.stimuli import VictimFate
from scheduler.engine.queueing.queued_pod import SubQueue
from tests.engine.core.preempting import end_eviction, evictions, node_for_two, sized_pod
from tests.support.driving import Driver, attempt_of, bind_of, condition_of, event_of, kinds


@pytest.fixture
def cluster() -> Iterator[Driver]:
    """One node for two pods of 1 cpu."""
    off = semantics_of(DEFAULT_SEMANTICS.version, {Gate.SCHEDULER_ASYNC_PREEMPTION: False})
    yield from node_for_two(default_settings(off))


def _preempting(cluster: Driver) -> tuple[Pod, Pod, Pod, list[Instruction]]:
    """Two pods leave for one. Returns it, the two, and what its cycle told."""
    low, lower = sized_pod(cluster, "low", 1, node="n"), sized_pod(cluster, "lower", 0, node="n")
    high = sized_pod(cluster, "high", 9, cpu="2")
    return high, low, lower, cluster.cycle()


def test_all_victims_go_at_once_and_the_attempt_is_reported_after_them(cluster: Driver) -> None:
    high, low, lower, told = _preempting(cluster)
    assert evictions(told) == ["low", "lower"]
    assert kinds(told) == ["EvictVictim", "EvictVictim"]
    assert kinds(end_eviction(cluster, high, lower)) == ["EmitEvent"]
    told = end_eviction(cluster, high, low)
    assert kinds(told) == ["EmitEvent", "Attempted", "EmitEvent", "PatchCondition"]
    assert condition_of(told).nominated_node_name == "n"
    assert condition_of(told).message == "0/1 nodes are available: 1 Insufficient cpu."
    assert attempt_of(told).n_victims == 2
    assert not cluster.state.preempting
    cluster.lose(low)
    cluster.lose(lower)
    cluster.pass_time(20)
    assert bind_of(cluster.cycle()).node_name == "n"


def test_no_pod_is_tried_meanwhile(cluster: Driver) -> None:
    high, low, lower, _ = _preempting(cluster)
    sized_pod(cluster, "small", 0, cpu="0")
    assert not cluster.machine.has_work()
    assert cluster.cycle() == []
    end_eviction(cluster, high, low)
    assert not cluster.machine.has_work()
    end_eviction(cluster, high, lower)
    assert cluster.machine.has_work()
    assert isinstance(cluster.cycle()[0], Bind)


def test_pods_of_lower_priority_lose_their_nomination_after_the_evictions(cluster: Driver) -> None:
    low = sized_pod(cluster, "low", 0, node="n", cpu="2")
    middle = cluster.pod("middle", priority=5, gates=["wait"])
    cluster.pod("middle", priority=5, status={"nominatedNodeName": "n"}, gates=["wait"])
    high = sized_pod(cluster, "high", 9, cpu="2")
    assert kinds(cluster.cycle()) == ["EvictVictim"]
    assert cluster.state.nominated.node_of(middle.uid) == "n"
    assert kinds(end_eviction(cluster, high, low))[-1] == "ClearNomination"
    assert cluster.state.nominated.node_of(middle.uid) == ""


def test_an_eviction_that_fails_fails_postfilter(cluster: Driver) -> None:
    """The nomination stays as it was, and the pod waits for an event, as upstream (schedule_one.go, 1.36)."""
    high, low, lower, _ = _preempting(cluster)
    end_eviction(cluster, high, lower)
    told = end_eviction(cluster, high, low, VictimFate.FAILED, 'pods "low" is forbidden: no')
    condition = condition_of(told)
    assert condition.nominated_node_name is None
    assert condition.message == (
        '0/1 nodes are available: 1 Insufficient cpu. preemption: pods "low" is forbidden: no'
    )
    assert event_of(told).reason == "FailedScheduling"
    assert attempt_of(told).n_victims == 0
    queued = cluster.queue.get(high.uid)
    assert queued is not None and queued.sub_queue is SubQueue.UNSCHEDULABLE
    assert not cluster.state.nominated


def test_a_preemptor_that_is_gone_is_nominated_nowhere(cluster: Driver) -> None:
    high, low, lower, _ = _preempting(cluster)
    cluster.lose(high)
    end_eviction(cluster, high, low)
    told = end_eviction(cluster, high, lower, VictimFate.SPARED)
    assert [one.reason for one in told if isinstance(one, EmitEvent)] == ["FailedScheduling"]
    assert [one for one in told if isinstance(one, PatchCondition)]
    assert not cluster.state.nominated
    assert not cluster.machine.has_work()


def test_victims_that_all_end_already_take_the_node_from_nominated_pods_of_lower_priority(
    cluster: Driver,
) -> None:
    sized_pod(cluster, "low", 0, cpu="2", node="n", terminating=True)
    middle = sized_pod(cluster, "middle", 5, cpu="2", gates=["held"])
    cluster.state.nominate(middle, "n")
    sized_pod(cluster, "high", 9, cpu="2")
    told = cluster.cycle()
    assert condition_of(told).nominated_node_name == "n"
    assert [one.pod.uid for one in told if isinstance(one, ClearNomination)] == [middle.uid]


def test_a_victim_that_is_evicted_for_a_group_too_ends_the_wait(cluster: Driver) -> None:
    """The answer names the group, for which the eviction began; without a report no pod would be tried any more."""
    low = sized_pod(cluster, "low", 0, node="n", cpu="2")
    labels = {GROUP: "g", MIN_COUNT: "2"}
    members = [sized_pod(cluster, name, 5, labels=labels) for name in ("one", "other")]
    assert evictions(cluster.cycle()) == ["low"]
    high = sized_pod(cluster, "high", 9, cpu="2")
    assert evictions(cluster.cycle()) == []
    assert not cluster.machine.has_work()
    told = end_eviction(cluster, members[0], low)
    assert attempt_of(told).pod.uid == high.uid
    cluster.lose(low)
    cluster.pass_time(20)
    assert bind_of(cluster.cycle()).pod.uid == high.uid


def test_a_problem_of_another_eviction_is_not_the_attempt_s(cluster: Driver) -> None:
    low = sized_pod(cluster, "low", 0, node="n", cpu="2")
    members = [sized_pod(cluster, name, 5, labels={GROUP: "g", MIN_COUNT: "2"}) for name in ("one", "other")]
    assert evictions(cluster.cycle()) == ["low"]
    cluster.node("m", allocatable={"cpu": "3"})
    last = sized_pod(cluster, "last", 0, node="m", cpu="3")
    high = sized_pod(cluster, "high", 9, cpu="3")
    assert evictions(cluster.cycle()) == ["last"]
    assert end_eviction(cluster, members[0], low, VictimFate.FAILED, "denied") == []
    told = end_eviction(cluster, high, last)
    assert attempt_of(told).n_victims == 1
    assert condition_of(told).nominated_node_name == "m"
