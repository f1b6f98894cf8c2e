"""Preemption by pods of high priority, on both servers: the victims, and the events and conditions."""

from __future__ import annotations

from typing import Any

from tests.support.build import Json
from tests.support.cluster import NAME, Cluster
from tests.support.waiting import until


async def _names(cluster: Cluster) -> set[str]:
    metadata = [pod["metadata"] for pod in await cluster.pods()]
    return {each["name"] for each in metadata if "deletionTimestamp" not in each}


async def _finish(cluster: Cluster, name: str) -> Json:
    """Wait until the pod is being deleted and let it end, as its kubelet would. Return it as it was."""
    ending = await until(
        lambda: cluster.pod(name),
        lambda pod: "deletionTimestamp" in pod["metadata"],
        what=f"the end of {name}",
    )
    await cluster.delete_pod(name)
    await cluster.api.patch(cluster.api.pods(name), {"metadata": {"finalizers": None}})
    return ending


async def _add_victim(cluster: Cluster, name: str, node: str, **settings: Any) -> None:
    """Create a pod on the node that stays, ending, until `_finish` lets it go."""
    await cluster.add_pod(name, cpu="1", node=node, **settings)
    kept = {"metadata": {"finalizers": ["example.com/kept"]}}
    (await cluster.api.patch(cluster.api.pods(name), kept)).ok  # noqa: B018


async def test_a_pod_of_high_priority_takes_the_place_of_the_least_important_one(cluster: Cluster) -> None:
    await cluster.add_priority_class("low", 10)
    await cluster.add_priority_class("middle", 100)
    await cluster.add_priority_class("high", 1000)
    await cluster.add_node("a", allocatable={"cpu": "2"})
    await _add_victim(cluster, "low", "a", spec={"priorityClassName": "low"})
    await cluster.add_pod("middle", cpu="1", node="a", spec={"priorityClassName": "middle"})
    stored = await cluster.add_pod("high", cpu="1", spec={"priorityClassName": "high"})
    victim = await _finish(cluster, "low")
    (target,) = [one for one in victim["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert (target["status"], target["reason"]) == ("True", "PreemptionByScheduler")
    assert target["message"] == f"{NAME}: preempting to accommodate a higher priority pod"
    assert await cluster.node_of("high") == "a"
    assert await _names(cluster) == {"middle", "high"}
    (event,) = await until(lambda: cluster.events("low", "Preempted"), what="the Preempted event")
    assert event["note"] == f"Preempted by pod {stored['metadata']['uid']} on node a"
    assert (event["type"], event["action"], event["reportingController"]) == ("Normal", "Preempting", NAME)
    assert "nominatedNodeName" not in (await cluster.pod("high"))["status"]


async def test_a_pod_is_nominated_until_its_victims_are_gone(cluster: Cluster) -> None:
    await cluster.add_priority_class("high", 1000)
    await cluster.add_node("a", allocatable={"cpu": "1"})
    await _add_victim(cluster, "low", "a")
    await cluster.add_pod("high", cpu="1", spec={"priorityClassName": "high"})

    async def nominated() -> str:
        name: str = (await cluster.pod("high"))["status"].get("nominatedNodeName", "")
        return name

    assert await until(nominated, bool, what="the nomination") == "a"
    await cluster.condition("high", "0/1 nodes are available: 1 Insufficient cpu.")
    await _finish(cluster, "low")
    assert await cluster.node_of("high") == "a"
