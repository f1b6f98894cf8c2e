"""The check that counts broken rules finds each kind of broken rule, and nothing else."""

from __future__ import annotations

import json

import pytest

from scheduler.sandbox.demo.api import JsonObject
from scheduler.sandbox.demo.rule_check import broken_rules, doubly_allocated, selects
from tests.sandbox.demo.objects import HOST, ZONE, app, namespace, node, pod, term

NODES = [node("n1", "zone-a", rack="r1"), node("n2", "zone-a", rack="r1"), node("n3", "zone-b")]
NAMESPACES = [namespace("default"), namespace("acme", customer="true"), namespace("trial")]

PER_HOST = [term(HOST, app("web"))]
PER_ZONE = [term(ZONE, app("web"))]
CUSTOMERS = [term(HOST, app("web"), namespaceSelector={"matchLabels": {"customer": "true"}})]
EVERYWHERE = [term(HOST, app("web"), namespaceSelector={})]
NEAR_DB = [term(ZONE, app("db"))]
NEAR_OWN = [term(ZONE, app("web"))]
DB = {"app": "db"}


def even(max_skew: int = 1, when: str = "DoNotSchedule") -> list[JsonObject]:
    return [
        {"maxSkew": max_skew, "topologyKey": HOST, "whenUnsatisfiable": when, "labelSelector": app("web")}
    ]


@pytest.mark.parametrize(
    ("pods", "n_broken"),
    [
        pytest.param(
            [pod("a", "n1", away_from=PER_HOST), pod("b", "n2", away_from=PER_HOST)], 0, id="apart by node"
        ),
        pytest.param(
            [pod("a", "n1", away_from=PER_HOST), pod("b", "n1", away_from=PER_HOST)],
            2,
            id="together, each pod's rule is broken",
        ),
        pytest.param(
            [pod("a", "n1", away_from=PER_HOST), pod("b", "n1")], 1, id="one of the two has no rule"
        ),
        pytest.param(
            [pod("a", "n1", away_from=PER_ZONE), pod("b", "n2")],
            1,
            id="another node of the same zone is too near",
        ),
        pytest.param(
            [pod("a", "n1", away_from=PER_ZONE), pod("b", "n3")], 0, id="another zone is far enough"
        ),
        pytest.param(
            [pod("a", "n1", away_from=PER_HOST), pod("b", "n1", labels=DB)],
            0,
            id="a pod that is not selected",
        ),
        pytest.param(
            [pod("a", away_from=PER_HOST), pod("b", "n1")], 0, id="a pod without a node breaks nothing"
        ),
        pytest.param(
            [pod("a", "n1", away_from=PER_HOST), pod("b", "n1", deleted=True)], 0, id="a pod on its way out"
        ),
        pytest.param(
            [pod("a", "n1", away_from=PER_HOST), pod("b", "n1", phase="Succeeded")], 0, id="a finished pod"
        ),
        pytest.param(
            [pod("a", "n1", away_from=PER_HOST), pod("b", "n1", namespace="acme")],
            0,
            id="a rule without namespaces means its own",
        ),
        pytest.param(
            [pod("a", "n1", away_from=CUSTOMERS), pod("b", "n1", namespace="acme")],
            1,
            id="a namespace selected by its labels",
        ),
        pytest.param(
            [pod("a", "n1", away_from=CUSTOMERS), pod("b", "n1", namespace="trial")],
            0,
            id="a namespace not selected by its labels",
        ),
        pytest.param(
            [pod("a", "n1", away_from=EVERYWHERE), pod("b", "n1", namespace="trial")],
            1,
            id="an empty namespace selector means all",
        ),
        pytest.param(
            [pod("a", "n1", away_from=[term(HOST, None)]), pod("b", "n1")],
            0,
            id="no selector selects nothing",
        ),
        pytest.param([pod("a", "n1", near=NEAR_DB), pod("b", "n2", labels=DB)], 0, id="near enough"),
        pytest.param([pod("a", "n3", near=NEAR_DB), pod("b", "n2", labels=DB)], 1, id="in another zone"),
        pytest.param([pod("a", "n1", near=NEAR_OWN)], 0, id="the first of its kind may be alone"),
        pytest.param(
            [pod("a", "n1", near=NEAR_OWN), pod("b", "n3", near=NEAR_OWN)], 2, id="but two must be together"
        ),
        pytest.param([pod("a", "n1", spread=even()), pod("b", "n2", spread=even())], 0, id="a skew of one"),
        pytest.param(
            [pod("a", "n1", spread=even()), pod("b", "n1", spread=even())], 1, id="a skew of two, once"
        ),
        pytest.param(
            [pod("a", "n1", spread=even(2)), pod("b", "n1", spread=even(2))], 0, id="two are allowed"
        ),
        pytest.param(
            [pod(name, "n1", spread=even(when="ScheduleAnyway")) for name in "ab"], 0, id="only a preference"
        ),
        pytest.param(
            [
                pod(name, where, spread=even(), node_selector={"rack": "r1"})
                for name, where in (("a", "n1"), ("b", "n2"), ("c", "n1"), ("d", "n2"))
            ],
            0,
            id="nodes that the pod cannot use do not count for its spread",
        ),
        pytest.param(
            [pod("a", "n3", node_selector={"rack": "r1"})], 1, id="a node that its selector excludes"
        ),
        pytest.param([pod("a", "gone")], 1, id="a node that is not there"),
    ],
)
def test_broken_rules_are_found_where_pods_are(pods: list[JsonObject], n_broken: int) -> None:
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
    terms = [term(HOST, app("web"), maxPodsPerDomain=2)]
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
