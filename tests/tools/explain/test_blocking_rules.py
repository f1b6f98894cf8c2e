"""The rules of an explanation: the term, who declares it, its pods, domains and numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.engine.model.annotations import AFFINITY
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.wording import amount_text, namespaces_text, selector_text
from scheduler.engine.syntax.selectors import EVERYTHING, NOTHING, parse_selector
from scheduler.tools.explain.formats.explanation import Explanation, Rule
from tests.support import build
from tests.support.build import ZONE, Json, affinity, selector, spread, term
from tests.support.json_cluster import Cluster, alone_per_zone, web, zoned
from tests.tools.explain.told import case

WEB = selector("app=web")
CLOSED = zoned("c1", taints=["x:NoSchedule"])


def limited(name: str, node: str | None = None, **limit: object) -> Json:
    """Return a pod with a limit of pods per zone, of two by default."""
    apart = {**term(ZONE, WEB), **(limit or {"maxPodsPerDomain": 2})}
    return web(name, node, annotations={AFFINITY: json.dumps(affinity(anti_required=[apart]))})


def share(**limit: object) -> list[Json]:
    return [limited(f"r{n}", node, **limit) for n, node in enumerate(("a1", "b1", "c1") * 3)]


def of(pod: Json, **labels: str) -> Json:
    pod["metadata"]["labels"] = labels
    return pod


def cache(name: str, **more: Any) -> Json:
    return build.pod(name, labels={"app": "cache"}, **more)


def declared(rule: Rule) -> Iterator[str]:
    """Yield what an explanation has of the rule."""
    yield f"{rule.kind} {rule.topology_key}, {rule.n_nodes} nodes: {rule.selects}, {rule.namespaces}"
    yield f"  {rule.text}"
    for what, pods in (("declared by", rule.declared_by), ("pods", rule.pods), ("pending", rule.pending)):
        if pods is not None:
            named = (f"{pod.key}:{pod.node}:{pod.domain}" for pod in pods.shown)
            yield f"  {what}: {' '.join((str(pods.n_total), *named))}"
    yield from (f"  {each}" for each in (rule.skew, rule.share, *rule.domains) if each is not None)


def closed(answer: Explanation) -> str:
    """Return the closed domains of each rule."""
    return "; ".join(
        f"{rule.kind} {' '.join(each.domain for each in rule.domains if not each.allowed)}"
        for rule in answer.rules
    )


#: Two per zone: zone a is full. Zone b has more, but no pod there declares the limit.
FULL_IN_A = [limited("one", "a1"), web("two", "a2"), *(web(f"b{number}", "b1") for number in range(3))]
#: Only live pods of the namespace count.
SPREAD_PODS = [
    *(web(f"a{i}", "a1") for i in range(3)),
    web("b0", "b1"),
    web("gone", "b1", terminating=True),
    web("other", "b1", namespace="elsewhere"),
]
HERMIT = build.pod(
    "hermit",
    namespace="quiet",
    node="a2",
    affinity=affinity(anti_required=[term(ZONE, selector("app"), namespace_selector={})]),
)
CACHES = [cache("cache-0", node="a1"), cache("cache-1"), cache("cache-2", namespace="elsewhere")]
#: A pod that one of the terms selects does not do.
ALL_OF = affinity(required=[term(key, selector(label)) for key in (ZONE, "rack") for label in ("app=a", "b")])
IN_B = limited("p", domainWeights={"a": 7, "b": 3})
IN_B["spec"]["nodeSelector"] = {ZONE: "b"}
THIRD = {"maxPodsPerDomain": "30%"}


@pytest.mark.parametrize(
    ("cluster", "pod", "kinds"),
    [
        case(
            "anti-affinity names the blocking pod of each zone",
            [*zoned("a1 a2 b1"), *CLOSED],
            web("p", affinity=alone_per_zone()),
            "requiredAntiAffinity a b",
            pods=[web("one", "a2"), web("two", "b1")],
        ),
        case(
            "a running pod's anti-affinity names the pod that declares it",
            zoned("a1 a2"),
            web("p"),
            "existingAntiAffinity a",
            pods=[HERMIT],
        ),
        # Kubernetes reports the pod's own term first; the running pods' term is listed too.
        case(
            "anti-affinity between replicas is explained from both sides",
            zoned("a1"),
            web("p", affinity=alone_per_zone()),
            "requiredAntiAffinity a; existingAntiAffinity a",
            pods=[web("one", "a1", affinity=alone_per_zone())],
        ),
        case(
            "a limit of running pods",
            [*zoned("a1 a2"), *zoned("b1", taints=["x:NoSchedule"])],
            web("p"),
            "existingAntiAffinity a",
            pods=FULL_IN_A,
        ),
        case(
            "a limit of the pod",
            [*zoned("a1 a2"), *zoned("b1", taints=["x:NoSchedule"])],
            limited("p"),
            "requiredAntiAffinity a b; existingAntiAffinity a",
            pods=FULL_IN_A,
        ),
        case(
            "spread, of which the emptiest domain sets the limit",
            [*zoned("a1 b1"), *zoned("c1", unschedulable=True)],
            web("p", spread=[spread(ZONE, WEB)]),
            "topologySpread a b",
            pods=SPREAD_PODS,
        ),
        case(
            "below minDomains the global minimum is zero",
            zoned("a1 b1"),
            web("p", spread=[spread(ZONE, WEB, min_domains=3)]),
            "topologySpread a b",
            pods=[web("one", "a1"), web("two", "b1")],
        ),
        case(
            "affinity names running and pending matches",
            [*zoned("a1", taints=["x:NoSchedule"]), *zoned("b1")],
            build.pod(affinity=affinity(required=[term(ZONE, selector("app=cache"))])),
            "requiredAffinity b",
            pods=CACHES,
        ),
        case(
            "a pod that matches all required terms is one rule by topology key",
            zoned("a1"),
            build.pod(affinity=ALL_OF),
            "requiredAffinity a; requiredAffinity ",
            pods=[build.pod("half", labels={"app": "a"}, node="a1")],
        ),
        case(
            "a percentage",
            zoned("a1 b1 c1"),
            limited("p", **THIRD),
            "requiredAntiAffinity a b c; existingAntiAffinity a b c",
            pods=share(**THIRD),
        ),
        case(
            "weights",
            zoned("a1 b1 c1"),
            IN_B,
            "requiredAntiAffinity b c; existingAntiAffinity b c",
            pods=share(domainWeights={"a": 7, "b": 3})[:2],
        ),
        case(
            "a percentage of pods of which the declaring one is none",
            zoned("a1"),
            web("p"),
            "existingAntiAffinity a",
            pods=[of(limited(f"r{n}", "a1", **THIRD), app="db") for n in range(2)],
        ),
        case(
            "a percentage of the minimum of a running group",
            zoned("a1"),
            web("p"),
            "existingAntiAffinity a",
            pods=[
                of(limited(f"r{n}", "a1", **THIRD), **{"app": "web", GROUP: "g", MIN_COUNT: "4"})
                for n in range(2)
            ],
        ),
    ],
)
def test_a_rule_is_told_with_its_pods_and_domains(
    cluster: Cluster, pod: Json, kinds: str, snapshot: SnapshotAssertion
) -> None:
    answer = cluster.explain(pod)
    assert closed(answer) == kinds
    for rule in answer.rules:
        in_domains = [n for n in cluster.nodes if rule.topology_key in n["metadata"]["labels"]]
        assert sum(each.n_nodes for each in rule.domains) == len(in_domains)
        assert rule.text.endswith(f"closes {rule.n_nodes} node{'' if rule.n_nodes == 1 else 's'}")
    assert "\n".join(line for rule in answer.rules for line in declared(rule)) == snapshot


@pytest.mark.parametrize(("running", "open_again"), [(1, True), (2, False), (3, False)])
def test_max_pods_per_domain_says_how_many_pods_have_to_leave(running: int, open_again: bool) -> None:
    """At most two per zone: enough pods have to leave that one more fits."""
    answer = Cluster(zoned("a1"), [limited(f"w{i}", "a1") for i in range(running)]).explain(limited("p"))
    assert (answer.state == "schedulable") == open_again
    if not open_again:
        own = next(rule for rule in answer.rules if rule.kind == "requiredAntiAffinity")
        assert [(each.n_pods, each.most) for each in own.domains] == [(running, 1)]
        assert [len(suggestion.changes) for suggestion in answer.suggestions][:1] == [running - 1]


TEAM = parse_selector({"team": "core"}, None)
EXPRESSIONS = [("a", "NotIn", ("x",)), ("b", "Exists", ()), ("c", "DoesNotExist", ())]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (selector_text(NOTHING), "no pod (there is no labelSelector)"),
        (selector_text(EVERYTHING), "every pod"),
        (
            selector_text(parse_selector({"app": "web"}, [("tier", "In", ("a", "b"))])),
            "app=web,tier in (a,b)",
        ),
        (selector_text(parse_selector(None, EXPRESSIONS)), "a!=x,b,!c"),
        (selector_text(parse_selector(None, [("a", "NotIn", ("x", "y"))])), "a notin (x,y)"),
        (namespaces_text({"a"}, NOTHING), "namespace a"),
        (namespaces_text({"b", "a"}, NOTHING), "namespaces a, b"),
        (namespaces_text({"a"}, EVERYTHING), "every namespace"),
        (namespaces_text(set(), TEAM), "namespaces with team=core"),
        (namespaces_text({"a"}, TEAM), "namespace a and namespaces with team=core"),
        (namespaces_text(set(), NOTHING), "no namespace"),
        (amount_text("cpu", 500), "500m"),
        (amount_text("cpu", 2000), "2"),
        (amount_text("memory", 1 << 30), "1Gi"),
        (amount_text("memory", (1 << 30) + 1), "1.1Gi"),
        (amount_text("memory", 1000), "1000"),
        (amount_text("hugepages-2Mi", 4 << 20), "4Mi"),
        (amount_text("example.com/gpu", 3), "3"),
        (amount_text("pods", 1), "1"),
    ],
)
def test_selectors_namespaces_and_amounts_are_written_as_kubectl_takes_them(found: str, text: str) -> None:
    """Or in words where it cannot. Amounts are exact if the quantity is short, else rounded up."""
    assert found == text


def test_a_rule_about_all_pods_of_a_namespace_names_no_labels() -> None:
    alone = build.affinity(anti_required=[build.term(build.ZONE, {})])
    cluster = Cluster(zoned("a1"), [web("other", "a1")])
    (rule,) = cluster.explain(build.pod("p", affinity=alone)).rules
    assert rule.text == (
        "The pod's anti-affinity: not beside pods in namespace default, by topology.kubernetes.io/zone; closes 1 node"
    )


def test_a_pod_that_declares_a_term_twice_is_one_pod() -> None:
    term = build.term(build.ZONE, build.selector("app=web"))
    twice = build.affinity(anti_required=[term, {**term, "matchLabelKeys": ["absent"]}])
    cluster = Cluster(zoned("a1"), [build.pod("db", node="a1", affinity=twice)])
    (rule,) = cluster.explain(web("p")).rules
    assert rule.declared_by is not None
    assert (rule.declared_by.n_total, [each.n_pods for each in rule.domains]) == (1, [1])
