"""Required rules that become preferences, on both servers: by time, and by an autoscaler's word."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.build import ZONE, Json, affinity, selector, term
from tests.support.cluster import Cluster
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

_RULE = f"podAntiAffinity by {ZONE}"
_MARK = "affinity-scheduler.io/relaxed"


async def _add_web(cluster: Cluster, name: str, **when: Any) -> Json:
    more = {"schedulingGates": [{"name": "example.com/wait"}]} if when.pop("gated", False) else {}
    entry = {"rule": "podAntiAffinity", "topologyKey": ZONE, **when}
    return await cluster.add_pod(
        name,
        labels={"app": "web"},
        affinity=affinity(anti_required=[term(ZONE, selector("app=web"))]),
        annotations={"affinity-scheduler.io/fallback": json.dumps([entry])},
        spec=more,
    )


def _fallback_condition(pod: Json) -> Json | None:
    conditions = pod["status"].get("conditions", [])
    return next((one for one in conditions if one["type"] == "affinity-scheduler.io/Fallback"), None)


async def _assert_relaxed(cluster: Cluster, name: str, why: str) -> None:
    assert await cluster.node_of(name) == "a"
    pod = await cluster.pod(name)
    annotations = pod["metadata"]["annotations"]
    assert json.loads(annotations[_MARK]) == [{"rule": _RULE, "why": why}]
    assert json.loads(annotations["affinity-scheduler.io/decision"])["relaxed"] == [_RULE]
    (event,) = await until(lambda: cluster.events(name, "RuleRelaxed"), what="the event")
    assert event["note"] == f"{_RULE} counts as preferred with weight 100: {why}"
    over = await until(
        lambda: cluster.pod(name),
        lambda one: (_fallback_condition(one) or {}).get("status") == "False",
        what="the end of the wait",
    )
    assert (_fallback_condition(over) or {})["reason"] == "Bound"


async def test_a_rule_is_relaxed_after_its_time(cluster: Cluster) -> None:
    """The mark comes with the bind; the condition has what the pod waited."""
    await cluster.add_node("a", labels={ZONE: "z1"})
    await _add_web(cluster, "first", afterSeconds=60)
    assert await cluster.node_of("first") == "a"
    await _add_web(cluster, "second", afterSeconds=2)
    waiting = await until(lambda: cluster.pod("second"), _fallback_condition, what="the condition")
    assert json.loads((_fallback_condition(waiting) or {})["message"]) == {_RULE: 0}
    await _assert_relaxed(cluster, "second", "it kept the pod pending alone for 2 s")


async def test_a_rule_is_relaxed_when_an_autoscaler_has_given_up(cluster: Cluster) -> None:
    """Its event is about the pod's uid; that of another pod does not count."""
    await cluster.add_node("a", labels={ZONE: "z1"})
    await _add_web(cluster, "first", afterSeconds=60)
    assert await cluster.node_of("first") == "a"
    second = await _add_web(cluster, "second", afterNotTriggerScaleUp=True, gated=True)
    about = {name: second["metadata"][name] for name in ("namespace", "name", "uid")}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "second.1", "namespace": about["namespace"]},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **about},
        "reason": "NotTriggerScaleUp",
        "message": "pod didn't trigger scale-up",
        "type": "Normal",
        "source": {"component": "cluster-autoscaler"},
    }
    (await cluster.api.post(cluster.api.in_namespace("events"), event)).ok  # noqa: B018
    ungated = {"spec": {"schedulingGates": None}}
    (await cluster.api.patch(cluster.api.in_namespace("pods", "second"), ungated)).ok  # noqa: B018
    await _assert_relaxed(cluster, "second", "an autoscaler said NotTriggerScaleUp")
