"""Required rules that become preferences, on both servers, after a time."""

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
    entry = {"rule": "podAntiAffinity", "topologyKey": ZONE, **when}
    return await cluster.add_pod(
        name,
        labels={"app": "web"},
        affinity=affinity(anti_required=[term(ZONE, selector("app=web"))]),
        annotations={"affinity-scheduler.io/fallback": json.dumps([entry])},
    )


async def _assert_relaxed(cluster: Cluster, name: str, why: str) -> None:
    assert await cluster.node_of(name) == "a"
    pod = await cluster.pod(name)
    annotations = pod["metadata"]["annotations"]
    assert json.loads(annotations[_MARK]) == [{"rule": _RULE, "why": why}]
    assert json.loads(annotations["affinity-scheduler.io/decision"])["relaxed"] == [_RULE]
    (event,) = await until(lambda: cluster.events(name, "RuleRelaxed"), what="the event")
    assert event["note"] == f"{_RULE} counts as preferred with weight 100: {why}"


async def test_a_rule_is_relaxed_after_its_time(cluster: Cluster) -> None:
    """The mark comes with the bind."""
    await cluster.add_node("a", labels={ZONE: "z1"})
    await _add_web(cluster, "first", afterSeconds=60)
    assert await cluster.node_of("first") == "a"
    await _add_web(cluster, "second", afterSeconds=2)
    await _assert_relaxed(cluster, "second", "after 2 s it kept the pod pending alone")
