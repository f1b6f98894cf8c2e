"""`preferFewerVictims`: pods of equal priority stay if the pod has less use for their room."""

from collections.abc import Iterable
from random import Random

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from scheduler.engine.core.decide import decide
from scheduler.engine.framework.diagnosis import FitError, PostFiltered
from scheduler.engine.framework.observer import Unobserved
from scheduler.engine.framework.plugin_context import PluginContext
from scheduler.engine.framework.post_filter import UnfitPod
from scheduler.engine.plugins.default_preemption.candidates import Candidate, candidate_at
from scheduler.engine.plugins.default_preemption.plugin import DefaultPreemption
from scheduler.engine.plugins.default_preemption.search import DefaultPreemptionArgs
from scheduler.engine.state.batches import finished
from scheduler.engine.state.cluster_view import ClusterView
from tests.conformance.product import ProductSubject
from tests.engine.plugins.lives import Applied
from tests.engine.plugins.test_preemption import OBJECTS, crowded, ranked, unfit_pod
from tests.support import build
from tests.support.build import Json
from tests.support.daemon import plugin_config

_SETTING = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"pluginConfig": plugin_config("DefaultPreemption", preferFewerVictims=True)}],
}


def _running(
    name: str, cpu: str, day: int, *, priority: int = 0, daemon: bool = False, gpus: str = "0"
) -> Json:
    pod = build.pod(
        name,
        node="n",
        containers=[build.container(requests={"cpu": cpu, "example.com/gpu": gpus})],
        spec={"priority": priority},
    )
    pod["status"]["startTime"] = f"2026-01-0{day}T00:00:00Z"
    if daemon:
        owner = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "name": "agent",
            "uid": "u",
            "controller": True,
        }
        pod["metadata"]["ownerReferences"] = [owner]
    return pod


def _victims(config: Json | None, room: Json, running: Iterable[Json], request: Json) -> list[str]:
    product = ProductSubject(config)
    product.apply(build.node("n", allocatable={"pods": "9", **room}))
    for pod in running:
        product.apply(pod)
    return _victims_for(request, product)


def _victims_for(request: Json, product: ProductSubject) -> list[str]:
    incoming = build.pod("high", containers=[build.container(requests=request)], spec={"priority": 10})
    pod, view = product.cluster.pod(incoming), product.cluster.view()
    refused = decide(pod, view, product.profile, Random(1), Unobserved())
    assert isinstance(refused, FitError)
    assert refused.postfilter is not None
    return sorted(victim.name for victim in refused.postfilter.victims)


@pytest.mark.parametrize(
    ("room", "running", "request_", "by_importance", "by_use"),
    [
        pytest.param(
            {"cpu": "8"},
            [_running("big", "4", 1), *(_running(f"small-{i}", "1", 2) for i in range(4))],
            {"cpu": "4"},
            ["small-0", "small-1", "small-2", "small-3"],
            ["big"],
            id="one large pod instead of four small ones",
        ),
        pytest.param(
            {"cpu": "8"},
            [_running("exact", "3", 1), _running("larger", "5", 2)],
            {"cpu": "3"},
            ["larger"],
            ["exact"],
            id="of pods that each would do, the smallest",
        ),
        pytest.param(
            {"cpu": "8", "example.com/gpu": "3"},
            [_running("exact", "1", 1, gpus="1"), _running("larger", "1", 2, gpus="2")],
            {"cpu": "1", "example.com/gpu": "1"},
            ["larger"],
            ["exact"],
            id="of pods whose devices would do, the one with the fewest, though one alone is missing",
        ),
        pytest.param(
            {"cpu": "4", "example.com/gpu": "9"},
            [_running("early", "2", 1, gpus="4"), _running("late", "2", 2)],
            {"cpu": "2", "example.com/gpu": "1"},
            ["late"],
            ["late"],
            id="devices of which enough are left are of no use",
        ),
        pytest.param(
            {"cpu": "4"},
            [_running("web", "2", 1), _running("agent", "2", 2, daemon=True)],
            {"cpu": "2"},
            ["agent"],
            ["web"],
            id="not the pod that has no other node (kubernetes 141227)",
        ),
        pytest.param(
            {"cpu": "4", "example.com/gpu": "2"},
            [
                _running("gpu", "2", 1, gpus="2"),
                _running("a", "1", 2),
                _running("b", "500m", 2),
            ],
            {"cpu": "1", "example.com/gpu": "1"},
            ["gpu"],
            ["gpu"],
            id="a pod that has to go anyway makes room enough",
        ),
        pytest.param(
            {"cpu": "8"},
            [_running("big", "4", 1, priority=5), *(_running(f"small-{i}", "1", 2) for i in range(4))],
            {"cpu": "4"},
            ["small-0", "small-1", "small-2", "small-3"],
            ["small-0", "small-1", "small-2", "small-3"],
            id="never a pod of higher priority instead",
        ),
    ],
)
def test_victims_by_use(
    room: Json, running: list[Json], request_: Json, by_importance: list[str], by_use: list[str]
):
    assert _victims(None, room, running, request_) == by_importance
    assert _victims(_SETTING, room, running, request_) == by_use


def test_room_for_a_nominated_pod_counts_as_short():
    product = ProductSubject(_SETTING)
    product.apply(build.node("n", allocatable={"cpu": "8", "pods": "9"}))
    for pod in (_running("big", "4", 1), *(_running(f"small-{i}", "1", 2) for i in range(4))):
        product.apply(pod)
    waiting = build.pod("waiting", containers=[build.container(requests={"cpu": "3"})], spec={"priority": 10})
    product.cluster.state.nominate(product.cluster.pod(waiting), "n")
    assert _victims_for({"cpu": "1"}, product) == ["big"]


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_victim_is_needed_on_crowded_nodes(seed: int):
    random = Random(seed)
    product = ProductSubject(None)
    for each in crowded(random):
        product.apply(each)
    incoming = build.pod(
        "incoming", containers=[build.container(requests={"cpu": random.choice("234")})], spec={"priority": 8}
    )
    _check_victims(product, incoming)


@settings(max_examples=60, deadline=None)
@given(objects=OBJECTS, incoming=ranked(placed=False))
def test_every_victim_is_needed_beside_other_rules(objects: list[Applied], incoming: Json):
    product = ProductSubject(None)
    for each in objects:
        product.apply(each.object)
    _check_victims(product, incoming)


def _check_victims(product: ProductSubject, incoming: Json) -> None:
    """Compare the candidates of every node, and the choice among all, with and without the setting."""
    unfit, view = unfit_pod(product.cluster.pod(incoming), product), product.cluster.view()
    if unfit is None or unfit.fit_error.prefilter is not None:
        return
    n_fewer = 0
    for row in np.flatnonzero(unfit.fit_error.unschedulable_rows(view.alive)).tolist():
        without = candidate_at(row, unfit, view)
        chosen = candidate_at(row, unfit, view, prefers_fewer=True)
        if not isinstance(chosen, Candidate) or not isinstance(without, Candidate):
            assert chosen == without
            continue
        assert max(chosen.priorities) <= max(without.priorities)
        assert (chosen.n_violations, *chosen.harm[1:4]) <= (without.n_violations, *without.harm[1:4])
        assert len(chosen.victims) <= len(without.victims)
        _check_each_is_needed(chosen, unfit, view)
        n_fewer += len(chosen.victims) < len(without.victims)
    event(f"fewer victims on {n_fewer} nodes")
    by_importance, by_use = (
        finished(DefaultPreemption(args, PluginContext()).postfilter(unfit, view, Random(1)))
        for args in (DefaultPreemptionArgs(100, 1), DefaultPreemptionArgs(100, 1, prefer_fewer_victims=True))
    )
    assert bool(by_use.victims) == bool(by_importance.victims)
    assert by_use.n_violations == by_importance.n_violations
    assert max(_priorities(by_use), default=0) <= max(_priorities(by_importance), default=0)


def _priorities(result: PostFiltered) -> list[int]:
    return [victim.priority for victim in result.victims]


def _check_each_is_needed(candidate: Candidate, unfit: UnfitPod, view: ClusterView) -> None:
    trial = unfit.trials.at(candidate.row, view.nominated_above_on(candidate.row, unfit.context.pod))
    for victim in candidate.victims:
        trial.remove_pod(victim)
    assert trial.refusal() is None
    for victim in candidate.victims:
        trial.add_pod(victim)
        assert trial.refusal() is not None, victim.key
        trial.remove_pod(victim)
