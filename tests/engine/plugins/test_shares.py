"""Shares of the selected pods per domain: `maxPodsPerDomain` in per cent, and `domainWeights`."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.model.instructions import Bind
from scheduler.engine.model.stimuli import PodSeen
from tests.conformance.product import ProductSubject
from tests.engine.plugins.test_annotations import anti
from tests.support import build
from tests.support.build import ZONE, Json, selector
from tests.support.driving import NAME, Driver

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def pod(name: str, limits: Json, *, labels: Mapping[str, str] | None = None, **more: Any) -> Json:
    return annotated(name, anti(ZONE, selector("app=db"), **limits), labels=labels, **more)


def preferring(name: str, weights: Mapping[str, int]) -> Json:
    term = build.term(ZONE, selector("app=db"))
    terms = [{"weight": 100, "podAffinityTerm": {**term, "domainWeights": weights}}]
    return annotated(name, {"podAntiAffinity": {PREFERRED: terms}})


def annotated(name: str, affinity: Json, *, labels: Mapping[str, str] | None = None, **more: Any) -> Json:
    annotations = {"affinity-scheduler.io/affinity": json.dumps(affinity)}
    spec = {"schedulerName": NAME, **more.pop("spec", {})}
    labels = {"app": "db"} if labels is None else labels
    return build.pod(name, labels=labels, annotations=annotations, spec=spec, **more)


def zones(driver: Driver, *names: str, nodes: int = 2) -> None:
    for zone in names:
        for number in range(nodes):
            driver.node(f"{zone}-{number}", labels={ZONE: zone}, allocatable={"cpu": "64", "pods": "110"})


def placed(driver: Driver, documents: Sequence[Json]) -> list[str]:
    """Show the pods; return the zones of those that are bound, in their order."""
    for document in documents:
        driver.handle(PodSeen(driver.decoded(document)))
    return [
        each.node_name.partition("-")[0]
        for _ in range(3 * len(documents) + 3)
        for each in driver.cycle()
        if isinstance(each, Bind)
    ]


@pytest.mark.parametrize(
    ("percent", "n_zones", "n_pods", "expected"),
    [
        pytest.param("30%", 4, 10, [2, 2, 3, 3], id="30 % of ten are three"),
        pytest.param("30%", 3, 10, [3, 3, 3], id="the tenth finds no zone with less than three"),
        pytest.param("1%", 3, 3, [1, 1, 1], id="one at least"),
        pytest.param("1%", 3, 5, [1, 1, 1], id="1 % of five is one"),
        pytest.param("67%", 1, 3, [3], id="67 % of three are more than two"),
        pytest.param("100%", 1, 4, [4], id="all"),
    ],
)
def test_a_percentage_of_the_selected_pods(
    driver: Driver, percent: str, n_zones: int, n_pods: int, expected: list[int]
):
    zones(driver, *"abcd"[:n_zones])
    got = placed(driver, [pod(f"p{n}", {"maxPodsPerDomain": percent}) for n in range(n_pods)])
    assert sorted(Counter(got).values()) == expected


def test_pods_on_nodes_that_are_gone_are_not_divided(driver: Driver):
    zones(driver, "a")
    driver.pod("g0", node="gone", labels={"app": "db"})
    driver.pod("g1", node="gone", labels={"app": "db"})
    assert placed(driver, [pod(f"p{n}", {"maxPodsPerDomain": "40%"}) for n in range(2)]) == ["a"]


@pytest.mark.parametrize(
    "make", [lambda n, w: pod(n, {"domainWeights": w}), preferring], ids=["hard", "soft"]
)
def test_ten_replicas_end_at_70_and_30(driver: Driver, make: Any):
    zones(driver, "a", "b")
    got = placed(driver, [make(f"p{n}", {"a": 70, "b": 30}) for n in range(10)])
    assert Counter(got) == {"a": 7, "b": 3}


def test_a_domain_without_a_weight_gets_none_and_one_that_is_gone_has_no_share(driver: Driver):
    zones(driver, "a", "b", "c")
    weights = {"domainWeights": {"a": 1, "b": 1, "gone": 8}}
    assert Counter(placed(driver, [pod(f"p{n}", weights) for n in range(4)])) == {"a": 2, "b": 2}
    zones(driver, "gone")
    assert placed(driver, [pod("p5", weights)]) == ["gone"]


def test_a_full_domain_keeps_its_share_and_the_rest_waits(driver: Driver):
    driver.node("a-0", labels={ZONE: "a"}, allocatable={"cpu": "1", "pods": "110"})
    zones(driver, "b")
    weights = {"domainWeights": {"a": 1, "b": 1}}
    got = placed(driver, [pod(f"p{n}", weights, cpu="1") for n in range(4)])
    assert Counter(got) == {"a": 1, "b": 2}


def test_soft_weights_go_on_where_a_domain_is_full(driver: Driver):
    driver.node("a-0", labels={ZONE: "a"}, allocatable={"cpu": "64", "pods": "1"})
    zones(driver, "b")
    assert Counter(placed(driver, [preferring(f"p{n}", {"a": 9, "b": 1}) for n in range(4)])) == {
        "a": 1,
        "b": 3,
    }


def test_all_pods_prefer_the_only_domain_with_a_weight(driver: Driver):
    zones(driver, "a", "b")
    assert placed(driver, [preferring(f"p{n}", {"a": 1}) for n in range(4)]) == ["a"] * 4


def test_a_pod_that_is_placed_by_others_wakes_one_whose_share_it_raises(driver: Driver):
    zones(driver, "a", nodes=1)
    driver.node("elsewhere")
    waiting = pod("q", {"maxPodsPerDomain": "50%"}, spec={"nodeSelector": {ZONE: "a"}})
    assert placed(
        driver, [pod("p", {"maxPodsPerDomain": "50%"}, spec={"nodeSelector": {ZONE: "a"}}), waiting]
    ) == ["a"]
    running = driver.decoded(build.pod("r", labels={"app": "db"}, node="elsewhere"))
    driver.handle(PodSeen(running))
    driver.pass_time(20.0)
    assert placed(driver, []) == ["a"]


def test_a_running_pods_share_limits_others_and_a_placed_pod_wakes_them(driver: Driver):
    zones(driver, "a", nodes=1)
    driver.node("elsewhere")
    plain = build.pod("q", labels={"app": "db"}, spec={"nodeSelector": {ZONE: "a"}, "schedulerName": NAME})
    assert placed(
        driver, [pod("p", {"maxPodsPerDomain": "50%"}, spec={"nodeSelector": {ZONE: "a"}}), plain]
    ) == ["a"]
    driver.handle(PodSeen(driver.decoded(build.pod("r", labels={"app": "db"}, node="elsewhere"))))
    driver.pass_time(20.0)
    assert placed(driver, []) == ["a"]


def test_a_victim_takes_its_part_of_the_share_along():
    """Of five pods, a zone may have three. Without one it may have two, and two are left; so another one goes."""
    product = ProductSubject(None)
    for name, zone, priority in (("a0", "a", 0), ("a1", "a", 0), ("a2", "a", 0), ("b0", "b", 9)):
        product.apply(build.node(zone, labels={ZONE: zone}))
        product.apply(build.pod(name, labels={"app": "db"}, node=zone, spec={"priority": priority}))
    asked = {"priority": 5, "nodeSelector": {ZONE: "a"}}
    found = product.evaluate(pod("p", {"maxPodsPerDomain": "50%"}, spec=asked))
    assert found["preemption"]["candidates"] == {
        "a": {"victims": ["default/a0", "default/a1"], "pdbViolations": 0}
    }


def test_weights_divide_the_minimum_of_a_group(driver: Driver):
    """No member waits for another one to raise its share."""
    zones(driver, "a", "b")
    members = []
    for number in range(10):
        document = pod(f"p{number}", {"domainWeights": {"a": 7, "b": 3}})
        document["metadata"]["labels"] |= {
            "affinity-scheduler.io/pod-group": "g",
            "affinity-scheduler.io/pod-group-min-count": "10",
        }
        members.append(document)
    assert Counter(placed(driver, members)) == {"a": 7, "b": 3}


@settings(max_examples=60, deadline=None)
@given(
    weights=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 1000), min_size=1),
    n_pods=st.integers(1, 15),
    is_hard=st.booleans(),
    data=st.data(),
)
def test_every_pod_finds_a_place_and_no_domain_is_a_pod_above_its_share(
    weights: dict[str, int], n_pods: int, is_hard: bool, data: st.DataObject
):
    """Domains with room; hard weights hold after every pod, in whatever order zones are preferred otherwise."""
    driver = Driver()
    zones(driver, *weights, nodes=data.draw(st.integers(1, 2)))
    make = (lambda n: pod(n, {"domainWeights": weights})) if is_hard else (lambda n: preferring(n, weights))
    got = placed(driver, [make(f"p{n}") for n in range(n_pods)])
    assert len(got) == n_pods
    if is_hard:
        for n_placed in range(1, n_pods + 1):
            for zone, n_there in Counter(got[:n_placed]).items():
                assert n_there < weights[zone] * n_placed / sum(weights.values()) + 1
