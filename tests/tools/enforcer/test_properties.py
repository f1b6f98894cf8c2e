"""Properties of enforcement, checked with the reference: it ends, mends every rule, and evicts no pod in vain."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.state.batches import finished
from scheduler.engine.state.matching import NamespaceRule
from scheduler.engine.syntax.selectors import EVERYTHING
from scheduler.tools.enforcer.instructions import Evict
from tests.reference.annotated import in_fields
from tests.reference.inter_pod_affinity import refusals, terms_of
from tests.reference.question import Object, Question
from tests.support.build import ZONE, Json, affinity, selector, term
from tests.support.enforcer_driver import Driver, rules

#: Annotations of every namespace may be about others.
EVERYWHERE = NamespaceRule(frozenset(), EVERYTHING)
APPS = ("a", "b", "c")
TEAMS = ("red", "blue")
RACK = "example.com/rack"
NODES = ("n0", "n1", "n2", "n3")


class World(NamedTuple):
    """The labels of nodes and namespaces."""

    nodes: Mapping[str, Mapping[str, str]]
    namespaces: Mapping[str, Mapping[str, str]]


def broken(pods: Iterable[Json], world: World) -> list[str]:
    """Return the pods that the reference, beside the others without their rules, would not let to where they are."""
    everyone = list(pods)
    return [
        pod["metadata"]["name"]
        for pod in everyone
        if pod["spec"]["nodeName"] in refusals(question(pod, everyone, world))
    ]


def question(pod: Json, everyone: Iterable[Json], world: World) -> Question:
    pods_on: dict[str, list[Object]] = {name: [] for name in world.nodes}
    for other in everyone:
        if other is not pod:
            pods_on[other["spec"]["nodeName"]].append({**other, "spec": {}})
    nothing: Mapping[str, Any] = {}
    return Question(
        pod=in_fields(pod),
        nodes={name: {"metadata": {"labels": labels}} for name, labels in world.nodes.items()},
        pods_on=pods_on,
        namespaces=world.namespaces,
        owners=nothing,
        images=nothing,
        args=nothing,
        disabled=frozenset(),
        gates=nothing,
        storage=nothing,
    )


def breaks(going: Json, declaring: Json, world: World) -> bool:
    """Return whether a pod is one of those that a term of the declaring one keeps out of its domain."""
    namespace = world.namespaces[going["metadata"]["namespace"]]
    here, there = (world.nodes[pod["spec"]["nodeName"]] for pod in (going, declaring))
    return any(
        term.matches(going, namespace) and here.get(term.topology_key) == there.get(term.topology_key)
        for term in terms_of(in_fields(declaring)).anti_required
    )


def a_term(draw: st.DrawFn, *, limited: bool) -> Json:
    extra: Json = draw(
        st.sampled_from(
            [
                *[{}] * 3,
                {"namespace_selector": {}},
                {"namespace_selector": selector("team=red")},
                {"namespaces": ["one"]},
                {"namespaces": ["two"], "namespace_selector": selector("team in blue")},
            ]
        )
    )
    selects = selector(f"app{draw(st.sampled_from(['=', ' in ', ' notin ']))}{draw(st.sampled_from(APPS))}")
    made = term(draw(st.sampled_from([ZONE, RACK])), selects, **extra)
    if limited and draw(st.booleans()):
        made["maxPodsPerDomain"] = draw(st.integers(1, 3))
    return made


@st.composite
def affinity_rules(draw: st.DrawFn, *, near: bool) -> Json | None:
    apart = [a_term(draw, limited=True) for _ in range(draw(st.integers(0, 2)))]
    together = [a_term(draw, limited=False) for _ in range(draw(st.integers(0, 2)))] if near else []
    return rules(near=together, far=apart) or None


@st.composite
def ordinary_rules(draw: st.DrawFn) -> Json:
    """Draw rules of the spec, which are only reported."""
    apart = [a_term(draw, limited=False) for _ in range(draw(st.integers(0, 2)))]
    together = [a_term(draw, limited=False) for _ in range(draw(st.integers(0, 2)))]
    return affinity(required=together, anti_required=apart)


@st.composite
def clusters(draw: st.DrawFn, *, near: bool, ordinary: bool = False) -> tuple[Driver, World]:
    """Return a cluster with broken rules; if `ordinary`, also with rules that are not enforced."""
    driver = Driver(annotating=EVERYWHERE)
    nodes, namespaces = {}, {}
    for name in NODES:
        keys = draw(st.sets(st.sampled_from([ZONE, RACK]), min_size=1))
        nodes[name] = {key: draw(st.sampled_from("xy")) for key in sorted(keys)}
        driver.node(name, labels=nodes[name])
    for name in ("one", "two"):
        namespaces[name] = {"team": draw(st.sampled_from(TEAMS))}
        driver.namespace(name, **namespaces[name])
    for number in range(draw(st.integers(1, 9))):
        driver.pod(
            f"p{number}",
            draw(st.sampled_from(NODES)),
            None if ordinary else draw(affinity_rules(near=near)),
            affinity=draw(ordinary_rules()) if ordinary else None,
            namespace=draw(st.sampled_from(["one", "two"])),
            labels={"app": draw(st.sampled_from(APPS))},
            priority=draw(st.integers(0, 2)),
            created=f"2026-01-0{draw(st.integers(1, 3))}T00:00:00Z",
            grace="0",
        )
    return driver, World(nodes, namespaces)


def orders(cluster: Driver) -> list[Evict]:
    return [each for each in cluster.check() if isinstance(each, Evict)]


@given(clusters(near=True))
@settings(max_examples=60, deadline=None)
def test_enforcement_ends_and_leaves_no_rule_broken(given: tuple[Driver, World]) -> None:
    """And every evicted pod declares or breaks a broken rule."""
    cluster, world = given
    left = set(cluster.pods)
    while evictions := orders(cluster):
        (order,) = evictions
        left.remove(order.pod.uid)
        pods = list(cluster.pods.values())
        going = cluster.pods[order.pod.uid]
        declaring = [pod for pod in pods if pod["metadata"]["name"] in broken(pods, world)]
        assert going in declaring or any(breaks(going, pod, world) for pod in declaring)
        cluster.evicted(order.pod.uid)
    assert broken(cluster.pods.values(), world) == []
    assert cluster.enforcer.status.violations == []
    cluster.audit()


@given(clusters(near=False))
@settings(max_examples=100, deadline=None)
def test_no_pod_is_evicted_that_could_have_stayed(given: tuple[Driver, World]) -> None:
    """
    Beside the pods that stayed, each evicted pod would break a rule again. Each plan is the previous one without the
    evicted pod. Pods of the highest priority stay unless they break each other's rules.
    """
    cluster, world = given
    before = dict(cluster.pods)
    highest = max(pod["spec"]["priority"] for pod in before.values())
    best = [pod for pod in before.values() if pod["spec"]["priority"] == highest]
    unaffected = [pod for pod in best if not broken(best, world)]
    cluster.check()
    planned = [each.pod.uid for each in cluster.enforcer.status.evictions]
    while planned:
        cluster.evicted(planned.pop(0))
        cluster.check()
        assert [each.pod.uid for each in cluster.enforcer.status.evictions] == planned
    assert orders(cluster) == []
    staying = list(cluster.pods.values())
    assert all(pod in staying for pod in unaffected)
    for uid in before.keys() - cluster.pods.keys():
        assert broken([*staying, before[uid]], world)


def changed(cluster: Driver, world: World, data: st.DataObject) -> World:
    """Change, copy or delete pods, nodes and namespaces, and sweep, with checks in between. Return the labels."""
    nodes, namespaces = dict(world.nodes), dict(world.namespaces)
    for _ in range(data.draw(st.integers(1, 6))):
        cluster.check()
        match data.draw(st.sampled_from(["pod", "copy", "node", "namespace", "gone", "sweep"])):
            case "pod" if cluster.pods:
                uid = data.draw(st.sampled_from(sorted(cluster.pods)))
                cluster.relabel(uid, app=data.draw(st.sampled_from(APPS)))
            case "copy" if cluster.pods:
                pod = copy.deepcopy(cluster.pods[data.draw(st.sampled_from(sorted(cluster.pods)))])
                name = f"{pod['metadata']['name']}-copy"
                pod["metadata"] |= {"name": name, "uid": name}
                pod["spec"]["nodeName"] = data.draw(st.sampled_from(NODES))
                cluster.see(pod)
            case "node":
                name = data.draw(st.sampled_from(NODES))
                nodes[name] = {ZONE: data.draw(st.sampled_from("xyz"))}
                cluster.node(name, labels=nodes[name])
            case "namespace":
                name = data.draw(st.sampled_from(["one", "two"]))
                namespaces[name] = {"team": data.draw(st.sampled_from(TEAMS))}
                cluster.namespace(name, **namespaces[name])
            case "gone" if cluster.pods:
                uid = data.draw(st.sampled_from(sorted(cluster.pods)))
                cluster.gone(uid)
            case "sweep":
                finished(cluster.enforcer.state.sweeping())
    cluster.check()
    return World(nodes, namespaces)


@given(st.booleans().flatmap(lambda ordinary: clusters(near=True, ordinary=ordinary)), st.data())
@settings(max_examples=120, deadline=None)
def test_cached_violations_are_those_of_the_reference_after_any_changes(
    given: tuple[Driver, World], data: st.DataObject
) -> None:
    """Of rules that are enforced, and of rules of the spec."""
    cluster, world = given
    world = changed(cluster, world, data)
    found = {each.pod.name for each in cluster.enforcer.status.violations}
    assert found == set(broken(cluster.pods.values(), world))
    cluster.audit()
