"""What a decision leaves behind: how the nodes stood, whatever the weights and the amounts are."""

import random
import re
import warnings
from typing import Any

import numpy as np
import pytest

from scheduler.core.decide import Decision, Failed, Placement, decide
from scheduler.core.standings import Standings
from scheduler.framework.observer import Unobserved
from tests.conformance.product import ProductSubject
from tests.support import build
from tests.support.build import Json

_OUT_OF_RANGE = re.compile(
    'applying score defaultWeights on Score plugins: plugin "NodeResourcesFit" returns an invalid score -?[0-9]+, '
    r"it should in the range of \[0, 100\] after normalizing"
)


def _decided(subject: ProductSubject, pod: Json) -> Decision:
    snapshot = subject.cluster.snapshot()
    return decide(subject.cluster.pod(pod), snapshot, subject.profile, random.Random(1), Unobserved())


def _standings(subject: ProductSubject, pod: Json) -> Standings:
    decision = _decided(subject, pod)
    assert isinstance(decision, Placement)
    return decision.standings


def _pod(name: str, *, cpu: str = "1", memory: str = "1Gi", **rest: Any) -> Json:
    requests = {"cpu": cpu, "memory": memory}
    return build.pod(name, containers=[build.container(requests=requests)], **rest)


def _nodes(subject: ProductSubject, n: int) -> None:
    for index in range(n):
        subject.apply(
            build.node(f"n{index}", allocatable={"cpu": str(2 + index), "memory": "8Gi", "pods": "9"})
        )


def _weighing(weights: dict[str, int]) -> Json:
    configuration = build.configuration({})
    configuration["profiles"][0]["plugins"] = {
        "score": {
            "disabled": [{"name": name} for name in weights],
            "enabled": [{"name": name, "weight": weight} for name, weight in weights.items()],
        }
    }
    return configuration


@pytest.mark.parametrize(
    "weights",
    [
        pytest.param({}, id="defaults"),
        pytest.param({"NodeResourcesFit": -5}, id="negative"),
        pytest.param({"NodeResourcesFit": 100_000, "TaintToleration": -100_000}, id="cancelling"),
        pytest.param({"NodeResourcesFit": 2**31 - 1, "TaintToleration": 2**31 - 1}, id="the largest"),
        pytest.param({"NodeResourcesFit": 327}, id="just above 16 bits in sum"),
    ],
)
def test_nodes_stand_by_their_weighted_scores(weights: dict[str, int]):
    """Told as often as asked: who is ranked steps aside meanwhile, and is back afterwards."""
    subject = ProductSubject(_weighing(weights))
    _nodes(subject, 6)
    subject.apply(_pod("there", cpu="2", node="n0", phase="Running"))
    standings = _standings(subject, _pod("new"))
    totals = [
        sum(weight * scores.item(row) for _, weight, scores, _ in standings.scores)
        for row in range(len(standings.totals()))
    ]
    feasible = [row for row in range(6) if standings.feasible.mask[row]]
    assert len(feasible) == 5
    for n_most in (1, 3, 5, 9, 3):
        ranked = standings.leading(n_most)
        assert ranked[0][0] == standings.chosen
        assert sorted(total for _, total in ranked) == sorted(totals[row] for row in feasible)[-n_most:]
        assert [totals[row] for row, _ in ranked] == [total for _, total in ranked]
    assert [standings.totals().item(row) for row in feasible] == [totals[row] for row in feasible]


def test_scores_that_wrapped_fail_the_cycle():
    """As upstream: three times 2**62 bytes pass 2**63, and a score may be anything then."""
    subject = ProductSubject(None)
    for index in range(3):
        allocatable = {"cpu": "4", "memory": str(3 * 2**31 + 10**9), "pods": "9"}
        subject.apply(build.node(f"n{index}", allocatable=allocatable))
    assert isinstance(_decided(subject, _pod("before")), Placement)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for index in range(3):
            memory = str(2**62 - 10**14)
            subject.apply(_pod(f"big-{index}", cpu="0", memory=memory, node="n0", phase="Running"))
        decision = _decided(subject, _pod("new"))
    assert isinstance(decision, Failed)
    assert _OUT_OF_RANGE.fullmatch(decision.message)


def test_shortages_are_tallied_anew_when_many_nodes_changed():
    """Ten nodes short of CPU, and then the same ten of memory."""
    subject = ProductSubject(None)
    for index in range(11):
        subject.apply(build.node(f"n{index}", allocatable={"cpu": "4", "memory": "8Gi", "pods": "9"}))
    for kind, amounts in (("cpu", {"cpu": "4"}), ("memory", {"memory": "8Gi"})):
        for index in range(10):
            subject.apply(_pod(f"p{index}", uid=f"p{index}", node=f"n{index}", phase="Running", **amounts))
        for _ in range(2):
            assert dict(_standings(subject, _pod("new")).rejected()) == {f"Insufficient {kind}": 10}
        for index in range(10):
            subject.delete("Pod", "default", f"p{index}")


def test_a_spec_of_several_label_sets_is_scored_for_each():
    """Terms that select the pod are its labels' business, its own ones the spec's."""
    affinity = build.affinity(preferred=[(50, build.term(build.HOSTNAME, build.selector("app=a")))])

    def scores(subject: ProductSubject, app: str) -> list[list[int]]:
        standings = _standings(subject, _pod("new", labels={"app": app}, affinity=affinity))
        return [[scored.scores.item(row) for row in range(4)] for scored in standings.scores]

    def cluster() -> ProductSubject:
        subject = ProductSubject(None)
        _nodes(subject, 4)
        for index, app in enumerate("aabbb"):
            name = f"p{index}"
            placed: Json = {
                "uid": name,
                "node": f"n{index % 3 + 1}",
                "phase": "Running",
                "labels": {"app": app},
            }
            subject.apply(_pod(name, cpu="100m", affinity=affinity, **placed))
        return subject

    asked = cluster()
    expected = {app: scores(cluster(), app) for app in "ab"}
    assert expected["a"] != expected["b"]
    for app in "abab":
        assert scores(asked, app) == expected[app]
    assert np.asarray(expected["a"]).max() == 100
