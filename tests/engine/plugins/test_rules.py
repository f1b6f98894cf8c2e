"""The plugins decide as the tables of edge cases say; afterwards the counts are audited."""

import json

import pytest

from tests.conformance.product import ProductSubject
from tests.conformance.subject import ReferenceSubject
from tests.support.build import (
    ZONE,
    Json,
    affinity,
    configuration,
    container,
    node,
    pod,
    selector,
    service,
    term,
)
from tests.support.cases import node_rows, pod_rows, volume_rows
from tests.support.cases.row import Row, differences

_ROWS = [*node_rows.ROWS, *pod_rows.ROWS, *volume_rows.ROWS]


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: f"{row.plugin} {row.id}")
def test_the_product_and_the_reference_say_what_the_row_says(row: Row):
    product = ProductSubject(row.config)
    for subject in (product, ReferenceSubject(row.config)):
        for obj in row.objects:
            subject.apply(obj)
        assert differences(row, subject.evaluate(row.pod)) == []
    assert product.differences() == []


def test_an_image_keeps_the_size_first_reported_until_no_node_has_it():
    mb = 1024 * 1024
    incoming = pod(containers=[container(image="x:1")])
    for subject in (ProductSubject(None), ReferenceSubject(None)):
        subject.apply(node("a", images={"x:1": 1000 * mb}))
        subject.apply(node("b", images={"x:1": 23 * mb}))
        subject.delete("Node", None, "a")
        assert subject.evaluate(incoming)["score"]["ImageLocality"] == {"b": 100}
        subject.apply(node("b"))
        subject.apply(node("b", images={"x:1": 23 * mb}))
        assert subject.evaluate(incoming)["score"]["ImageLocality"] == {"b": 0}


LIMIT = json.dumps(
    {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {**term(ZONE, selector("app=web")), "maxPodsPerDomain": 2}
            ]
        }
    }
)


@pytest.mark.parametrize(
    ("running", "asked", "text"),
    [
        pytest.param(
            {"labels": {"app": "web"}, "annotations": {"affinity-scheduler.io/affinity": LIMIT}},
            {"labels": {"app": "web"}},
            "node(s) didn't satisfy existing pods anti-affinity rules.",
            id="a limit that it fills",
        ),
        pytest.param(
            {},
            {"containers": [container(host_ports=["80"])]},
            "node(s) didn't have free ports for the requested pod ports.",
            id="a host port",
        ),
    ],
)
def test_a_nominated_pod_counts_where_none_that_runs_is_in_the_way(running: Json, asked: Json, text: str):
    subject = ProductSubject(None)
    subject.apply(node("n", labels={ZONE: "z"}))
    subject.apply(pod("running", node="n", **running))
    assert "message" not in subject.evaluate(pod("incoming", **asked))
    subject.cluster.state.nominate(subject.cluster.pod(pod("nominated", spec={"priority": 9}, **asked)), "n")
    message = subject.evaluate(pod("incoming", **asked))["message"]
    assert message.startswith(f"0/1 nodes are available: 1 {text}")


def test_a_pod_without_a_vendor_s_resource_is_scored_without_it():
    """Also after a pod that asks for one."""
    weights = [{"name": name, "weight": 1} for name in ("cpu", "example.com/gpu")]
    strategy = {"type": "LeastAllocated", "resources": weights}
    subject = ProductSubject(configuration({"NodeResourcesFit": {"scoringStrategy": strategy}}))
    subject.apply(node("n", allocatable={"cpu": "4", "example.com/gpu": "2"}))
    scores = [
        subject.evaluate(pod(containers=[container(requests={"cpu": "1", **more})]))["score"]
        for more in ({"example.com/gpu": "1"}, {})
    ]
    assert [score["NodeResourcesFit"] for score in scores] == [{"n": 62}, {"n": 75}]


def test_a_rule_that_does_not_parse_is_an_error_where_inter_pod_affinity_only_scores():
    off = {"disabled": [{"name": "InterPodAffinity"}]}
    profile = {"schedulerName": "default-scheduler", "plugins": {"preFilter": off, "filter": off}}
    subject = ProductSubject({**configuration(), "profiles": [profile]})
    subject.apply(node("a"))
    subject.apply(node("b"))
    bad = affinity(preferred=[(1, term(ZONE, selector("app in {{bad}}")))])
    assert subject.evaluate(pod(affinity=bad))["error"].startswith(
        'running PreScore plugin "InterPodAffinity": failed to parse pod: preferredAffinityTerms: '
    )


def test_nodes_without_a_zone_and_nodes_of_an_empty_zone_are_one_domain_of_default_constraints():
    subject, reference = ProductSubject(None), ReferenceSubject(None)
    zones = {"empty": {ZONE: ""}, "none": {}, "x": {ZONE: "x"}}
    objects = [service("svc", {"app": "web"}), *(node(name, labels=labels) for name, labels in zones.items())]
    for index, name in enumerate(("empty", "empty", "empty", "x")):
        objects.append(pod(f"p{index}", node=name, labels={"app": "web"}))
    for obj in objects:
        subject.apply(obj)
        reference.apply(obj)
    incoming = pod("incoming", labels={"app": "web"})
    scores = subject.evaluate(incoming)["score"]["PodTopologySpread"]
    assert scores == {"empty": 13, "none": 100, "x": 53}
    assert scores == reference.evaluate(incoming)["score"]["PodTopologySpread"]
