"""A node whose kubelet refuses a pod is excluded for pods of that spec, for a limited time."""

from __future__ import annotations

import pytest

from scheduler.engine.model.pods import Pod
from scheduler.engine.state.kubelet_refusals import CAPACITY, FIRST_S, LONGEST_S
from tests.support.driving import Driver, bind_of, condition_of
from tests.support.messages import refusals

LARGE, SMALL = {"cpu": "8"}, {"cpu": "4"}
FEW = {"cpu": "1"}


def fail(
    driver: Driver, seen: Pod, reason: str = "OutOfcpu", message: str = "", phase: str = "Failed"
) -> None:
    """Show the pod on its node, with a status as a kubelet writes it."""
    status = {"phase": phase, "reason": reason, "message": message}
    driver.pod(seen.name, uid=seen.uid, node=seen.node_name, cpu="1", status=status)


def refused_on(driver: Driver, name: str) -> str:
    """Bind a pod, let its node's kubelet refuse it, and return the node."""
    seen = driver.pod(name, cpu="1")
    node_name = bind_of(driver.cycle()).node_name
    fail(driver, driver.confirm(seen, node_name))
    return node_name


def node_for(driver: Driver, name: str) -> str:
    """Return the node on which a new pod of the same spec is placed."""
    seen = driver.pod(name, cpu="1")
    node_name = bind_of(driver.cycle()).node_name
    driver.confirm(seen, node_name)
    return node_name


def test_the_replacement_goes_elsewhere(driver: Driver) -> None:
    driver.node("best", allocatable=LARGE)
    driver.node("other", allocatable=SMALL)
    assert refused_on(driver, "first") == "best"
    assert node_for(driver, "second") == "other"


def test_other_specs_are_not_concerned(driver: Driver) -> None:
    driver.node("best", allocatable=LARGE)
    driver.node("other", allocatable=SMALL)
    refused_on(driver, "first")
    driver.pod("else", cpu="2")
    assert bind_of(driver.cycle()).node_name == "best"


def test_where_no_other_node_fits_the_pod_waits_says_why_and_is_woken(driver: Driver) -> None:
    """The end of an exclusion is an event, so pods neither fail in a loop nor wait too long."""
    driver.node("only")
    driver.node("full", allocatable=FEW)
    driver.pod("filler", cpu="1", node="full")
    refused_on(driver, "first")
    driver.pod("second", cpu="1")
    assert refusals(condition_of(driver.cycle()).message) == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) refused such a pod shortly before (OutOfcpu)."
    )
    assert not driver.machine.has_work()
    wake_s = driver.machine.next_wake_s(driver.now_s)
    assert wake_s == driver.now_s + FIRST_S
    driver.pass_time(FIRST_S)
    assert driver.machine.has_work()
    assert bind_of(driver.cycle()).node_name == "only"


def test_each_refusal_doubles_the_time_up_to_a_bound(driver: Driver) -> None:
    driver.node("only")
    waits = []
    for number in range(9):
        refused_on(driver, f"p{number}")
        ends_s = driver.state.kubelet_refusals.next_s
        assert ends_s is not None
        waits.append(ends_s - driver.now_s)
        driver.pass_time(waits[-1])
    assert waits == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0]
    assert driver.state.kubelet_refusals.n_refused == 9


def test_after_some_time_without_refusals_everything_is_forgotten(driver: Driver) -> None:
    driver.node("only")
    refused_on(driver, "first")
    driver.pass_time(FIRST_S)
    refusals = driver.state.kubelet_refusals
    assert len(refusals._exclusions) == 1
    assert refusals.next_s is not None
    assert not refusals.copy().expire(refusals.next_s), "it ended before, and no pod waits for it"
    driver.pass_time(LONGEST_S)
    assert not driver.state.kubelet_refusals._exclusions
    assert driver.state.kubelet_refusals.next_s is None


def test_a_pod_that_starts_on_the_node_ends_the_exclusion(driver: Driver) -> None:
    """Another pod of the spec, bound before the refusal, was accepted after it."""
    driver.node("only")
    earlier = driver.pod("earlier", cpu="1")
    driver.cycle()
    earlier = driver.confirm(earlier, "only")
    refused_on(driver, "first")
    driver.pod("second", cpu="1")
    condition_of(driver.cycle())
    fail(driver, earlier, reason="", phase="Running")
    driver.pass_time(2.0)
    assert bind_of(driver.cycle()).node_name == "only"


def test_a_pod_that_ran_before_the_refusal_does_not_end_the_exclusion(driver: Driver) -> None:
    """That it still runs does not mean that the next one would."""
    driver.node("only")
    earlier = driver.pod("earlier", cpu="1")
    driver.cycle()
    earlier = driver.confirm(earlier, "only")
    fail(driver, earlier, reason="", phase="Running")
    refused_on(driver, "first")
    fail(driver, earlier, reason="", phase="Running")
    assert driver.state.kubelet_refusals.n_excluded == 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda driver: driver.node("only", allocatable={"cpu": "9"}), id="grown"),
        pytest.param(lambda driver: driver.node("only", labels={"a": "b"}), id="relabelled"),
        pytest.param(lambda driver: (driver.lose_node("only"), driver.node("only")), id="replaced"),
    ],
)
def test_a_changed_or_recreated_node_is_not_excluded(driver: Driver, change) -> None:
    driver.node("only")
    refused_on(driver, "first")
    driver.pod("second", cpu="1")
    condition_of(driver.cycle())
    change(driver)
    driver.pass_time(2.0)
    assert bind_of(driver.cycle()).node_name == "only"


def test_a_heartbeat_of_the_node_does_not_end_the_exclusion(driver: Driver) -> None:
    driver.node("only")
    refused_on(driver, "first")
    driver.node("only")
    assert driver.state.kubelet_refusals.n_excluded == 1


@pytest.mark.parametrize(
    ("reason", "message", "phase", "counts"),
    [
        pytest.param("OutOfmemory", "", "Failed", True, id="OutOfmemory"),
        pytest.param("OutOfnvidia.com/gpu", "", "Failed", True, id="an extended resource"),
        pytest.param("NodeAffinity", "", "Failed", True, id="NodeAffinity"),
        pytest.param("UnexpectedAdmissionError", "", "Failed", True, id="UnexpectedAdmissionError"),
        pytest.param(
            "NodeShutdown", "Pod was rejected: the node is shutting down", "Failed", True, id="shutdown"
        ),
        pytest.param("Evicted", "Pod was rejected: DiskPressure", "Failed", True, id="under pressure"),
        pytest.param("Evicted", "The node was low on resource: memory.", "Failed", False, id="evicted later"),
        pytest.param("DeadlineExceeded", "", "Failed", False, id="its own deadline"),
        pytest.param("", "", "Failed", False, id="its containers failed"),
        pytest.param("OutOfcpu", "", "Succeeded", False, id="succeeded"),
        pytest.param("OutOf\x1b[31m\n", "", "Failed", False, id="no reason that a kubelet gives"),
        pytest.param("OutOf" + "x" * 500, "", "Failed", False, id="too long"),
    ],
)
def test_only_a_kubelets_refusal_counts(
    driver: Driver, reason: str, message: str, phase: str, counts: bool
) -> None:
    driver.node("only")
    seen = driver.pod("p", cpu="1")
    driver.cycle()
    fail(driver, driver.confirm(seen, "only"), reason, message, phase)
    assert driver.state.kubelet_refusals.n_excluded == int(counts)


def test_refusals_of_other_schedulers_pods_and_of_pods_never_seen_placed_do_not_count(driver: Driver) -> None:
    """A pod that failed before this process started may be a year old."""
    driver.node("only")
    failed = {"phase": "Failed", "reason": "OutOfcpu"}
    driver.pod("old", node="only", cpu="1", status=failed)
    for status in ({}, failed):
        driver.pod("theirs", node="only", cpu="1", scheduler="default-scheduler", status=status)
    assert not driver.state.kubelet_refusals._exclusions


def test_a_refusal_seen_before_the_result_of_the_bind_counts(driver: Driver) -> None:
    """A relist may show the failure first."""
    driver.node("only")
    seen = driver.pod("p", cpu="1")
    driver.cycle()
    fail(driver, seen)
    assert driver.state.kubelet_refusals.n_excluded == 1
    assert not driver.state.is_assumed(seen.uid)


def test_the_memory_is_bounded(driver: Driver) -> None:
    """Past the bound, the exclusion that was refused longest ago is forgotten."""
    driver.node("only")
    seen = driver.pod("p", cpu="1")
    table = driver.state.kubelet_refusals
    for number in range(CAPACITY + 10):
        table.record(seen.spec, f"n{number}", "OutOfcpu", driver.now_s)
    assert len(table._exclusions) == table.n_excluded == CAPACITY
    assert "n9" not in table.excluded_nodes(seen.spec)
    assert f"n{CAPACITY + 9}" in table.excluded_nodes(seen.spec)
