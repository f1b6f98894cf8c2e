"""
A group as one entry of the queue, as since kubernetes 1.37, beside 1.36, where each member is an entry.

The rows are those of pkg/scheduler/backend/queue, and of schedule_one_podgroup.go, validatePodGroup.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.model.instructions import EmitEvent
from scheduler.engine.model.semantics import Version, semantics_of
from scheduler.engine.model.stimuli import PodGone, TimePassed
from scheduler.engine.queueing.queued_pod import QueuedPod, SubQueue
from tests.engine.core.test_group_disruption import group_seen
from tests.support.driving import NAME, Driver, binds, conditions

GATED = "the pod group waits until none of its pods has scheduling gates"


def driver_of(minor: int) -> Driver:
    return Driver(settings=default_settings(semantics_of(Version(1, minor))))


@pytest.fixture
def cluster() -> Iterator[Driver]:
    driver = driver_of(37)
    yield driver
    driver.audit()


def show(cluster: Driver, name: str, group: str = "g", node: str | None = None, **more: Any) -> None:
    """Show a pod of 1 cpu, which is a member unless the group is empty."""
    of_group = {"schedulingGroup": {"podGroupName": group}} if group else {}
    cluster.pod(name, cpu="1", node=node, spec={**of_group, **more})


def end(cluster: Driver, name: str) -> None:
    cluster.handle(PodGone(f"uid-default-{name}"))


def members(cluster: Driver, n: int, first: int = 0, **more: Any) -> None:
    for index in range(first, n):
        show(cluster, f"m{index}", **more)


def gang(cluster: Driver, n: int, cpu: str, *, n_shown: int = 0, **more: Any) -> None:
    """Show a node with this cpu, and a group that needs so many members, with as many or with `n_shown`."""
    cluster.node("n", allocatable={"cpu": cpu})
    cluster.handle(group_seen("g", n, **more))
    members(cluster, n_shown or n)


def queued(cluster: Driver, name: str) -> QueuedPod:
    return cluster.queued(f"uid-default-{name}")


def fail(cluster: Driver, times: int, *names: str) -> None:
    """Let the group be tried in vain, long after its last attempt."""
    for _ in range(times):
        cluster.now_s += 1_000.0
        for name in names:
            cluster.queue.activate_each((f"uid-default-{name}",), cluster.now_s)
        assert not binds(cluster.cycle())


@pytest.mark.parametrize(("minor", "place"), [(36, SubQueue.ACTIVE), (37, SubQueue.BACKOFF)])
def test_a_new_member_waits_as_long_as_its_group(minor: int, place: SubQueue) -> None:
    cluster = driver_of(minor)
    gang(cluster, 3, "2")
    assert not binds(cluster.cycle())
    cluster.now_s += 0.5
    members(cluster, 4, first=3)
    assert queued(cluster, "m3").sub_queue is place
    cluster.pass_time(2.0)
    assert queued(cluster, "m3").sub_queue is SubQueue.ACTIVE
    cluster.audit()


def test_a_new_member_is_tried_at_once_with_a_group_that_waits_no_longer(cluster: Driver) -> None:
    """Its arrival is the event for which the group waits."""
    gang(cluster, 3, "2")
    cluster.cycle()
    cluster.now_s += 60.0
    members(cluster, 4, first=3)
    assert queued(cluster, "m3").sub_queue is SubQueue.ACTIVE
    cluster.cycle()
    assert {queued(cluster, f"m{index}").unschedulable_count for index in range(4)} == {2}


def test_a_new_member_of_a_group_that_failed_with_an_error_is_not_tried_before_the_others(
    cluster: Driver,
) -> None:
    """Without nodes nobody is rejected by a plugin; such pods are never popped early."""
    cluster.handle(group_seen("g", 2))
    members(cluster, 2)
    cluster.cycle()
    members(cluster, 3, first=2)
    assert queued(cluster, "m2").sub_queue is SubQueue.BACKOFF
    assert not cluster.machine.has_work()


def test_a_new_member_with_gates_joins_the_backoff_once_they_are_gone(cluster: Driver) -> None:
    gang(cluster, 3, "2")
    cluster.cycle()
    show(cluster, "m3", schedulingGates=[{"name": "hold"}])
    assert queued(cluster, "m3").sub_queue is SubQueue.GATED
    show(cluster, "m3")
    assert queued(cluster, "m3").sub_queue is SubQueue.BACKOFF


def test_a_new_member_of_a_group_that_has_its_minimum_is_tried_as_any_pod(cluster: Driver) -> None:
    gang(cluster, 2, "2", n_shown=3)
    assert len(binds(cluster.cycle())) == 2
    assert not binds(cluster.cycle())
    members(cluster, 4, first=3)
    assert queued(cluster, "m3").sub_queue is SubQueue.ACTIVE


@pytest.mark.parametrize(("minor", "longest_s"), [(36, 10), (37, 30)])
def test_the_longest_backoff_grows_with_the_root_of_the_number_of_members(minor: int, longest_s: int) -> None:
    cluster = driver_of(minor)
    gang(cluster, 9, "2")
    fail(cluster, 8, "m0")
    windows = {queued(cluster, f"m{index}").backoff_window_s for index in range(9)}
    assert windows == {cluster.now_s + longest_s}


def test_members_that_are_tried_alone_again_back_off_as_any_pod(cluster: Driver) -> None:
    gang(cluster, 9, "0")
    fail(cluster, 8, "m0")
    cluster.handle(group_seen("g"))
    fail(cluster, 1, "m0")
    tried = [each for each in cluster.queue.pods() if each.attempts == 9]
    assert [each.backoff_window_s for each in tried] == [cluster.now_s + 10]


@pytest.mark.parametrize(("minor", "n_longer"), [(36, 1), (37, 2)])
def test_members_back_off_as_the_one_that_failed_most_often(minor: int, n_longer: int) -> None:
    """The other came to the group from a group of its own, where it was tried less."""
    cluster = driver_of(minor)
    cluster.node("n", allocatable={"cpu": "1"})
    cluster.handle(group_seen("g", 2))
    cluster.handle(group_seen("h", 2))
    members(cluster, 2)
    fail(cluster, 3, "m0")
    show(cluster, "x", group="h")
    end(cluster, "m1")
    show(cluster, "x", group="g")
    fail(cluster, 1, "m0", "x")
    windows = [queued(cluster, name).backoff_window_s - cluster.now_s for name in ("m0", "x")]
    assert windows.count(8) == n_longer
    cluster.audit()


@pytest.mark.parametrize(("version", "first"), [("v1alpha2", "single"), ("v1beta1", "")])
def test_a_group_s_turn_is_by_its_own_priority(cluster: Driver, version: str, first: str) -> None:
    """From 1.37 on, its members of another priority are an error at that turn."""
    cluster.node("n", allocatable={"cpu": "3"})
    cluster.handle(group_seen("g", 2, priority=10, version=version))
    members(cluster, 2, priority=5)
    show(cluster, "single", group="", priority=7)
    assert binds(cluster.cycle()).keys() == ({first} if first else set())


def test_a_group_whose_object_comes_last_gets_its_turn_by_its_own_priority(cluster: Driver) -> None:
    members(cluster, 2, priority=5)
    cluster.handle(group_seen("g", 2, priority=10, version="v1beta1"))
    assert {queued(cluster, f"m{index}").priority for index in range(2)} == {10}
    end(cluster, "m0")
    show(cluster, "m1", group="", priority=5)
    assert queued(cluster, "m1").priority == 5


def test_a_member_that_comes_moves_no_other_in_the_queue(
    cluster: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once its group has a priority of its own, which no member's changes. Without, the lowest counts."""
    cluster.handle(group_seen("g", 3, priority=10, version="v1beta1"))
    members(cluster, 3, priority=5)
    ranked: list[str] = []
    rank = cluster.queue.rank

    def counted(uid: str, priority: int) -> None:
        ranked.append(uid)
        rank(uid, priority)

    monkeypatch.setattr(cluster.queue, "rank", counted)
    show(cluster, "late", priority=4)
    assert ranked == [queued(cluster, "late").uid]
    assert queued(cluster, "late").priority == 10
    cluster.handle(group_seen("g", 3, priority=20, version="v1beta1"))
    assert {queued(cluster, name).priority for name in ("m0", "m1", "m2", "late")} == {20}
    cluster.handle(group_seen("g", 3, version="v1beta1"))
    assert {queued(cluster, name).priority for name in ("m0", "m1", "m2", "late")} == {4}


@pytest.mark.parametrize(("version", "n_bound"), [("v1alpha2", 2), ("v1beta1", 0)])
def test_a_member_with_gates_holds_the_whole_group(cluster: Driver, version: str, n_bound: int) -> None:
    cluster.node("n", allocatable={"cpu": "4"})
    cluster.handle(group_seen("g", 2, version=version))
    show(cluster, "m2", schedulingGates=[{"name": "hold"}])
    members(cluster, 2)
    assert len(binds(cluster.cycle())) == n_bound
    if not n_bound:
        cluster.now_s += 6.0
        told = cluster.handle(TimePassed())
        assert set(conditions(told).values()) == {GATED}
    show(cluster, "m2")
    assert len(binds(cluster.cycle())) == 3 - n_bound


@pytest.mark.parametrize("waits_s", [0.0, 6.0], ids=["", "until it is told"])
def test_a_member_with_gates_holds_a_group_whose_turn_has_come(cluster: Driver, waits_s: float) -> None:
    gang(cluster, 2, "4", version="v1beta1")
    show(cluster, "m2", schedulingGates=[{"name": "hold"}])
    told = cluster.cycle()
    assert not binds(told)
    assert set(conditions(told).values()) == {GATED}
    cluster.pass_time(waits_s)
    end(cluster, "m2")
    cluster.pass_time(2.0)
    assert binds(cluster.cycle()).keys() == {"m0", "m1"}


@pytest.mark.parametrize(
    ("node", "differs", "text"),
    [
        pytest.param(
            "n", {"priority": 5}, "priority as the pod group's priority, got 5 and 0", id="priority, placed"
        ),
        pytest.param(
            None,
            {"preemptionPolicy": "Never"},
            "preemption policy, got Never and PreemptLowerPriority",
            id="preemption policy",
        ),
        pytest.param(
            "n",
            {"schedulerName": "other"},
            f'.spec.schedulerName set, got: "other" and "{NAME}"',
            id="scheduler, placed",
        ),
    ],
)
def test_members_that_differ_are_an_error_from_1_37(
    cluster: Driver, node: str | None, differs: dict[str, Any], text: str
) -> None:
    """Members on nodes count."""
    cluster.node("n", allocatable={"cpu": "4"})
    cluster.handle(group_seen("g", 3, priority=0, version="v1beta1"))
    members(cluster, 1)
    show(cluster, "other", node=node, **differs)
    members(cluster, 2, first=1)
    told = cluster.cycle()
    assert not binds(told)
    assert set(conditions(told).values()) == {f"all pods in a single pod group should have the same {text}"}


@pytest.mark.parametrize("version", ["v1alpha2", "v1beta1"])
def test_a_member_that_another_scheduler_places_wakes_the_group(cluster: Driver, version: str) -> None:
    cluster.node("n", allocatable={"cpu": "2"})
    cluster.node("cordoned", allocatable={"cpu": "1"}, unschedulable=True)
    cluster.handle(group_seen("g", 3, version=version))
    if version == "v1alpha2":
        show(cluster, "gated", schedulingGates=[{"name": "g"}])
    members(cluster, 3)
    assert not binds(cluster.cycle())
    show(cluster, "m2", node="cordoned")
    assert cluster.queue.depths()["unschedulable"] == 1, "one of two is woken, whose cycle takes the other"
    cluster.pass_time(3.0)
    assert binds(cluster.cycle()).keys() == {"m0", "m1"}


@pytest.mark.parametrize("minor", [36, 37])
def test_what_a_placed_group_leaves_keeps_its_turn(minor: int) -> None:
    """What comes later has its own."""
    cluster = driver_of(minor)
    gang(cluster, 2, "2", n_shown=3)
    shown_s = cluster.now_s
    cluster.now_s += 7.0
    assert len(binds(cluster.cycle())) == 2
    members(cluster, 4, first=3)
    (left,) = (each for each in cluster.queue.pods() if each.pod.name != "m3")
    assert (left.sub_queue, left.timestamp_s) == (SubQueue.ACTIVE, shown_s)
    assert queued(cluster, "m3").timestamp_s == cluster.now_s


def test_an_attempt_of_which_all_members_are_about_to_end_is_over(cluster: Driver) -> None:
    gang(cluster, 2, "4", version="v1beta1")
    for index in range(2):
        cluster.update(queued(cluster, f"m{index}").pod, terminating=True)
    told = cluster.cycle()
    assert not binds(told)
    assert any(isinstance(each, EmitEvent) and "skip schedule" in each.note for each in told)
    for index in range(2):
        end(cluster, f"m{index}")
    members(cluster, 4, first=2)
    assert binds(cluster.cycle()).keys() == {"m2", "m3"}
