"""Annotations reach other namespaces only from namespaces that an administrator has marked."""

import json

import pytest

from scheduler.engine.model.annotations import AFFINITY
from tests.support import build
from tests.support.build import Json
from tests.support.driving import Driver, bind_of, condition_of
from tests.support.messages import refusals

MARK = {"affinity-scheduler.io/annotation-reach": "cluster"}
APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [build.term("os", {})]}}


def across(**more: Json | list[str]) -> Json:
    """Return anti-affinity with every pod of the namespaces."""
    (term,) = APART["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{**term, **more}]}}


def annotated(driver: Driver, name: str, affinity: Json, *, node: str | None = None) -> None:
    driver.pod(name, namespace="tenant", node=node, annotations={AFFINITY: json.dumps(affinity)})


@pytest.fixture
def driver() -> Driver:
    made = Driver()
    made.node("n", labels={"os": "linux"})
    for name in ("tenant", "shop"):
        made.namespace(name)
    return made


@pytest.mark.parametrize(
    "affinity",
    [across(namespaceSelector={}), across(namespaces=["shop"]), across(namespaces=["tenant", "shop"])],
)
def test_a_running_pod_closes_no_node_to_other_namespaces_until_its_own_is_marked(
    driver: Driver, affinity: Json
) -> None:
    annotated(driver, "closing", affinity, node="n")
    driver.pod("first", namespace="shop")
    assert bind_of(driver.cycle()).node_name == "n"
    driver.namespace("tenant", **MARK)
    driver.pod("second", namespace="shop")
    assert "existing pods anti-affinity rules" in condition_of(driver.cycle()).message
    driver.namespace("tenant")
    driver.pod("third", namespace="shop")
    driver.audit()
    while driver.machine.has_work():
        assert bind_of(driver.cycle()).node_name == "n"


def test_a_pending_pod_says_why_and_is_tried_again_once_its_namespace_is_marked(driver: Driver) -> None:
    annotated(driver, "asking", across(namespaces=["shop"]))
    assert refusals(condition_of(driver.cycle()).message) == (
        "0/1 nodes are available: annotation affinity-scheduler.io/affinity: a term is about other namespaces, which"
        " annotationNamespaces of the configuration does not allow pods of namespace tenant."
    )
    driver.namespace("tenant", **MARK)
    driver.pass_time(60.0)
    assert bind_of(driver.cycle()).node_name == "n"


@pytest.mark.parametrize("affinity", [APART, across(namespaces=["tenant"])])
def test_a_term_about_the_pods_own_namespace_needs_no_mark(driver: Driver, affinity: Json) -> None:
    annotated(driver, "own", affinity)
    assert bind_of(driver.cycle()).node_name == "n"
    driver.pod("beside", namespace="tenant")
    assert "existing pods anti-affinity rules" in condition_of(driver.cycle()).message
