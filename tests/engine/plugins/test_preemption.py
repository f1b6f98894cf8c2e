"""The victims of preemption are the reference's, however many nodes are asked at once."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from scheduler.engine.core.decide import decide
from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.framework.interface import PodContext
from scheduler.engine.framework.node_trial import FilterTrials
from scheduler.engine.framework.post_filter import UnfitPod
from scheduler.engine.framework.room import RoomFilter
from scheduler.engine.framework.status import Status
from scheduler.engine.model.annotations import AFFINITY
from scheduler.engine.model.pods import ContainerResize, Pod, Resize
from scheduler.engine.plugins.default_preemption.candidates import Candidate, candidate_at
from scheduler.engine.plugins.default_preemption.protection import protections
from scheduler.engine.plugins.default_preemption.search import DefaultPreemptionArgs, Found, find_candidates
from scheduler.engine.state.batches import finished
from scheduler.engine.syntax.quantity import parse_quantity
from tests.conformance.compare import decision_mismatches
from tests.conformance.product import ProductSubject, node_filters
from tests.engine.plugins.lives import (
    CONFIGURATIONS,
    KEYS,
    NAMESPACES,
    POD_LABELS,
    SELECTORS,
    TERMS,
    Applied,
    annotations,
)
from tests.engine.plugins.test_against_reference import Both
from tests.support import build
from tests.support.build import Json

_STARTS = (None, "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")


@st.composite
def ranked(draw: st.DrawFn, *, placed: bool) -> Json:
    """Draw a pod with a priority that asks for much, and hardly for anything that no eviction helps."""
    made = build.pod(
        f"p{draw(st.integers(0, 11))}" if placed else "incoming",
        namespace=draw(st.sampled_from(NAMESPACES)),
        labels=draw(POD_LABELS),
        node=draw(st.sampled_from(_NODE_NAMES)) if placed else None,
        affinity=draw(st.one_of(st.none(), st.none(), _AFFINITIES)),
        spread=draw(st.one_of(st.just([]), st.lists(_SPREADS, max_size=1))),
        containers=draw(st.lists(_CONTAINERS, min_size=1, max_size=2)),
    )
    made["metadata"]["uid"] = f"{made['metadata']['namespace']}-{made['metadata']['name']}"
    made["spec"]["priority"] = draw(st.sampled_from((-5, 0, 0, 10) if placed else (0, 10, 100, 100)))
    start = draw(st.sampled_from(_STARTS)) if placed else None
    if start is not None:
        made["status"]["startTime"] = start
    if not placed and draw(st.integers(0, 9)) == 9:
        made["spec"]["preemptionPolicy"] = "Never"
    limits = draw(st.one_of(st.none(), st.none(), annotations()))
    if limits is not None:
        made["metadata"]["annotations"] = limits
    return made


_NODE_NAMES = ("n0", "n1", "n2")
_AFFINITIES = st.builds(
    build.affinity, required=st.lists(TERMS, max_size=1), anti_required=st.lists(TERMS, max_size=2)
)
_SPREADS = st.builds(
    build.spread,
    st.sampled_from(KEYS),
    st.sampled_from([one for one in SELECTORS if one]),
    max_skew=st.integers(1, 2),
    affinity_policy=st.sampled_from((None, "Ignore", "Honor")),
    taints_policy=st.sampled_from((None, "Ignore", "Honor")),
)
_CONTAINERS = st.builds(
    build.container,
    requests=st.sampled_from(({}, {"cpu": "1"}, {"cpu": "2", "memory": "1Gi"}, {"example.com/gpu": "1"})),
    host_ports=st.sampled_from(((), (), ("80",), ("10.0.0.1:80",), ("81/UDP",))),
)
_NODES = st.builds(
    build.node,
    st.sampled_from(_NODE_NAMES),
    labels=st.sampled_from(({build.ZONE: "a", "rack": "r1"}, {build.ZONE: "a"}, {build.ZONE: "b"}, {})),
    allocatable=st.sampled_from(
        ({"cpu": "2", "pods": "3"}, {"cpu": "3", "pods": "4", "example.com/gpu": "1"}, {"pods": "2"})
    ),
    taints=st.sampled_from(((), (), (), ("k=v:NoSchedule",))),
)
BUDGETS = st.builds(
    build.disruption_budget,
    st.sampled_from(("b0", "b1", "b2", "b3")),
    st.sampled_from(SELECTORS),
    st.integers(0, 2),
    namespace=st.sampled_from(NAMESPACES),
    disrupted=st.sampled_from(((), (), ("p0",))),
)
OBJECTS = st.builds(
    lambda *lists: [Applied(one) for each in lists for one in each],
    st.lists(_NODES, min_size=2, max_size=4),
    st.lists(BUDGETS, max_size=4),
    st.lists(ranked(placed=True), min_size=3, max_size=14),
)


@settings(max_examples=50, deadline=None)
@given(
    config=st.sampled_from(CONFIGURATIONS),
    objects=OBJECTS,
    incoming=st.lists(ranked(placed=False), min_size=1, max_size=2),
)
def test_victims_and_message_are_the_reference_s(
    config: Json | None, objects: list[Applied], incoming: list[Json]
):
    both = Both(config, objects)
    for pod in incoming:
        ours, theirs = both.product.evaluate(pod), both.reference.evaluate_and_preempt(pod, config)
        event(f"{len(theirs.get('preemption', {}).get('candidates', ()))} candidates")
        assert [str(one) for one in decision_mismatches(theirs, ours)] == []


def _full_node(*placed: Json) -> ProductSubject:
    product = ProductSubject(None)
    product.apply(build.node("n", allocatable={"cpu": "2"}, labels={build.ZONE: "a"}))
    for pod in placed:
        product.apply(pod)
    return product


def _sized(name: str, priority: int, *, cpu: str = "1", node: str | None = "n", **more: Any) -> Json:
    own = {"priority": priority, **more.pop("spec", {})}
    return build.pod(name, node=node, cpu=cpu, spec=own, **more)


def _preempted(pod: Json) -> Json:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    ending = {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    return {**pod, "metadata": ending, "status": {**pod["status"], "conditions": [condition]}}


@pytest.mark.parametrize(
    ("ending", "nominated", "part"),
    [
        pytest.param(
            _preempted(_sized("low", 0, cpu="2")),
            "n",
            "no new claims to deallocate, preemption: not eligible due to a terminating pod on the nominated node.",
            id="its victim is still there",
        ),
        pytest.param(_preempted(_sized("low", 0, cpu="2")), "", "", id="it is nominated nowhere"),
        pytest.param(_preempted(_sized("low", 0, cpu="2")), "gone", "", id="its node is gone"),
        pytest.param(_sized("low", 0, cpu="2", terminating=True), "n", "", id="another reason to end"),
    ],
)
def test_a_pod_waits_for_its_own_victims(ending: Json, nominated: str, part: str):
    product = _full_node(ending)
    incoming = _sized("incoming", 5, node=None)
    incoming["status"]["nominatedNodeName"] = nominated
    message = product.evaluate(incoming)["message"]
    assert message == f"0/1 nodes are available: 1 Insufficient cpu. {part}".rstrip()


def test_a_node_that_cannot_help_any_more_does_not_hold_the_pod_up():
    product = _full_node(_preempted(_sized("low", 0, cpu="2")))
    product.apply(build.node("n", allocatable={"cpu": "2"}, unschedulable=True))
    incoming = _sized("incoming", 5, node=None)
    incoming["status"]["nominatedNodeName"] = "n"
    assert product.evaluate(incoming)["preemption"]["eligible"]


def test_a_pod_that_ends_counts_less_than_none_once_it_is_counted_out():
    """Spread counts no pod that ends, but takes it off its domain all the same, as kubernetes 1.36 does."""
    web = {"app": "web"}
    product = _full_node(
        _sized("low", 0, cpu="1", labels=web, terminating=True),
        _sized("high", 9, cpu="1", labels=web),
    )
    product.apply(build.node("other", allocatable={"cpu": "1"}, labels={build.ZONE: "b"}))
    product.apply(_sized("more", 9, cpu="1", node="other"))
    apart = build.spread(build.ZONE, build.selector("app=web"))
    incoming = _sized("incoming", 5, node=None, labels=web, spread=[apart])
    assert product.evaluate(incoming)["preemption"]["candidates"] == {
        "n": {"victims": ["default/low"], "pdbViolations": 0}
    }


def test_a_pod_that_is_near_to_its_like_may_evict_the_last_of_them():
    """Then it is the first."""
    near = build.affinity(required=[build.term(build.ZONE, _WEB)])
    product = _full_node(_sized("low", 0, cpu="2", labels={"app": "web"}))
    incoming = _sized("incoming", 5, node=None, labels={"app": "web"}, affinity=near)
    found = product.evaluate(incoming)["preemption"]["candidates"]
    assert found["n"]["victims"] == ["default/low"]


def test_a_limit_is_gone_with_the_last_pod_that_declares_it():
    limit = {**build.term(build.HOSTNAME, _WEB), "maxPodsPerDomain": 2}
    rule = json.dumps({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [limit]}})
    web: dict[str, Any] = {"cpu": "100m", "labels": {"app": "web"}}
    product = _full_node(
        _sized("low", 0, cpu="100m", annotations={AFFINITY: rule}),
        *(_sized(name, 9, **web) for name in ("one", "two")),
    )
    found = product.evaluate(_sized("incoming", 5, node=None, **web))["preemption"]["candidates"]
    assert found["n"]["victims"] == ["default/low"]


def test_a_budget_that_is_gone_protects_no_more():
    product = _full_node(_sized("a", 0, labels={"app": "web"}), _sized("b", 1))
    product.apply(build.disruption_budget("web", build.selector("app=web"), 0))
    product.delete("PodDisruptionBudget", "default", "web")
    found = product.evaluate(_sized("incoming", 5, node=None))["preemption"]["candidates"]
    assert found["n"]["victims"] == ["default/a"]


def test_the_search_ends_at_enough_candidates_if_one_breaks_no_budget():
    product = ProductSubject(None)
    for index in range(300):
        product.apply(build.node(f"n{index}", allocatable={"cpu": "1"}))
        product.apply(_sized(f"low-{index}", 0, node=f"n{index}"))
    unfit = unfit_pod(product.cluster.pod(_sized("incoming", 5, node=None)), product)
    assert unfit is not None
    view = product.cluster.view()
    search = finished(find_candidates(unfit, view, DefaultPreemptionArgs(), Random(1)))
    assert len(search.candidates) == 100
    search = finished(find_candidates(unfit, view, DefaultPreemptionArgs(50, 1), Random(1)))
    assert len(search.candidates) == 150


def test_the_search_goes_on_until_a_candidate_breaks_no_budget():
    product = ProductSubject(None)
    for index in range(20):
        product.apply(build.node(f"n{index}", allocatable={"cpu": "1"}))
        app = "free" if index == 9 else "web"
        product.apply(_sized(f"low-{index}", 0, node=f"n{index}", labels={"app": app}))
    product.apply(build.disruption_budget("web", build.selector("app=web"), 0))
    unfit = unfit_pod(product.cluster.pod(_sized("incoming", 5, node=None)), product)
    assert unfit is not None
    view = product.cluster.view()
    search = finished(find_candidates(unfit, view, DefaultPreemptionArgs(1, 1), Random(1)))
    assert [(found.harm[0], found.row == 9) for found in search.candidates] == [(0, True), (1, False)]


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_nodes_asked_at_once_answer_as_one_by_one(seed: int):
    """The victims, how much harm that is, and the reasons of the other nodes, in pieces of any size."""
    random = Random(seed)
    product = ProductSubject(None)
    for one in crowded(random):
        product.apply(one)
    rules = random.choice(
        ({}, {}, {"affinity": _APART}, {"spread": [build.spread(build.ZONE, _WEB, max_skew=2)]})
    )
    pod = product.cluster.pod(
        _sized("incoming", 8, cpu=random.choice("234"), node=None, labels={"app": "web"}, **rules)
    )
    for index in range(random.choice((0, 0, 1, 2))):
        other = replace(pod, uid=f"other-{index}", name=f"other-{index}")
        product.cluster.state.nominate(other, random.choice(("n0", "n1")))
    unfit, view = unfit_pod(pod, product), product.cluster.view()
    if unfit is None:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "scheduler.engine.plugins.default_preemption.search._PODS_AT_ONCE", random.choice((1, 8, 6000))
        )
        found = finished(find_candidates(unfit, view, DefaultPreemptionArgs(100, 1), Random(1)))
    rows = np.flatnonzero(unfit.fit_error.unschedulable_rows(view.alive)).tolist()
    answers = [candidate_at(row, unfit, view) for row in rows]
    victims = [one for one in answers if isinstance(one, Candidate)]
    expected = {Found(one.harm, one.row) for one in victims}
    # One candidate that breaks no budget ends the search, if there are as many as nodes were asked.
    assert set(found.candidates) == expected
    refused = Counter(reason for one in answers if isinstance(one, Status) for reason in one.reasons)
    assert found.reasons == refused
    assert found.n_asked == len(answers) - len(victims)
    room = unfit.trials.room_only
    n_at_once = 0 if room is None else int(np.count_nonzero(room.rows[rows]))
    event(f"{len(victims)} candidates, {n_at_once} of {len(answers)} nodes at once")


def test_a_pod_that_is_being_resized_leaves_what_it_holds_and_its_like_what_they_request():
    product = _full_node()
    plain = product.cluster.pod(_sized("p", 0))
    held = ContainerResize(requests={"cpu": parse_quantity("2")}, allocated={"cpu": parse_quantity("2")})
    resized = replace(plain, resize=Resize({plain.spec.containers[0].name: held}, None, {}, infeasible=False))
    room = RoomFilter((("cpu", 1),), product.cluster.view())
    assert [room.used_by(pod) for pod in (plain, resized, plain)] == [(1, 1000), (1, 2000), (1, 1000)]


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("allowed", [0, 1])
def test_a_pod_breaks_a_budget_if_one_before_it_used_it_up(allowed: int, names: tuple[str, str]):
    """Two pods are equally important, one of them has a budget more, and the name decides which leaves first."""
    product = _full_node(
        _sized("d", 1, labels={"tier": "front"}),
        _sized(names[0], 0, labels={"app": "web"}),
        _sized(names[1], 0, labels={"app": "web", "tier": "front"}),
    )
    product.apply(build.node("n", allocatable={"cpu": "3"}))
    product.apply(build.disruption_budget("web", build.selector("app=web"), 1))
    product.apply(build.disruption_budget("front", build.selector("tier=front"), allowed))
    unfit = unfit_pod(product.cluster.pod(_sized("incoming", 5, cpu="3", node=None)), product)
    assert unfit is not None
    view = product.cluster.view()
    alone = candidate_at(0, unfit, view)
    assert isinstance(alone, Candidate)
    assert alone.n_violations == 3 - allowed - (names == ("b", "a"))
    found = finished(find_candidates(unfit, view, DefaultPreemptionArgs(), Random(1)))
    assert found.candidates == [Found(alone.harm, 0)]


@settings(max_examples=40, deadline=None)
@given(objects=OBJECTS)
def test_budgets_by_label_set_are_those_of_each_pod(objects: list[Applied]):
    """As a set: the order of a pod's budgets does not matter."""
    product = ProductSubject(None)
    for applied in objects:
        product.apply(applied.object)
    view = product.cluster.view()
    names = ["", *(budget.key for budget in view.state.budgets)]
    known = finished(protections(view))
    for placed in product.cluster.state.placed.values():
        numbers = known.budgets[known.by_label_set[placed.label_set.number]].tolist()
        expected = view.budgets_of(placed.label_set)
        assert {names[number] for number in numbers} - {""} == {budget.key for budget in expected}


_WEB = build.selector("app=web")
_APART = build.affinity(anti_required=[build.term(build.HOSTNAME, _WEB)])


def crowded(random: Random) -> Iterator[Json]:
    """Yield full nodes, with pods of several sizes, priorities and budgets."""
    for node in range(4):
        room = {"cpu": random.choice(("4", "6")), "pods": random.choice(("3", "5", "9"))}
        labels = {build.ZONE: random.choice("ab"), build.HOSTNAME: f"n{node}"}
        yield build.node(f"n{node}", labels=labels, allocatable=room)
        for index in range(random.randrange(3, 9)):
            cpu, app = random.choice(("500m", "1", "1", "2")), random.choice(("web", "db", "ci"))
            pod = _sized(
                f"p{node}-{index}",
                random.choice((-5, 0, 0, 5, 9)),
                cpu=cpu,
                node=f"n{node}",
                labels={"app": app, "tier": random.choice(("front", "front", "back"))},
            )
            if random.random() < 0.7:
                pod["status"]["startTime"] = f"2026-01-0{random.choice((1, 1, 2, 3))}T00:00:00Z"
            yield pod
    for label in random.sample(("app=web", "app=db", "tier=front"), random.randrange(4)):
        disrupted = ("p0-0",) if random.random() < 0.1 else ()
        yield build.disruption_budget(
            label.replace("=", "-"), build.selector(label), random.randrange(3), disrupted=disrupted
        )


def unfit_pod(pod: Pod, product: ProductSubject) -> UnfitPod | None:
    """Return the pod and its refusals for preemption; None if it fits."""
    view, profile = product.cluster.view(), replace(product.profile, post_filters=())
    refused = decide(pod, view, profile, Random(1))
    if not isinstance(refused, FitError):
        return None
    context = PodContext(pod, view.label_set(pod))
    trials = FilterTrials(list(node_filters(context, profile, view).items()))
    return UnfitPod(context, refused, trials, pod.priority)


def test_a_resource_that_no_node_has_is_not_won_by_evictions():
    product = _full_node(_sized("low", 0))
    gpu = [build.container(requests={"example.com/gpu": "1"}, host_ports=["80"])]
    product.apply(build.pod("holder", node="n", containers=gpu))
    found = product.evaluate(build.pod("incoming", containers=gpu, spec={"priority": 5}))
    assert found["preemption"]["candidates"] == {}
    assert found["message"].endswith("preemption: 0/1 nodes are available: 1 Insufficient example.com/gpu.")
