"""Whatever waits for time: it is due from its time on until TimePassed has been handled, and not after that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler.engine.model.group_topology import REQUIRED_TOPOLOGY
from scheduler.engine.model.instructions import Bind
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT, RELEASE_AFTER
from scheduler.engine.model.stimuli import TimePassed
from tests.engine.core.test_group_levels import RACK, placed
from tests.engine.core.test_lost_members import OWNER, fill, member, rack
from tests.support.driving import Driver, bind_of, each_of


def _backoff(driver: Driver) -> None:
    driver.node("a")
    pod = driver.pod("p")
    bind_of(driver.cycle())
    driver.fail_bind(pod, "no")


def _unschedulable(driver: Driver) -> None:
    driver.node("a")
    driver.pod("p", cpu="100")
    driver.cycle()


def _incomplete(driver: Driver) -> None:
    driver.pod("p", labels={GROUP: "g", MIN_COUNT: "2"})


def _refusal(driver: Driver) -> None:
    driver.node("a")
    driver.state.kubelet_refusals.record(driver.pod("p", node="a").spec, "a", "OutOfcpu", driver.now_s)


def _nominated(driver: Driver) -> None:
    driver.node("a")
    labels, status = {GROUP: "g", MIN_COUNT: "2"}, {"nominatedNodeName": "a"}
    for index in range(2):
        driver.pod(f"p{index}", labels=labels, cpu="100", status=status)


def _lost(*asked: str) -> Callable[[Driver], None]:
    def lose(driver: Driver) -> None:
        levels = {REQUIRED_TOPOLOGY: RACK, **dict.fromkeys(asked, "20")}
        rack(driver, "r1", 3)
        pods = [member(driver, index, 3, levels, owner=OWNER) for index in range(3)]
        nodes = placed(driver)
        pods = [driver.confirm(pod, nodes[pod.name]) for pod in pods]
        driver.lose(pods[1])
        fill(driver, nodes["m1"])
        member(driver, 1, 3, levels, generation="-new", owner=OWNER)
        assert not each_of(driver.cycles(), Bind)

    return lose


_MAKERS = {
    "the end of a backoff": _backoff,
    "the flush of unschedulable pods": _unschedulable,
    "the report of an incomplete group": _incomplete,
    "the end of a kubelet's refusal": _refusal,
    "the end of another's nomination": _nominated,
    "the report of lost members": _lost(),
    "the release of a group": _lost(RELEASE_AFTER),
}


@pytest.mark.parametrize("late_s", [0.0, 0.3, 40.0])
@pytest.mark.parametrize("make", _MAKERS.values(), ids=_MAKERS)
def test_what_is_due_stays_due_until_the_time_is_handled(
    driver: Driver, make: Callable[[Driver], None], late_s: float
) -> None:
    make(driver)
    due_s = driver.machine.next_wake_s(driver.now_s)
    n_handled, end_s = 0, driver.now_s + 400.0
    while due_s is not None and due_s < end_s:
        assert due_s > driver.now_s
        driver.now_s = due_s + late_s
        assert driver.machine.next_wake_s(driver.now_s) == driver.now_s
        driver.handle(TimePassed())
        n_handled += 1
        due_s = driver.machine.next_wake_s(driver.now_s)
        assert due_s is None or due_s > driver.now_s
        driver.cycles()
        due_s = driver.machine.next_wake_s(driver.now_s)
    assert n_handled
