"""Caches stay small, however many different questions are asked and however many pods come and go."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pytest

from scheduler.engine.core.decide import ScheduleResult, decide
from scheduler.engine.model.annotations import LIMIT_BYTES, MODE, SHOWN_OF_MODE
from scheduler.engine.model.fallback import FALLBACK, LIMIT_CHARACTERS
from scheduler.engine.model.node_selector import NodeSelector
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.terms import NodeRequirement, NodeTerm
from scheduler.engine.state.audit import differences
from scheduler.engine.state.batches import finished
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.counts import PodCounts, TermSums
from scheduler.engine.state.matching import NamespaceRule, PodMatcher
from scheduler.engine.syntax.selectors import EVERYTHING, Requirement, Selector
from tests.support import build
from tests.support.driving import NAME, Driver, bind_of

T = TypeVar("T")

APP_A = PodMatcher(((NamespaceRule(frozenset(), EVERYTHING), Selector((Requirement("app", "In", ("a",)),))),))
ANNOTATION = "affinity-scheduler.io/affinity"


def limited(most: int, *unlike: str) -> dict[str, str]:
    """Return the annotation that allows so many pods of an app in a zone, by a term of its own."""
    term = {**build.term(build.ZONE, build.selector("app=a", *unlike)), "maxPodsPerDomain": most}
    return {ANNOTATION: json.dumps(build.affinity(anti_required=[term]))}


def town(n_nodes: int = 4) -> Driver:
    driver = Driver()
    driver.namespace("default")
    for number in range(n_nodes):
        driver.node(f"n{number}", labels={build.ZONE: f"z{number % 2}"})
    return driver


def scheduled_in_turn(driver: Driver, n_pods: int, made: Callable[[int], build.Json]) -> None:
    """Decide and place the pods in turn; remove each after five more."""
    running: list[Pod] = []
    for number in range(n_pods):
        pod = driver.decoded(made(number))
        decision = decide(pod, ClusterView(driver.state), driver.profiles[NAME], driver.machine._rng)
        assert isinstance(decision, ScheduleResult)
        driver.state.assume(replace(pod, node_name=decision.node_name), decision.node_name)
        running.append(pod)
        if len(running) > 5:
            driver.state.remove_pod(running.pop(0).uid)
    assert differences(driver.state) == []


def kept(driver: Driver, kind: type[T]) -> list[T]:
    return [one.value for one in driver.state.derived._entries.values() if isinstance(one.value, kind)]


def test_one_selector_with_many_node_rules_is_counted_in_few_domains() -> None:
    """Each rule makes domains of its own, and each pod that comes is added to all that are kept."""
    driver = town()

    def made(number: int) -> build.Json:
        rule = build.affinity(node_required=[build.node_term(f"rule-{number} notin x")])
        spread = [build.spread(build.ZONE, build.selector("app=a"), max_skew=5)]
        return build.pod(f"p{number}", labels={"app": "a"}, spread=spread, affinity=rule)

    scheduled_in_turn(driver, 50, made)
    (counts,) = kept(driver, PodCounts)
    assert len(counts._by_domain) == 16


def test_terms_without_pods_are_forgotten() -> None:
    """Every pod declares a term of its own; the sums that its label set is asked for see them come and go."""
    driver = town()

    def made(number: int) -> build.Json:
        own = build.term(f"key-{number}" if number % 2 else build.ZONE, build.selector(f"hash=h{number}"))
        every = build.term(f"nowhere-{number}", build.selector("app=a"))
        apart, annotations = build.affinity(anti_required=[own, every]), limited(50, f"!x{number}")
        return build.pod(f"p{number}", labels={"app": "a"}, affinity=apart, annotations=annotations)

    scheduled_in_turn(driver, 50, made)
    sums = kept(driver, TermSums)
    # Two of the first pod, whose label no term read yet.
    assert len(sums) == 3 + 2
    n_terms = len(list(driver.state.terms))
    assert n_terms == 15
    for one in sums:
        assert len(one.weights) <= n_terms
        assert one.by_key.keys() <= {build.ZONE}


def test_a_count_in_use_does_not_remember_every_label_set_that_was_ever_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scheduler.engine.state.counts._MOST_VERDICTS", 200)
    driver = town()
    pod = driver.decoded(build.pod("p", labels={"app": "a"}, node="n0"))
    spread = [build.spread(build.ZONE, build.selector("app=a"), max_skew=5)]
    asking = driver.decoded(build.pod("q", labels={"app": "a"}, spread=spread))
    for number in range(330):
        driver.state.upsert_pod(replace(pod, uid=f"uid-{number}", labels={"app": "a", "job": f"{number}"}))
        driver.state.remove_pod(f"uid-{number}")
        if number % 20 == 0:
            decide(asking, ClusterView(driver.state), driver.profiles[NAME], driver.machine._rng)
    (counts,) = kept(driver, PodCounts)
    assert len(counts._selects) < 200
    assert differences(driver.state) == []


def test_small_values_count_with_what_it_takes_to_keep_them() -> None:
    """A mask of four nodes has four bytes, and its entry 300 times as many."""
    driver = town()
    derived = driver.state.derived
    derived._max_bytes = 50_000

    def made(number: int) -> build.Json:
        return build.pod(
            f"p{number}", labels={"app": f"{number}"}, tolerations=[build.toleration(f"k{number}")]
        )

    scheduled_in_turn(driver, 100, made)
    assert len(derived.keys()) < 50


def test_counts_and_rows_of_volumes_grow_with_what_they_remember() -> None:
    """By their size the least used are evicted."""
    driver = town(18)
    before = driver.state.counts.selected(APP_A).nbytes
    for number in range(20):
        driver.pod(f"p{number}", labels={"job": f"{number}"}, node="n0")
    assert driver.state.counts.selected(APP_A).nbytes > before + 1000
    rows = ClusterView(driver.state).topology_rows()
    sizes = [rows.nbytes]
    for zone in ("of-no-node", "z0"):
        rows.rows(NodeSelector((NodeTerm((NodeRequirement(build.ZONE, "In", (zone,)),), ()),)))
        sizes.append(rows.nbytes)
    assert 0 < sizes[1] - sizes[0] < sizes[2] - sizes[1]


def test_a_sweep_drops_what_is_not_asked_for_in_pieces() -> None:
    """And keeps what was asked for since the sweep before, and between two pieces."""
    driver = town()
    derived = driver.state.derived

    def ask(name: str) -> None:
        derived.get(name, lambda: np.zeros(4))

    for number in range(1200):
        ask(f"{number}")
    finished(driver.state.sweeping())
    assert len(derived.keys()) == 1200
    ask("0")
    sizes = []
    for _ in driver.state.sweeping():
        ask("1199")
        sizes.append(len(derived.keys()))
    assert sizes == [*range(1150, 0, -50)]
    assert derived.keys() == ["0", "1199"]
    finished(driver.state.sweeping())
    finished(driver.state.sweeping())
    assert (len(derived.keys()), derived.n_bytes) == (0, 0)


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param(lambda number: {ANNOTATION: f'{{"n": {number}}}{" " * LIMIT_BYTES}'}, id="rules"),
        pytest.param(
            lambda number: {ANNOTATION: "{}", MODE: f"{'m' * (SHOWN_OF_MODE + 1)}{number}"}, id="mode"
        ),
        pytest.param(lambda number: {FALLBACK: f"[{' ' * LIMIT_CHARACTERS}{number}]"}, id="fallbacks"),
    ],
)
def test_annotations_that_are_too_long_are_not_kept(
    annotations: Callable[[int], dict[str, str]],
) -> None:
    """Their pods share one spec: all of them have the same problem, and none is looked at again."""
    driver = town()

    first, second = (driver.decoded(build.pod(f"p{n}", annotations=annotations(n))) for n in (1, 2))
    assert first.spec is second.spec
    assert first.spec.annotation_problem is not None


def test_modes_that_differ_where_they_are_shown_are_told_apart() -> None:
    driver = town()
    for shown in ("ad", "adds", "m" * SHOWN_OF_MODE):
        pod = driver.decoded(build.pod(f"p-{shown}", annotations={ANNOTATION: "{}", MODE: shown}))
        assert f'found "{shown}"' in (pod.spec.annotation_problem or "")


def test_terms_of_pods_that_are_gone_are_freed_by_two_sweeps() -> None:
    """Also if nothing else changes: one term may name 50,000 namespaces."""
    driver = town()
    names = [f"namespace-{number}" for number in range(100)]
    apart = build.affinity(anti_required=[build.term(build.ZONE, build.selector("app=a"), namespaces=names)])
    pod = driver.pod("p", node="n0", labels={"app": "a"}, affinity=apart)
    ((rule, _),) = driver.state.placed[pod.uid].terms[0].key.matcher.parts
    named = weakref.ref(rule.names)
    driver.lose(pod)
    del pod, rule
    finished(driver.state.sweeping())
    finished(driver.state.sweeping())
    gc.collect()
    assert named() is None


def test_an_index_of_which_few_terms_are_left_is_made_anew() -> None:
    """What is left counts as before, on several nodes and with a limit too."""
    driver = town()
    near = build.affinity(preferred=[(7, build.term(build.ZONE, build.selector("app=a")))])
    for number in range(3):
        driver.pod(f"near-{number}", node=f"n{number}", affinity=near)
    driver.pod("limited", node="n3", labels={"app": "a"}, annotations=limited(2))

    def many(number: int) -> build.Json:
        terms = [build.term(build.ZONE, build.selector(f"app={number}-{each}")) for each in range(100)]
        return build.affinity(anti_required=terms)

    for pod in [driver.pod(f"many-{number}", node="n0", affinity=many(number)) for number in range(50)]:
        driver.lose(pod)
    table = driver.state.terms._table
    assert table.n_ids > 5000
    finished(driver.state.sweeping())
    assert driver.state.terms._table.n_ids == 1
    view, asking = ClusterView(driver.state), driver.decoded(build.pod("asks", labels={"app": "a"}))
    sums = view.state.counts.term_sums("weights", view.label_set(asking), lambda term: term.key.weight)
    assert sums.by_key[build.ZONE].on_nodes().tolist() == [14, 7, 14, 7]
    assert [term.key.max_pods for term in driver.state.terms if term.is_limiting] == [2]
    assert differences(driver.state) == []


def test_all_limiting_terms_are_known_however_many_came_and_went(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is asked about its own domains; sums of other terms do not have to know them."""
    monkeypatch.setattr("scheduler.engine.state.counts._MANY_TERMS", 2)
    driver = town()
    view = ClusterView(driver.state)
    label_set = view.label_set(driver.decoded(build.pod("asks", labels={"app": "a"})))
    for number in range(6):
        driver.pod(f"p{number}", node="n0", annotations=limited(2, f"!x{number}"))
        sums = view.state.counts.term_sums("limits", label_set, lambda _: 1, limiting=True)
        assert len(sums.weights) == number + 1


def test_terms_of_one_pod_each_share_where_they_are_declared() -> None:
    """And no longer once another pod declares one of them."""
    driver = town()
    terms = [build.term(build.ZONE, build.selector(f"app={each}")) for each in "ab"]
    driver.pod("both", node="n0", affinity=build.affinity(anti_required=terms))
    first, second = driver.state.terms
    assert first.pods_by_row is second.pods_by_row
    assert first.pods_by_row == {0: 1}
    again = driver.pod("again", node="n0", affinity=build.affinity(anti_required=terms[:1]))
    assert (first.pods_by_row, second.pods_by_row) == ({0: 2}, {0: 1})
    driver.lose(again)
    assert first.pods_by_row is second.pods_by_row


def test_taint_lists_that_no_node_has_any_more_are_forgotten() -> None:
    """Autoscalers put a time into their taints: a year of them is not remembered, and scores stay right."""
    driver = Driver()
    driver.node("plain")
    for number in range(1000):
        driver.node("busy", taints=[f"deletion={number}:PreferNoSchedule"])
        if number % 250 == 0:
            driver.pod(f"p{number}")
            assert bind_of(driver.cycle()).node_name == "plain"
    assert driver.state.nodes.taint_set.max() < 100
