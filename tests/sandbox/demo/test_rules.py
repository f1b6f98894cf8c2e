"""The check that counts broken rules finds each kind of broken rule, and nothing else."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from scheduler.sandbox.demo.api import JsonObject
from scheduler.sandbox.demo.rule_check import broken_rules, doubly_allocated, selects
from tests.support import build
from tests.support.build import HOSTNAME, ZONE, namespace, selector, term


def pod(
    name: str,
    node: str | None = None,
    *,
    away_from: tuple[JsonObject, ...] = (),
    near: tuple[JsonObject, ...] = (),
    **more: Any,
) -> JsonObject:
    """Return a pod of app=web unless labelled otherwise."""
    affinity = build.affinity(required=near, anti_required=away_from)
    return build.pod(
        name, node=node, affinity=affinity, **{"labels": {"app": "web"}, "phase": "Running", **more}
    )


def node(name: str, zone: str, **labels: str) -> JsonObject:
    return build.node(name, labels={ZONE: zone, **labels})


NODES = [node("n1", "zone-a", rack="r1"), node("n2", "zone-a", rack="r1"), node("n3", "zone-b")]
NAMESPACES = [namespace("default"), namespace("acme", labels={"customer": "true"}), namespace("trial")]

WEB = selector("app=web")
PER_HOST = (term(HOSTNAME, WEB),)
CUSTOMERS = (term(HOSTNAME, WEB, namespace_selector=selector("customer=true")),)
EVERYWHERE = (term(HOSTNAME, WEB, namespace_selector={}),)
DB = {"app": "db"}


def even(max_skew: int = 1, **more: Any) -> list[JsonObject]:
    return [build.spread(HOSTNAME, WEB, max_skew=max_skew, **more)]


apart = partial(pod, away_from=PER_HOST)
apart_by_zone = partial(pod, away_from=(term(ZONE, WEB),))
apart_from_customers = partial(pod, away_from=CUSTOMERS)
near_db = partial(pod, near=(term(ZONE, selector("app=db")),))
near_own = partial(pod, near=(term(ZONE, WEB),))
spread = partial(pod, spread=even())
in_rack = partial(pod, node_selector={"rack": "r1"})
#: What is shown -> how many rules are broken, and the pods.
PLACES: dict[str, tuple[int, list[JsonObject]]] = {
    "apart by node": (0, [apart("a", "n1"), apart("b", "n2")]),
    "together, each pod's rule is broken": (2, [apart("a", "n1"), apart("b", "n1")]),
    "one of the two has no rule": (1, [apart("a", "n1"), pod("b", "n1")]),
    "another node of the same zone is too near": (1, [apart_by_zone("a", "n1"), pod("b", "n2")]),
    "another zone is far enough": (0, [apart_by_zone("a", "n1"), pod("b", "n3")]),
    "a pod that is not selected": (0, [apart("a", "n1"), pod("b", "n1", labels=DB)]),
    "a pod without a node breaks nothing": (0, [apart("a"), pod("b", "n1")]),
    "a pod on its way out": (0, [apart("a", "n1"), pod("b", "n1", terminating=True)]),
    "a finished pod": (0, [apart("a", "n1"), pod("b", "n1", phase="Succeeded")]),
    "a rule without namespaces means its own": (0, [apart("a", "n1"), pod("b", "n1", namespace="acme")]),
    "a selected namespace": (1, [apart_from_customers("a", "n1"), pod("b", "n1", namespace="acme")]),
    "a namespace that is not": (0, [apart_from_customers("a", "n1"), pod("b", "n1", namespace="trial")]),
    "an empty selector of namespaces means all": (
        1,
        [pod("a", "n1", away_from=EVERYWHERE), pod("b", "n1", namespace="trial")],
    ),
    "no selector selects nothing": (0, [pod("a", "n1", away_from=(term(HOSTNAME, None),)), pod("b", "n1")]),
    "near enough": (0, [near_db("a", "n1"), pod("b", "n2", labels=DB)]),
    "in another zone": (1, [near_db("a", "n3"), pod("b", "n2", labels=DB)]),
    "the first of its kind may be alone": (0, [near_own("a", "n1")]),
    "but two must be together": (2, [near_own("a", "n1"), near_own("b", "n3")]),
    "a skew of one": (0, [spread("a", "n1"), spread("b", "n2")]),
    "a skew of two, once": (1, [spread("a", "n1"), spread("b", "n1")]),
    "two are allowed": (0, [pod(name, "n1", spread=even(2)) for name in "ab"]),
    "only a preference": (0, [pod(name, "n1", spread=even(soft=True)) for name in "ab"]),
    "nodes that the pod cannot use do not count": (
        0,
        [in_rack(f"{n}{where}", where, spread=even()) for n in (1, 2) for where in ("n1", "n2")],
    ),
    "nor do pods on them": (
        0,
        [*(in_rack(n, n, spread=even()) for n in ("n1", "n2")), *(pod(name, "n3") for name in "abc")],
    ),
    "a node that its selector excludes": (1, [in_rack("a", "n3")]),
    "a node that is not there": (1, [pod("a", "gone")]),
}


@pytest.mark.parametrize(("n_broken", "pods"), PLACES.values(), ids=PLACES)
def test_broken_rules_are_found_where_pods_are(n_broken: int, pods: list[JsonObject]) -> None:
    assert len(broken_rules(pods, NODES, NAMESPACES)) == n_broken


def test_a_broken_rule_is_named_with_pod_and_domain() -> None:
    pods = [pod("a", "n1", away_from=PER_HOST), pod("b", "n1")]
    assert broken_rules(pods, NODES, NAMESPACES) == [
        "default/a shares kubernetes.io/hostname=n1 with 1 pods that it must keep away from"
    ]


@pytest.mark.parametrize(
    ("operator", "values", "labels", "is_selected"),
    [
        pytest.param("In", ["a"], {"k": "b"}, False, id="not in"),
        pytest.param("In", ["a"], {}, False, id="in needs the label"),
        pytest.param("NotIn", ["a"], {"k": "a"}, False, id="notin a listed value"),
        pytest.param("NotIn", ["a"], {}, True, id="notin holds without the label"),
        pytest.param("Exists", [], {"k": ""}, True, id="exists"),
        pytest.param("DoesNotExist", [], {"k": "a"}, False, id="does not exist"),
    ],
)
def test_selectors_select_as_documented(
    operator: str, values: list[str], labels: dict[str, str], is_selected: bool
) -> None:
    selector = {"matchExpressions": [{"key": "k", "operator": operator, "values": values}]}
    assert selects(selector, labels) == is_selected


def test_terms_of_the_annotation_count_with_their_limit() -> None:
    """Required and enforced ones, each of which lets a domain have two pods."""
    terms = [{**term(HOSTNAME, WEB), "maxPodsPerDomain": 2}]
    for which in ("Ignored", "Required"):
        key = f"requiredDuringScheduling{which}DuringExecution"
        text = {"affinity-scheduler.io/affinity": json.dumps({"podAntiAffinity": {key: terms}})}
        pods = [pod(name, "n1", annotations=text) for name in "abc"]
        assert broken_rules(pods[:2], NODES, NAMESPACES) == []
        assert len(broken_rules(pods, NODES, NAMESPACES)) == 3


def device(driver: str, pool: str, name: str, **more: object) -> JsonObject:
    return {"driver": driver, "pool": pool, "device": name, **more}


def claim(name: str, *devices: JsonObject) -> JsonObject:
    """Return a claim with these devices; without any, nothing is allocated to it."""
    status = {"allocation": {"devices": {"results": list(devices)}}} if devices else {}
    return {"metadata": {"name": name, "namespace": "default"}, "status": status}


@pytest.mark.parametrize(
    ("second", "sentences"),
    [
        pytest.param(
            device("gpu.example.com", "n1", "gpu-0"),
            ["gpu-0 of pool n1 is allocated to default/a and default/b"],
            id="the same device",
        ),
        pytest.param(device("gpu.example.com", "n1", "gpu-1"), [], id="another device of the pool"),
        pytest.param(device("gpu.example.com", "n2", "gpu-0"), [], id="its namesake in another pool"),
        pytest.param(device("nic.example.com", "n1", "gpu-0"), [], id="its namesake of another driver"),
        pytest.param(
            device("gpu.example.com", "n1", "gpu-0", adminAccess=True), [], id="an administrator's access"
        ),
    ],
)
def test_a_device_in_two_allocations_is_found(second: JsonObject, sentences: list[str]) -> None:
    claims = [claim("a", device("gpu.example.com", "n1", "gpu-0")), claim("b", second), claim("c")]
    assert doubly_allocated(claims) == sentences
