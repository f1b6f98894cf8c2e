"""From a pending pod to its node or its reason, as kubectl shows both."""

import asyncio

from tests.support import build
from tests.support.build import HOSTNAME
from tests.support.cluster import NAME, Cluster
from tests.support.daemon import Daemon
from tests.support.messages import not_helpful
from tests.support.waiting import until
from tests.system.processes.conftest import PICKED_LABEL, PICKY, SPREADING

ALONE = build.affinity(anti_required=[build.term(HOSTNAME, build.selector("app=web"))])
WEB = {"app": "web"}
TIGHT = {"cpu": "1"}


async def test_a_pod_that_fits_is_bound_and_has_an_event(cluster: Cluster) -> None:
    """Its node, the condition that the server writes, and the Scheduled event of the scheduler."""
    await cluster.add_node("a")
    stored = await cluster.add_pod("p")
    assert await cluster.node_of("p") == "a"
    events = await until(lambda: cluster.events("p", "Scheduled"), what="the Scheduled event")
    (event,) = events
    assert event["note"] == f"Successfully assigned {cluster.api.namespace}/p to a"
    assert (event["type"], event["action"]) == ("Normal", "Binding")
    assert event["reportingController"] == NAME
    assert event["reportingInstance"].startswith(f"{NAME}-")
    regarding = event["regarding"]
    assert (regarding["kind"], regarding["uid"]) == ("Pod", stored["metadata"]["uid"])
    assert (regarding["apiVersion"], regarding["resourceVersion"]) == (
        "v1",
        stored["metadata"]["resourceVersion"],
    )
    assert "series" not in event
    conditions = (await cluster.pod("p"))["status"]["conditions"]
    assert [one["status"] for one in conditions if one["type"] == "PodScheduled"] == ["True"]


async def test_a_pod_that_fits_nowhere_has_the_reason(cluster: Cluster) -> None:
    """The exact message, the observed generation, and an event with the same text."""
    await cluster.add_node("a", allocatable=TIGHT)
    await cluster.add_node("b", taints=["dedicated=x:NoSchedule"])
    await cluster.add_node("c", unschedulable=True)
    stored = await cluster.add_pod("p", cpu="2")
    text = (
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), "
        "1 node(s) were unschedulable."
    )
    condition = await cluster.condition("p", text)
    whole = f"{text} {not_helpful(3)}"
    assert condition["message"] == whole
    assert condition["reason"] == "Unschedulable"
    assert condition["observedGeneration"] == stored["metadata"]["generation"]
    assert condition["lastTransitionTime"]

    async def notes() -> list[str]:
        return [event["note"] for event in await cluster.events("p", "FailedScheduling")]

    await until(notes, lambda found: whole in found, what="the event")
    event = (await cluster.events("p", "FailedScheduling"))[-1]
    assert (event["type"], event["action"], event["reportingController"]) == ("Warning", "Scheduling", NAME)


async def test_repeated_failures_fold_into_one_event_series(cluster: Cluster, daemon: Daemon) -> None:
    """The condition is written once, its transition time stays, and equal failures count up a series."""
    await cluster.add_node("a")
    for number in range(4):
        await cluster.add_pod(f"blocker-{number}", labels=WEB, node="a")
    await cluster.add_pod("p", labels=WEB, affinity=ALONE)
    text = "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."
    first = await cluster.condition("p", text)

    async def failures() -> float:
        return await daemon.metric("scheduler_schedule_attempts_total", result="unschedulable", profile=NAME)

    for number in range(3):
        before = await failures()
        await cluster.delete_pod(f"blocker-{number}")
        await until(failures, before.__lt__, what="another attempt")

    async def counts() -> list[int]:
        events = await cluster.events("p", "FailedScheduling")
        return [event.get("series", {}).get("count", 1) for event in events]

    # The condition changes the pod's resourceVersion after the first failure, which begins no other series.
    await until(counts, [2].__eq__, what="a series")
    assert await cluster.condition("p", text) == first


async def test_a_gated_pod_waits_until_its_gates_are_gone(cluster: Cluster, daemon: Daemon) -> None:
    """The server writes SchedulingGated, the scheduler nothing; then the pod is bound."""
    await cluster.add_node("a")
    await cluster.add_pod("p", spec={"schedulingGates": [{"name": "example.com/wait"}]})
    await until(lambda: daemon.metric("scheduler_pending_pods", queue="gated"), what="a gated pod")
    await cluster.add_pod("other")
    await cluster.node_of("other")
    pod = await cluster.pod("p")
    assert "nodeName" not in pod["spec"]
    (condition,) = (one for one in pod["status"]["conditions"] if one["type"] == "PodScheduled")
    assert condition["reason"] == "SchedulingGated"
    assert await cluster.events("p", "FailedScheduling") == []
    (await cluster.api.patch(cluster.api.pods("p"), {"spec": {"schedulingGates": []}})).ok  # noqa: B018
    assert await cluster.node_of("p") == "a"


async def test_a_deletion_frees_the_waiting_pod_at_once(cluster: Cluster, daemon: Daemon) -> None:
    """Required anti-affinity: it is the deletion that wakes the waiting pod, and no flush of the queue."""
    await cluster.add_node("a")
    await cluster.add_pod("first", labels=WEB, affinity=ALONE)
    await cluster.node_of("first")
    await cluster.add_pod("second", labels=WEB, affinity=ALONE)
    await cluster.condition(
        "second", "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."
    )
    woken, flushed = (
        await incoming(daemon, "AssignedPodDelete"),
        await incoming(daemon, "UnschedulableTimeout"),
    )
    await cluster.delete_pod("first")
    await cluster.node_of("second")
    assert await incoming(daemon, "AssignedPodDelete") == woken + 1
    assert await incoming(daemon, "UnschedulableTimeout") == flushed


async def incoming(daemon: Daemon, event: str) -> float:
    """Return how many pods have entered a queue because of the event."""
    return await daemon.metric("scheduler_queue_incoming_pods_total", event=event)


async def test_pods_of_other_schedulers_are_left_alone_and_counted(cluster: Cluster) -> None:
    """A pending one gets nothing from us; a running one takes its room."""
    await cluster.add_node("a", allocatable=TIGHT)
    await cluster.add_pod("foreign", scheduler="default-scheduler")
    await cluster.add_pod("running", scheduler="default-scheduler", cpu="600m", node="a")
    await cluster.add_pod("p", cpu="600m")
    await cluster.condition("p", "0/1 nodes are available: 1 Insufficient cpu.")
    foreign = await cluster.pod("foreign")
    assert "nodeName" not in foreign["spec"]
    assert not foreign["status"].get("conditions")


async def test_each_profile_decides_by_its_own_rules_under_its_own_name(cluster: Cluster) -> None:
    """Two profiles in one process: added affinity applies to the pods of one only."""
    await cluster.add_node("plain")
    await cluster.add_pod("picky", scheduler=PICKY)
    text = "0/1 nodes are available: 1 node(s) didn't match scheduler-enforced node affinity."
    await cluster.condition("picky", text)
    await cluster.add_pod("easy")
    assert await cluster.node_of("easy") == "plain"
    await cluster.add_node("picked", labels={PICKED_LABEL: "yes"})
    assert await cluster.node_of("picky") == "picked"
    (event,) = await until(lambda: cluster.events("picky", "Scheduled"), what="the event")
    assert event["reportingController"] == PICKY


async def test_default_constraints_spread_the_pods_of_a_service(cluster: Cluster) -> None:
    """Pods without constraints of their own are spread by the selector of their Service."""
    for name in ("a", "b", "c"):
        await cluster.add_node(name)
    service = build.service("web", WEB, namespace=cluster.api.namespace)
    service["spec"]["ports"] = [{"port": 80}]
    await cluster.create(cluster.api.in_namespace("services"), service)
    await asyncio.gather(
        *(cluster.add_pod(f"p{number}", labels=WEB, scheduler=SPREADING) for number in range(6))
    )
    pods = await cluster.all_bound(6)
    assert sorted(pod["spec"]["nodeName"] for pod in pods) == ["a", "a", "b", "b", "c", "c"]


async def test_a_node_whose_kubelet_rejected_a_pod_is_excluded_for_a_while(
    cluster: Cluster, daemon: Daemon
) -> None:
    """The replacement goes elsewhere or waits with the reason, and is woken when the time is over."""
    await cluster.add_node("a", allocatable=TIGHT)
    before = await daemon.metric("affinity_scheduler_kubelet_refusals_total")
    await cluster.add_pod("first", cpu="1")
    await cluster.node_of("first")
    text = "Node didn't have enough resource: cpu, requested: 1000, used: 500, capacity: 1000"
    status = {"phase": "Failed", "reason": "OutOfcpu", "message": f"Pod was rejected: {text}"}
    (await cluster.api.patch(f"{cluster.api.pods('first')}/status", {"status": status})).ok  # noqa: B018

    async def n_refused() -> float:
        return await daemon.metric("affinity_scheduler_kubelet_refusals_total") - before

    await until(n_refused, lambda n: n == 1, what="the refusal")
    await cluster.add_pod("second", cpu="1")
    await cluster.condition(
        "second", "0/1 nodes are available: 1 node(s) refused such a pod shortly before (OutOfcpu)."
    )
    await cluster.node_of("second")
    # The failed pod still has its node and would count in the check that follows.
    await cluster.delete_pod("first")
