"""Properties of enforcement, checked with a recount: it ends, mends every rule, and evicts no pod in vain."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.model.annotations import AFFINITY
from scheduler.engine.state.matching import NamespaceRule
from scheduler.engine.syntax.selectors import EVERYTHING
from scheduler.tools.enforcer.instructions import Evict
from tests.support.build import ZONE, Json, affinity, selector, term
from tests.support.enforcer_driver import ENFORCED, Driver, rules

#: Annotations of every namespace may be about others.
EVERYWHERE = NamespaceRule(frozenset(), EVERYTHING)
APPS = ("a", "b", "c")
TEAMS = ("red", "blue")
RACK = "example.com/rack"
NODES = ("n0", "n1", "n2", "n3")


@dataclass(frozen=True)
class World:
    """The labels of nodes and namespaces."""

    nodes: Mapping[str, Mapping[str, str]]
    namespaces: Mapping[str, Mapping[str, str]]


def selects(one: Json, other: Json, declaring: Json, world: World) -> bool:
    """Return whether a term of `declaring` selects `other`."""
    labels = other["metadata"]["labels"]
    if any(labels.get(key) != value for key, value in one["labelSelector"]["matchLabels"].items()):
        return False
    namespace = other["metadata"]["namespace"]
    if "namespaceSelector" not in one:
        return bool(namespace == declaring["metadata"]["namespace"])
    wanted = one["namespaceSelector"].get("matchLabels", {})
    return bool(wanted.items() <= world.namespaces[namespace].items())


def terms(pod: Json, side: str) -> list[Json]:
    text = pod["metadata"]["annotations"].get(AFFINITY, "{}")
    found: list[Json] = json.loads(text).get(side, {}).get(ENFORCED, [])
    return found


def domain(pod: Json, key: str, world: World) -> str | None:
    return world.nodes[pod["spec"]["nodeName"]].get(key)


def broken_apart(pod: Json, pods: Iterable[Json], world: World) -> bool:
    """Return whether the pod's domain has too many pods for one of its anti-affinity terms."""
    for one in terms(pod, "podAntiAffinity"):
        here = domain(pod, one["topologyKey"], world)
        others = sum(
            other is not pod
            and selects(one, other, pod, world)
            and domain(other, one["topologyKey"], world) == here
            for other in pods
        )
        if here is not None and others >= one.get("maxPodsPerDomain", 1):
            return True
    return False


def broken_together(pod: Json, pods: Iterable[Json], world: World) -> bool:
    """Return whether the pod's affinity has no match and it is not the first of its kind."""
    asked = terms(pod, "podAffinity")
    if not asked:
        return False
    matching = [
        other for other in pods if other is not pod and all(selects(one, other, pod, world) for one in asked)
    ]
    keys = [one["topologyKey"] for one in asked]
    here = [domain(pod, key, world) for key in keys]
    if all(
        own is not None and any(domain(other, key, world) == own for other in matching)
        for own, key in zip(here, keys, strict=True)
    ):
        return False
    matches_itself = all(selects(one, pod, pod, world) for one in asked)
    somewhere = any(domain(other, key, world) is not None for other in matching for key in keys)
    return not (matches_itself and None not in here and not somewhere)


def broken(pods: Iterable[Json], world: World) -> list[str]:
    everyone = list(pods)
    return [
        pod["metadata"]["name"]
        for pod in everyone
        if broken_apart(pod, everyone, world) or broken_together(pod, everyone, world)
    ]


def a_term(draw: st.DrawFn, *, limited: bool) -> Json:
    extra: Json = {}
    if draw(st.booleans()):
        extra["namespace_selector"] = draw(st.sampled_from([{}, selector("team=red"), selector("team=blue")]))
    made = term(draw(st.sampled_from([ZONE, RACK])), selector(f"app={draw(st.sampled_from(APPS))}"), **extra)
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


@given(clusters(near=True))
@settings(max_examples=120, deadline=None)
def test_enforcement_ends_and_leaves_no_rule_broken(given: tuple[Driver, World]) -> None:
    cluster, world = given
    n_pods = len(cluster.pods)
    names = cluster.enforce(limit=n_pods)
    assert len(set(names)) == len(names)
    assert broken(cluster.pods.values(), world) == []
    assert cluster.enforcer.status.violations == []
    cluster.audit()


@given(clusters(near=False))
@settings(max_examples=120, deadline=None)
def test_no_pod_was_evicted_that_could_have_stayed(given: tuple[Driver, World]) -> None:
    """Beside the pods that stayed, each evicted pod would break a rule again."""
    cluster, world = given
    before = dict(cluster.pods)
    names = cluster.enforce()
    staying = list(cluster.pods.values())
    for uid, pod in before.items():
        if uid not in cluster.pods:
            assert pod["metadata"]["name"] in names
            assert broken([*staying, pod], world)


@given(clusters(near=False))
@settings(max_examples=300, deadline=None)
def test_each_plan_is_the_previous_one_without_the_evicted_pod(given: tuple[Driver, World]) -> None:
    cluster, _ = given
    cluster.check()
    planned = [each.pod.uid for each in cluster.enforcer.status.evictions]
    while planned:
        cluster.evicted(planned.pop(0))
        cluster.check()
        assert [each.pod.uid for each in cluster.enforcer.status.evictions] == planned


@given(clusters(near=True))
@settings(max_examples=120, deadline=None)
def test_every_evicted_pod_declares_or_breaks_a_broken_rule(
    given: tuple[Driver, World],
) -> None:
    cluster, world = given
    while orders := [each for each in cluster.check() if isinstance(each, Evict)]:
        (order,) = orders
        pods = list(cluster.pods.values())
        going = cluster.pods[order.pod.uid]
        declaring = [pod for pod in pods if pod["metadata"]["name"] in broken(pods, world)]
        assert going in declaring or any(
            selects(one, going, pod, world)
            and domain(pod, one["topologyKey"], world) == domain(going, one["topologyKey"], world)
            for pod in declaring
            for one in terms(pod, "podAntiAffinity")
        )
        cluster.evicted(order.pod.uid)


@given(clusters(near=False))
@settings(max_examples=120, deadline=None)
def test_pods_of_the_highest_priority_stay_unless_they_break_each_others_rules(
    given: tuple[Driver, World],
) -> None:
    cluster, world = given
    highest = max(pod["spec"]["priority"] for pod in cluster.pods.values())
    best = [pod for pod in cluster.pods.values() if pod["spec"]["priority"] == highest]
    unaffected = [pod for pod in best if not broken(best, world)]
    cluster.enforce()
    left: list[Any] = list(cluster.pods.values())
    assert all(pod in left for pod in unaffected)


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
                cluster.enforcer.state.sweep()
    cluster.check()
    return World(nodes, namespaces)


@given(clusters(near=True), st.data())
@settings(max_examples=120, deadline=None)
def test_cached_violations_are_those_of_a_recount_after_any_changes(
    given: tuple[Driver, World], data: st.DataObject
) -> None:
    cluster, world = given
    world = changed(cluster, world, data)
    placed = cluster.enforcer.state.placed
    found = {placed[each.uid].pod.name for each in cluster.enforcer.status.violations}
    assert found == set(broken(cluster.pods.values(), world))
    cluster.audit()


@given(clusters(near=True, ordinary=True), st.data())
@settings(max_examples=120, deadline=None)
def test_rules_that_are_not_enforced_are_found_as_after_a_fresh_start(
    given: tuple[Driver, World], data: st.DataObject
) -> None:
    cluster, world = given
    world = changed(cluster, world, data)
    fresh = Driver(annotating=EVERYWHERE)
    for name, labels in world.nodes.items():
        fresh.node(name, labels=labels)
    for name, labels in world.namespaces.items():
        fresh.namespace(name, **labels)
    for pod in cluster.pods.values():
        fresh.see(pod)
    fresh.check()
    living, started = (
        sorted((each.uid, each.side) for each in one.enforcer.status.violations) for one in (cluster, fresh)
    )
    assert living == started
    cluster.audit()
