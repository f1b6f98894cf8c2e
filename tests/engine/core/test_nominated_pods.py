"""Pods that are nominated to a node keep its room from pods of their priority or lower, in cycles and in dry runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.product import ProductSubject
from tests.support import build
from tests.support.build import HOSTNAME, Json

ROOM_FOR_TWO = {"cpu": "2", "pods": "10"}


def _pod(name: str, priority: int, *, node: str | None = None, **more: Any) -> Json:
    return build.pod(name, node=node, cpu="1", spec={"priority": priority}, **more)


@pytest.fixture
def product() -> ProductSubject:
    """Return a product with one node for two pods, on which one pod runs."""
    subject = ProductSubject(None)
    subject.apply(build.node("n", allocatable=ROOM_FOR_TWO))
    subject.apply(_pod("running", 0, node="n"))
    return subject


def _nominate(product: ProductSubject, pod: Json, node: str = "n") -> None:
    product.cluster.state.nominate(product.cluster.pod(pod), node)


@pytest.mark.parametrize(
    ("nominated", "incoming", "fits"),
    [
        pytest.param(5, 5, False, id="of the same priority"),
        pytest.param(6, 5, False, id="of a higher priority"),
        pytest.param(4, 5, True, id="of a lower priority"),
    ],
)
def test_a_nomination_counts_for_pods_of_its_priority_or_lower(
    product: ProductSubject, nominated: int, incoming: int, fits: bool
):
    _nominate(product, _pod("waiting", nominated))
    assert product.evaluate(_pod("incoming", incoming))["decided"] == ("n" if fits else None)


@pytest.mark.parametrize(("nominated", "decided"), [("", "empty"), ("n", "n"), ("gone", "empty")])
def test_a_pod_goes_to_its_nominated_node_if_that_takes_it(
    product: ProductSubject, nominated: str, decided: str
):
    """Also if another node has more room."""
    product.apply(build.node("empty", allocatable=ROOM_FOR_TWO))
    waiting = _pod("waiting", 5)
    waiting["status"]["nominatedNodeName"] = nominated
    assert product.evaluate(waiting)["decided"] == decided


def test_the_message_counts_nominated_pods_as_if_they_were_there(product: ProductSubject):
    """The node has room for none of both reasons alone: it lacks a pod's place only with the nominated one."""
    product.apply(build.node("n", allocatable={"cpu": "1", "pods": "2"}))
    _nominate(product, _pod("waiting", 5))
    message = product.evaluate(_pod("incoming", 5))["message"]
    assert message.startswith("0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods.")


@pytest.mark.parametrize("spreads", [False, True])
def test_a_node_that_takes_no_such_pod_at_all_is_not_short_of_the_nominated_pods_room(
    product: ProductSubject, spreads: bool
):
    product.apply(build.node("n", allocatable={"cpu": "1", "pods": "2"}, unschedulable=True))
    _nominate(product, _pod("waiting", 5))
    spread = [build.spread(HOSTNAME, build.selector("app=web"))] if spreads else []
    message = product.evaluate(_pod("incoming", 5, spread=spread))["message"]
    assert message.startswith("0/1 nodes are available: 1 node(s) were unschedulable.")


def test_anti_affinity_of_a_nominated_pod_counts_where_the_plugin_runs(product: ProductSubject):
    apart = build.affinity(anti_required=[build.term(HOSTNAME, build.selector("app=web"))])
    web = _pod("web", 5, labels={"app": "web"}, affinity=apart)
    _nominate(product, _pod("waiting", 9, labels={"app": "web"}, affinity=apart))
    product.apply(build.node("n", allocatable={"cpu": "32"}))
    found = product.evaluate(web)
    assert found["decided"] is None
    assert "1 node(s) didn't match pod anti-affinity rules" in found["message"]


def test_affinity_to_a_pod_that_is_only_nominated_is_not_met(product: ProductSubject):
    """Both passes have to fit: without the nominated pod there is none to be beside."""
    beside = build.affinity(required=[build.term(HOSTNAME, build.selector("app=web"))])
    _nominate(product, _pod("waiting", 9, labels={"app": "web"}))
    product.apply(build.node("n", allocatable={"cpu": "32"}))
    assert product.evaluate(_pod("incoming", 5, affinity=beside))["decided"] is None


def test_a_dry_run_leaves_room_for_nominated_pods(product: ProductSubject):
    """With one pod evicted there is room for one, which is the nominated pod's."""
    _nominate(product, _pod("waiting", 5))
    found = product.evaluate(_pod("incoming", 5))["preemption"]
    assert found["candidates"] == {"n": {"victims": ["default/running"], "pdbViolations": 0}}
    product.apply(_pod("important", 9, node="n"))
    assert product.evaluate(_pod("incoming", 5))["preemption"]["candidates"] == {}


def test_a_nominated_pod_is_no_reason_on_a_node_that_the_pod_does_not_name(product: ProductSubject):
    apart = build.affinity(anti_required=[build.term(HOSTNAME, build.selector("app=web"))])
    product.apply(build.node("other", labels={HOSTNAME: "other"}, allocatable=ROOM_FOR_TWO))
    _nominate(product, _pod("waiting", 9, labels={"app": "web"}), "other")
    _nominate(product, _pod("larger", 9))
    named = build.node_affinity(required=[build.node_term(named=["in n"])])
    found = product.evaluate(_pod("incoming", 5, affinity={**apart, "nodeAffinity": named}))
    not_named = "1 node(s) didn't satisfy plugin(s) [NodeAffinity]"
    assert found["message"].startswith(f"0/2 nodes are available: 1 Insufficient cpu, {not_named}.")
