"""The pods that a pending pod would evict, as `explain` names them; it evicts none."""

from typing import Any

from scheduler.engine.model.pod_groups import GroupKey, GroupKind, PodGroup
from scheduler.tools.explain.explainer import explain
from tests.support import build
from tests.support.build import Json
from tests.support.json_cluster import Cluster, decoded


def _pod(name: str, priority: int, **more: Any) -> Json:
    return build.pod(name, cpu="1", spec={"priority": priority}, **more)


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


def _nominated(node: str, name: str = "high") -> Json:
    return {**_pod(name, 9), "status": {"nominatedNodeName": node}}


def test_a_nominated_pod_waits_for_the_pods_that_end_on_its_node() -> None:
    node = build.node("a", allocatable={"cpu": "1"})
    ending = _pod("low", 1, node="a")
    ending["metadata"]["deletionTimestamp"] = "2026-11-24T00:00:00Z"
    preempted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    ending["status"] = {"phase": "Running", "conditions": [preempted]}
    answer = Cluster([node], [ending]).explain(_nominated("a"))
    assert answer.message.endswith("not eligible due to a terminating pod on the nominated node.")
    assert answer.notes == ("nominated to node a, where these pods end: default/low",)


def test_a_group_evicts_with_its_own_priority() -> None:
    """Its member has a lower priority than the pod that ends."""
    ending = _pod("low", 1, node="a", terminating=True, phase="Running")
    preempted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    ending["status"]["conditions"] = [preempted]
    cluster = Cluster([build.node("a", allocatable={"cpu": "1"})], [ending])
    state = cluster.state()
    key = GroupKey(GroupKind.KUBERNETES, "default", "g")
    state.groups.upsert(PodGroup(key, 1, api_version="v1alpha2", priority=9))
    member = _nominated("a")
    member["spec"] |= {"priority": 0, "schedulingGroup": {"podGroupName": "g"}}
    answer = explain(cluster.request(member, state))
    assert answer.notes == ("nominated to node a, where these pods end: default/low",)


def test_a_nomination_that_will_not_come_true_is_told() -> None:
    cluster = Cluster([build.node("a", allocatable={"cpu": "1"})], [_pod("equal", 9, node="a")])
    assert cluster.explain(_nominated("b")).notes == ("nominated to node b, which is gone",)
    assert cluster.explain(_nominated("a")).notes == (
        "nominated to node a, where it does not fit: its next attempt withdraws the nomination",
    )


def test_the_room_that_is_kept_for_a_nominated_pod_is_told_to_pods_that_are_no_more_important() -> None:
    cluster = Cluster([build.node("a", allocatable={"cpu": "1"})], [])
    state = cluster.state()
    state.nominate(decoded(_nominated("a")), "a")
    answer = explain(cluster.request(_pod("low", 1), state))
    assert answer.message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert answer.notes == ("room is kept for nominated pods: default/high (priority 9) on node a",)
    assert explain(cluster.request(_pod("top", 10), state)).notes == ()
