"""The plugins decide as recorded and as the tables of edge cases say; afterwards the counts are audited."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.product import ProductSubject
from tests.conformance.replay import answers
from tests.conformance.traces import Trace, read
from tests.reference.cluster import Cluster
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
from tests.support.cases.row import Row, differences
from tests.support.cases.rows import ALL

DATA = Path(__file__).parents[2] / "data"
KINDS = ("affinity", "spread", "node", "mixed", "volumes", "preempt")


@pytest.mark.parametrize("row", ALL, ids=lambda row: f"{row.plugin} {row.id}")
def test_the_product_says_what_the_row_says(row: Row):
    subject = ProductSubject(row.config)
    for obj in row.objects:
        subject.apply(obj)
    assert differences(row, subject.evaluate(row.pod)) == []
    assert subject.differences() == []


def _recorded(kind: str) -> list[Trace]:
    return [record for record in read(DATA / f"{kind}.jsonl.gz") if isinstance(record, Trace)]


def _differences(trace: Trace) -> Iterator[str]:
    subject = ProductSubject(trace.config)
    for place, mismatches in answers(trace, lambda _: subject, fresh=False):
        yield from (f"{place} {mismatch}" for mismatch in mismatches)
    yield from (f"{trace.name} {difference}" for difference in subject.differences())


@pytest.mark.parametrize("kind", KINDS)
def test_the_product_decides_as_recorded(kind: str):
    """One state, through the whole recording, audited at its end."""
    assert [difference for trace in _recorded(kind) for difference in _differences(trace)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_built_anew_decides_as_recorded(kind: str):
    """Every fifth recording: a state that is kept decides all of them."""
    found = [
        f"{place} {mismatch}"
        for trace in _recorded(kind)[:: 2 if kind == "volumes" else 5]
        for place, mismatches in answers(trace, ProductSubject, fresh=True)
        for mismatch in mismatches
    ]
    assert found == []


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
    subject, reference = ProductSubject(None), Cluster()
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
