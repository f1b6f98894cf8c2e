"""Affinity by annotation, limits per domain and exempt namespaces, which are not upstream."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from scheduler.engine.model.annotations import AFFINITY, MODE
from scheduler.engine.model.instructions import Bind
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import PodSeen
from scheduler.engine.model.terms import ANY_NODE, PodAffinity, usable
from tests.reference.inter_pod_affinity import max_pods
from tests.support import build
from tests.support.build import HOSTNAME, ZONE, selector, term
from tests.support.driving import NAME, Driver, bind_of, condition_of, each_of
from tests.support.messages import refusals

ENFORCED = "requiredDuringSchedulingRequiredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def see(driver: Driver, name: str, annotation: Any = None, *, mode: str = "", **keywords: Any) -> Pod:
    """Show a pod of our profile with the affinity annotation; a str is used as it is."""
    text = annotation if isinstance(annotation, str) else json.dumps(annotation)
    annotations = {} if annotation is None else {AFFINITY: text}
    if mode:
        annotations[MODE] = mode
    return driver.pod(name, annotations=annotations, **keywords)


def anti(key: str, selects: build.Json, *, which: str = REQUIRED, **more: Any) -> build.Json:
    return {"podAntiAffinity": {which: [{**term(key, selects), **more}]}}


def outcome(driver: Driver) -> str:
    """Return the node of the bind, or the message of the rejection."""
    told = driver.cycle()
    names = [type(i).__name__ for i in told]
    return bind_of(told).node_name if "Bind" in names else refusals(condition_of(told).message)


def test_a_malformed_grace_period_keeps_the_pod_pending_until_it_is_corrected(driver: Driver) -> None:
    """As any malformed annotation of ours."""
    driver.node("a")
    grace = "affinity-scheduler.io/affinity-grace-seconds"
    driver.pod("p", annotations={grace: "soon"})
    assert outcome(driver) == (
        f'0/1 nodes are available: annotation {grace}: found "soon", expected seconds from 0 to 999999.'
    )
    driver.pod("p", annotations={grace: "30"})
    driver.pass_time(20.0)
    assert outcome(driver) == "a"


@pytest.mark.parametrize(
    ("n_terms", "told"),
    [
        (8, "a"),
        (
            9,
            f"0/1 nodes are available: annotation {AFFINITY}: $.nodeAffinity:"
            " more than 64 alternatives with the spec's.",
        ),
    ],
)
def test_terms_of_nodes_are_paired_with_those_of_the_spec_up_to_a_limit(
    driver: Driver, n_terms: int, told: str
) -> None:
    terms = [build.node_term("disk")]
    driver.node("a", labels={"disk": "ssd"})
    asked = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms * n_terms}}}
    see(driver, "p", asked, affinity=build.affinity(node_required=terms * 8))
    assert outcome(driver) == told


def test_replace_mode_replaces_preferred_nodes_too(driver: Driver) -> None:
    """Even if the annotation has none."""
    ssd = build.affinity(node_preferred=[(100, build.node_term("disk in ssd"))])
    assert see(driver, "p", affinity=ssd).spec.preferred_nodes
    assert see(driver, "p", {}, mode="replace", affinity=ssd).spec.preferred_nodes is None


_WRONG_LIMITS: dict[str, build.Json] = {
    "a limit of none": {"maxPodsPerDomain": 0},
    **{f"a limit of {text}": {"maxPodsPerDomain": text} for text in ("0%", "101%", "2")},
    "no weights": {"domainWeights": {}},
    "101 weights": {"domainWeights": {f"z{n}": 1 for n in range(101)}},
    **{f"a weight of {weight}": {"domainWeights": {"a": weight}} for weight in (0, 1001, "70%")},
    "a domain that is no label": {"domainWeights": {"a b": 1}},
    "weights and a limit": {"domainWeights": {"a": 1}, "maxPodsPerDomain": 2},
}
#: Fields of a required affinity term.
_WRONG_AFFINITY: dict[str, build.Json] = {
    "weights of affinity": {"domainWeights": {"a": 1}},
    "a limit of affinity": {"maxPodsPerDomain": 2},
    "label keys without a selector": {"matchLabelKeys": ["a"]},
}
_WRONG_NODE_TERMS: dict[str, list[build.Json]] = {
    "a term of labels": [{"matchLabels": {"a": "b"}}],
    "no terms": [],
    "a bad key": [build.node_term("a"), build.node_term("!")],
    "257 expressions in one term": [build.node_term(*(f"!k{n}" for n in range(257)))],
}
_TOO_MANY = {REQUIRED: {"nodeSelectorTerms": [build.node_term("a")] * 64}}
_MALFORMED: dict[str, Any] = {
    "no JSON": "{",
    "a tower of lists": '{"nodeAffinity":{"x":' + "[" * 20_000,
    "not an object": [],
    "misspelt": {"podAfinity": {}},
    "made for a terminal": {"\x1b[31m\r\nEvents: none": {}},
    "a key that is a number": {"podAntiAffinity": {REQUIRED: [{"topologyKey": 5}]}},
    "an empty key": {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {"topologyKey": ""}}]}},
    "bad selector": anti(HOSTNAME, selector("app=a b")),
    **{name: anti(ZONE, selector("app=a"), **limits) for name, limits in _WRONG_LIMITS.items()},
    **{
        name: {"podAffinity": {REQUIRED: [{"topologyKey": ZONE, **more}]}}
        for name, more in _WRONG_AFFINITY.items()
    },
    "no weight": {"podAffinity": {PREFERRED: [{"podAffinityTerm": {"topologyKey": ZONE}}]}},
    "a weight above 100": {
        "podAffinity": {PREFERRED: [{"weight": 101, "podAffinityTerm": {"topologyKey": ZONE}}]}
    },
    "enforced node affinity, which there is none of": {
        "nodeAffinity": {ENFORCED: {"nodeSelectorTerms": [build.node_term("disk")]}}
    },
    **{
        name: {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
        for name, terms in _WRONG_NODE_TERMS.items()
    },
    "a weight above all scores": {
        "nodeAffinity": {PREFERRED: [{"weight": 10**12, "preference": build.node_term("disk")}]}
    },
    "65 terms, of pods and nodes": {**anti(HOSTNAME, selector("app=a")), "nodeAffinity": _TOO_MANY},
}


@pytest.mark.parametrize("annotation", _MALFORMED.values(), ids=_MALFORMED)
def test_a_malformed_annotation_refuses_the_pod_and_names_the_place(
    driver: Driver, annotation: Any, snapshot: SnapshotAssertion
) -> None:
    """The incoming pod is not placed; the annotation of a running pod is ignored."""
    driver.node("a")
    see(driver, "running", annotation, labels={"app": "a"}, node="a")
    see(driver, "p", annotation, labels={"app": "a"})
    message = outcome(driver)
    assert message.startswith("0/1 nodes are available: annotation affinity-scheduler.io/affinity: $")
    assert message == snapshot
    see(driver, "q", labels={"app": "a"})
    assert outcome(driver) == "a"


@pytest.mark.parametrize(
    "annotation",
    [
        pytest.param({"x" * 60_000: 1}, id="unknown field"),
        pytest.param(anti(HOSTNAME, {"matchLabels": {"app": "x" * 60_000}}), id="label value"),
        pytest.param(anti(HOSTNAME, {"matchLabels": {"` - at `" * 5_000: "x"}}), id="label key"),
        pytest.param("9" * 60_000, id="number"),
    ],
)
def test_the_message_about_a_malformed_annotation_is_short(driver: Driver, annotation: Any) -> None:
    """It is part of the pod's condition, of events and of logs."""
    driver.node("a")
    see(driver, "p", annotation)
    assert len(outcome(driver)) < 700


def test_null_counts_as_absent_in_annotations(driver: Driver) -> None:
    """As in the fields of pods: serializers write null for what is not set."""
    apart = {**term(ZONE, selector("app=web")), "namespaces": None, "matchLabelKeys": None}
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "Exists", "values": None}], "matchFields": None}]
    asked = {
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}, PREFERRED: None},
        "podAffinity": None,
        "podAntiAffinity": {REQUIRED: [apart], PREFERRED: None},
    }
    text = json.dumps(asked)
    written = json.loads(text, object_hook=lambda one: {k: v for k, v in one.items() if v is not None})
    null, absent = see(driver, "a", text), see(driver, "b", written)
    assert absent.spec.annotation_problem is None
    assert null.spec.affinity == absent.spec.affinity != PodAffinity()
    assert null.spec.required_node_affinity == absent.spec.required_node_affinity != ANY_NODE


def test_an_unknown_mode_is_named(driver: Driver) -> None:
    """The mode annotation."""
    driver.node("a")
    see(driver, "p", {}, mode="merge")
    assert 'affinity-mode: found "merge", expected "add" or "replace"' in outcome(driver)


GROUP = "affinity-scheduler.io/pod-group"
MIN_COUNT = "affinity-scheduler.io/pod-group-min-count"


def member(name: str, percentage: str, minimum: int, where: str = "labels") -> build.Json:
    """Return a member of a group of so many, of which a zone may have the percentage."""
    limit = anti(ZONE, selector("app=db"), maxPodsPerDomain=percentage)
    annotations = {AFFINITY: json.dumps(limit)}
    document = build.pod(name, labels={"app": "db"}, annotations=annotations, spec={"schedulerName": NAME})
    document["metadata"][where].update({GROUP: "g", MIN_COUNT: str(minimum)})
    return document


@given(st.integers(1, 100), st.integers(1, 5000), st.sampled_from(["labels", "annotations"]))
def test_a_percentage_is_of_the_groups_minimum_rounded_up(percent: int, minimum: int, where: str) -> None:
    """The decoder holds the spec of an equal pod with another minimum, which is not shared."""
    decoder = Driver()
    other = decoder.decoded(member("other", f"{percent}%", minimum % 5000 + 1, where))
    document = member("p", f"{percent}%", minimum, where)
    assert decoder.decoded(document).spec is not other.spec
    (limit,) = usable(decoder.decoded(document).spec.affinity.required_anti)
    assert limit.max_pods == max_pods(document, {"maxPodsPerDomain": f"{percent}%"})


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_no_domain_gets_more_than_its_percentage_of_a_group(driver: Driver, where: str) -> None:
    """50 % of five are three: such a group does not fit one zone, and fits two."""

    def places() -> list[int]:
        binds = [each.node_name for _ in range(3) for each in each_of(driver.cycle(), Bind)]
        return sorted(Counter(binds).values())

    driver.node("a", labels={ZONE: "a"})
    for number in range(5):
        driver.handle(PodSeen(driver.decoded(member(f"p{number}", "50%", 5, where))))
    assert places() == []
    driver.node("b", labels={ZONE: "b"})
    driver.pass_time(20.0)
    assert places() == [2, 3]
