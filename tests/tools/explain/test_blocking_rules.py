"""The rules of an explanation: the term, who declares it, its pods, domains and numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.engine.model.annotations import AFFINITY
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.wording import amount_text, namespaces_text, selector_text
from scheduler.engine.syntax.selectors import EVERYTHING, NOTHING, parse_selector
from scheduler.tools.explain.formats.explanation import DomainCount, Rule
from scheduler.tools.explain.sentences import rule_text
from tests.support import build
from tests.support.json_cluster import Cluster, alone_per_zone, web, zoned


def rules(cluster: Cluster, pod: build.Json) -> list[Rule]:
    return list(cluster.explain(pod).rules)


def names(rule: Rule) -> list[tuple[str, str, str]]:
    return [(pod.key, pod.node, pod.domain) for pod in rule.pods.shown]


def limited(name: str, node: str | None = None, **limit: object) -> build.Json:
    """Return a pod with a limit of pods per zone, of two by default."""
    term = {**build.term(build.ZONE, build.selector("app=web")), **(limit or {"maxPodsPerDomain": 2})}
    annotations = {AFFINITY: json.dumps(build.affinity(anti_required=[term]))}
    return web(name, node, annotations=annotations)


def table(rule: Rule) -> list[tuple[str, int, int, int | None, bool]]:
    return [(d.domain, d.n_nodes, d.n_pods, d.most, d.allowed) for d in rule.domains]


def test_anti_affinity_names_the_blocking_pod_of_each_zone() -> None:
    cluster = Cluster(
        [*zoned("a1 a2 b1"), *zoned("c1", taints=["x:NoSchedule"])], [web("one", "a2"), web("two", "b1")]
    )
    (rule,) = rules(cluster, web("p", affinity=alone_per_zone()))
    assert (rule.kind, rule.declared_by, rule.n_nodes) == ("requiredAntiAffinity", None, 3)
    assert (rule.topology_key, rule.selects, rule.namespaces) == (build.ZONE, "app=web", "namespace default")
    assert names(rule) == [("default/one", "a2", "a"), ("default/two", "b1", "b")]
    assert table(rule) == [("a", 2, 1, 0, False), ("b", 1, 1, 0, False), ("c", 1, 0, 0, True)]


def test_a_running_pods_anti_affinity_names_the_pod_that_declares_it() -> None:
    alone = build.affinity(
        anti_required=[build.term(build.ZONE, build.selector("app"), namespace_selector={})]
    )
    cluster = Cluster(zoned("a1 a2"), [build.pod("hermit", namespace="quiet", node="a2", affinity=alone)])
    (rule,) = rules(cluster, web("p"))
    assert rule.kind == "existingAntiAffinity"
    assert rule.declared_by is not None
    assert [pod.key for pod in rule.declared_by.shown] == ["quiet/hermit"]
    assert (rule.selects, rule.namespaces) == ("app", "every namespace")


def test_anti_affinity_between_replicas_is_explained_from_both_sides() -> None:
    """Kubernetes reports the pod's own term first; the running pods' term is listed too."""
    cluster = Cluster(zoned("a1"), [web("one", "a1", affinity=alone_per_zone())])
    found = rules(cluster, web("p", affinity=alone_per_zone()))
    assert sorted(rule.kind for rule in found) == ["existingAntiAffinity", "requiredAntiAffinity"]


def test_max_pods_per_domain_limits_only_domains_with_a_declaring_pod() -> None:
    """Two per zone: zone a is full. Zone b has more, but no pod there declares the limit."""
    pods = [limited("one", "a1"), web("two", "a2"), *(web(f"b{number}", "b1") for number in range(3))]
    cluster = Cluster([*zoned("a1 a2"), *zoned("b1", taints=["x:NoSchedule"])], pods)
    (rule,) = rules(cluster, web("p"))
    assert names(rule) == [("default/one", "a1", "a"), ("default/two", "a2", "a")]
    assert table(rule) == [("a", 2, 2, 1, False), ("b", 1, 0, 1, True)]
    text = f"more than 1 pod with app=web in namespace default, by {build.ZONE}; closes 2 nodes"
    assert rule_text(rule) == f"Anti-affinity of running pods against {text}"
    own = next(each for each in rules(cluster, limited("p")) if each.declared_by is None)
    assert rule_text(own).startswith("The pod's anti-affinity: not beside more than 1 pod with app=web")


def test_spread_has_the_count_and_limit_of_each_domain() -> None:
    """Only live pods of the namespace count; the emptiest domain sets the limit."""
    pods = [web(f"a{i}", "a1") for i in range(3)] + [web("b0", "b1"), web("gone", "b1", terminating=True)]
    pods.append(web("other", "b1", namespace="elsewhere"))
    cluster = Cluster([*zoned("a1 b1"), *zoned("c1", unschedulable=True)], pods)
    (rule,) = rules(
        cluster, web("p", spread=[build.spread(build.ZONE, build.selector("app=web"), max_skew=1)])
    )
    assert (rule.kind, rule.n_nodes) == ("topologySpread", 2)
    assert rule.skew is not None
    assert (rule.skew.max_skew, rule.skew.fewest, rule.skew.counts_itself, rule.skew.n_domains) == (
        1,
        0,
        True,
        3,
    )
    assert table(rule) == [("a", 1, 3, 0, False), ("b", 1, 1, 0, False), ("c", 1, 0, 0, True)]
    assert rule.pods.n_total == 4
    assert {pod.key for pod in rule.pods.shown} == {"default/a0", "default/a1", "default/a2", "default/b0"}


def test_below_min_domains_the_global_minimum_is_zero() -> None:
    cluster = Cluster(zoned("a1 b1"), [web("one", "a1"), web("two", "b1")])
    spread = [build.spread(build.ZONE, build.selector("app=web"), max_skew=1, min_domains=3)]
    (rule,) = rules(cluster, web("p", spread=spread))
    assert rule.skew is not None
    assert (rule.skew.fewest, rule.skew.n_domains, rule.skew.min_domains) == (0, 2, 3)


def test_required_affinity_names_running_and_pending_matches() -> None:
    """One match runs on a node that the pod does not tolerate, and one is pending."""
    cluster = Cluster(
        [*zoned("a1", taints=["x:NoSchedule"]), *zoned("b1")],
        [
            build.pod("cache-0", labels={"app": "cache"}, node="a1"),
            build.pod("cache-1", labels={"app": "cache"}),
            build.pod("cache-2", labels={"app": "cache"}, namespace="elsewhere"),
        ],
    )
    near = build.affinity(required=[build.term(build.ZONE, build.selector("app=cache"))])
    (rule,) = rules(cluster, build.pod(affinity=near))
    assert (rule.kind, rule.n_nodes) == ("requiredAffinity", 1)
    assert names(rule) == [("default/cache-0", "a1", "a")]
    assert [pod.key for pod in rule.pending.shown] == ["default/cache-1"]
    assert rule.domains == (DomainCount("a", 1, 1, None, True), DomainCount("b", 1, 0, None, False))


def test_a_pod_that_matches_all_required_terms_is_one_rule_by_topology_key() -> None:
    """A pod that one of the terms selects does not do."""
    near = [
        build.term(key, build.selector(label)) for key in (build.ZONE, "rack") for label in ("app=a", "b")
    ]
    cluster = Cluster(zoned("a1"), [build.pod("half", labels={"app": "a"}, node="a1")])
    found = rules(cluster, build.pod(affinity=build.affinity(required=near)))
    assert [(rule.kind, rule.topology_key, rule.n_nodes) for rule in found] == [
        ("requiredAffinity", build.ZONE, 1),
        ("requiredAffinity", "rack", 1),
    ]
    assert {(rule.selects, rule.namespaces, rule.pods.n_total) for rule in found} == {
        ("app=a; and b", "namespace default", 0)
    }


@pytest.mark.parametrize(("running", "open_again"), [(1, True), (2, False), (3, False)])
def test_max_pods_per_domain_says_how_many_pods_have_to_leave(running: int, open_again: bool) -> None:
    """At most two per zone: enough pods have to leave that one more fits."""
    answer = Cluster(zoned("a1"), [limited(f"w{i}", "a1") for i in range(running)]).explain(limited("p"))
    assert (answer.state == "schedulable") == open_again
    if not open_again:
        own = next(rule for rule in answer.rules if rule.kind == "requiredAntiAffinity")
        assert table(own) == [("a", 1, running, 1, False)]
        assert [len(suggestion.changes) for suggestion in answer.suggestions][:1] == [running - 1]


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        (NOTHING, "no pod (there is no labelSelector)"),
        (EVERYTHING, "every pod"),
        (parse_selector({"app": "web"}, [("tier", "In", ("a", "b"))]), "app=web,tier in (a,b)"),
        (
            parse_selector(None, [("a", "NotIn", ("x",)), ("b", "Exists", ()), ("c", "DoesNotExist", ())]),
            "a!=x,b,!c",
        ),
        (parse_selector(None, [("a", "NotIn", ("x", "y"))]), "a notin (x,y)"),
    ],
)
def test_selectors_are_written_as_for_kubectl(selector: Any, text: str) -> None:
    """As `-l` takes them, or in words where it cannot."""
    assert selector_text(selector) == text


@pytest.mark.parametrize(
    ("names", "selector", "text"),
    [
        ({"a"}, NOTHING, "namespace a"),
        ({"b", "a"}, NOTHING, "namespaces a, b"),
        (set(), EVERYTHING, "every namespace"),
        ({"a"}, EVERYTHING, "every namespace"),
        (set(), parse_selector({"team": "core"}, None), "namespaces with team=core"),
        ({"a"}, parse_selector({"team": "core"}, None), "namespace a and namespaces with team=core"),
        (set(), NOTHING, "no namespace"),
    ],
)
def test_namespaces_of_a_term_are_written_in_words(names: set[str], selector: Any, text: str) -> None:
    assert namespaces_text(names, selector) == text


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 500, "500m"),
        ("cpu", 2000, "2"),
        ("memory", 1 << 30, "1Gi"),
        ("memory", (1 << 30) + 1, "1.1Gi"),
        ("memory", 1000, "1000"),
        ("hugepages-2Mi", 4 << 20, "4Mi"),
        ("example.com/gpu", 3, "3"),
        ("pods", 1, "1"),
    ],
)
def test_amounts_are_written_as_quantities(resource: str, amount: int, text: str) -> None:
    """Exact if the quantity is short, else rounded up."""
    assert amount_text(resource, amount) == text


@pytest.mark.parametrize(
    ("limit", "running", "texts"),
    [
        pytest.param(
            {"maxPodsPerDomain": "30%"},
            ("a1", "a1", "a1", "b1", "b1", "b1", "c1", "c1", "c1"),
            ["a has 3 of 10 pods, 30% allows 3; b has 3 of 10 pods, 30% allows 3; c has 3 of 10"],
            id="a percentage",
        ),
        pytest.param(
            {"domainWeights": {"a": 7, "b": 3}},
            ("a1", "b1"),
            [
                "b has 1 of 3 pods, weight 3 of 10 allows 1; c has 0 of 3 pods, without a weight none is allowed"
            ],
            id="weights",
        ),
    ],
)
def test_shares_say_their_numbers(limit: build.Json, running: tuple[str, ...], texts: list[str]) -> None:
    """Of the pod's own rule and of that of running pods; a proposal that helps is still found."""
    cluster = Cluster(zoned("a1 b1 c1"), [limited(f"r{n}", node, **limit) for n, node in enumerate(running)])
    pod = limited("p", **limit)
    if "domainWeights" in limit:
        pod["spec"]["nodeSelector"] = {build.ZONE: "b"}
    own, existing, *_ = sorted(rules(cluster, pod), key=lambda rule: rule.kind, reverse=True)
    for text in texts:
        assert text in own.text
    assert own.text.startswith(f"The pod's anti-affinity: per {build.ZONE} ")
    assert existing.text.startswith("Anti-affinity of running pods: ")
    assert own.share is not None
    assert own.share.n_pods == len(running) + 1


@pytest.mark.parametrize(
    ("labels", "group", "texts"),
    [
        pytest.param(
            {"app": "db"},
            0,
            ["30% of the pods with app=web", "a has 0 of 1 pods, 30% allows 1", "and the one that declares"],
            id="the rule does not select the pod that declares it",
        ),
        pytest.param(
            {"app": "web"},
            4,
            ["as 30% of its group's minimum of 4: a has 2 pods, 30% allows 2 (with this pod)"],
            id="a percentage of the minimum of a running group",
        ),
    ],
)
def test_a_percentage_of_running_pods_says_of_what(
    labels: dict[str, str], group: int, texts: list[str]
) -> None:
    pods = [limited(f"r{n}", "a1", maxPodsPerDomain="30%") for n in range(2)]
    for pod in pods:
        pod["metadata"]["labels"] = labels | ({GROUP: "g", MIN_COUNT: str(group)} if group else {})
    (rule,) = rules(Cluster(zoned("a1"), pods), web("p"))
    for text in texts:
        assert text in rule.text
