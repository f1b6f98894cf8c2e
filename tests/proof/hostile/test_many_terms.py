"""
Thousands of terms of running pods that all select one pod, by as many selections: a step or two for each, whatever
they say. Counted in calls of functions, not in time.
"""

from __future__ import annotations

import json
import sys
from types import FrameType
from typing import Any

import pytest

from scheduler.engine.model.instructions import Bind
from scheduler.engine.model.stimuli import PodSeen
from scheduler.engine.state.matching import PodMatcher
from tests.support import build
from tests.support.driving import NAME, Driver, condition_of

N_NODES, N_WEB = 200, 600
#: Terms of one annotation, and pods that carry one.
N_TERMS, N_HOSTILE = 64, 24
LIMITS: dict[str, dict[str, int]] = {
    "plain": {},
    "full": {"maxPodsPerDomain": 2},
    "almost full": {"maxPodsPerDomain": N_WEB // 2},
    "far from full": {"maxPodsPerDomain": 100_000},
}
#: Calls per term in a pod's life, at the first decision after a node changed and at any other. Measured: 21 and 0, for
#: preferences 35 and 0, for limits 140 and 68.
CALLS_AT_FIRST, CALLS_AGAIN = 50.0, 1.0
CALLS_OF_LIMITS_AT_FIRST, CALLS_OF_LIMITS_AGAIN = 150.0, 70.0


class Town:
    """Pods with app=web on every node, and hostile ones whose terms select them."""

    def __init__(self, limit: dict[str, int], *, weighted: bool = False, n_hostile: int = N_HOSTILE) -> None:
        self.driver = Driver()
        self._weighted = weighted
        for number in range(N_NODES):
            self.driver.node(f"n{number}", labels={build.ZONE: f"z{number % 3}"})
        for number in range(N_WEB):
            self.driver.pod(f"web-{number}", labels={"app": "web"}, node=f"n{number % N_NODES}")
        for number in range(n_hostile):
            self._hostile(number, limit)

    def _hostile(self, number: int, limit: dict[str, int]) -> None:
        terms = [
            {**build.term(key, build.selector("app=web", f"!x-{number}-{one}")), **limit}
            for one in range(N_TERMS)
            for key in ((build.ZONE, build.HOSTNAME)[one % 2],)
        ]
        asked: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        if self._weighted:
            weighted = [{"weight": 1, "podAffinityTerm": term} for term in terms]
            asked = {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
        document = build.pod(f"hostile-{number}", node=f"n{number}", spec={"schedulerName": NAME})
        document["metadata"]["annotations"] = {
            "affinity-scheduler.io/affinity": json.dumps({"podAntiAffinity": asked})
        }
        self.driver.handle(PodSeen(self.driver.decoded(document)))

    def calls_of_a_life(self, name: str) -> int:
        """Count the calls for a pod with app=web that comes, is tried, is bound if it fits, and goes."""
        document = build.pod(name, labels={"app": "web"}, spec={"schedulerName": NAME})
        n_calls = 0

        def count(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal n_calls
            n_calls += event in ("call", "c_call")

        pod = self.driver.decoded(document)
        sys.setprofile(count)
        try:
            self.driver.handle(PodSeen(pod))
            bound = [order for order in self.driver.cycle() if isinstance(order, Bind)]
            if bound:
                self.driver.confirm(pod, bound[0].node_name)
            self.driver.lose(pod)
        finally:
            sys.setprofile(None)
        return n_calls

    def n_arrays(self) -> int:
        """Count the terms of a single pod whose pods are kept as one number per node."""
        keys = [key for key in self.driver.state.derived.keys() if isinstance(key, tuple)]  # noqa: SIM118 - no dict
        return sum(key[0] == "declaring" for key in keys)


@pytest.fixture(scope="module")
def alone() -> int:
    """Return the calls for a pod that meets no term."""
    town = Town({}, n_hostile=0)
    town.calls_of_a_life("first")
    return town.calls_of_a_life("second")


@pytest.mark.parametrize("what", [*LIMITS, "preferred"])
def test_each_term_of_others_costs_a_few_steps(what: str, alone: int) -> None:
    """At first, again, after a node was relabelled, after a node came. None takes an array."""
    town = Town(LIMITS.get(what, {}), weighted=what == "preferred")
    is_limit = "maxPodsPerDomain" in LIMITS.get(what, {})
    at_first = CALLS_OF_LIMITS_AT_FIRST if is_limit else CALLS_AT_FIRST
    again = CALLS_OF_LIMITS_AGAIN if is_limit else CALLS_AGAIN
    moves: list[tuple[str, dict[str, Any], float]] = [
        ("first", {}, at_first),
        ("again", {}, again),
        ("moved", {"name": "n0", "labels": {build.ZONE: "z1"}}, at_first),
        ("came", {"name": "new", "labels": {build.ZONE: "z2"}}, at_first),
        ("later", {}, again),
    ]
    for moment, node, calls_per_term in moves:
        if node:
            town.driver.node(**node)
        calls = town.calls_of_a_life(moment)
        assert calls - alone < calls_per_term * N_TERMS * N_HOSTILE, moment
    assert town.n_arrays() == 0
    town.driver.audit()


def test_a_namespace_that_is_relabelled_costs_nothing_until_a_decision_asks() -> None:
    """A decision then looks at the terms that may select its pod, not at every term that reads namespace labels."""
    driver = Driver()
    driver.node("n", allocatable={"pods": "200"})
    n_matched = 0
    for number in range(100):
        driver.pod(f"w{number}", labels={"index": str(number)}, node="n")
    for number in range(20):
        terms = [
            build.term(
                build.HOSTNAME,
                build.selector(f"index={one}"),
                namespace_selector=build.selector(f"team=t-{number}-{one}"),
            )
            for one in range(N_TERMS)
        ]
        driver.pod(f"h{number}", affinity=build.affinity(anti_required=terms), node="n")
    matches = PodMatcher.matches

    def counted(self: PodMatcher, *asked: Any) -> bool:
        nonlocal n_matched
        n_matched += 1
        return matches(self, *asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PodMatcher, "matches", counted)
        driver.namespace("default", team="nobody")
        driver.namespace("default", team="t-3-7")
        assert n_matched == 0
        driver.pod("new", labels={"index": "7"})
        assert "didn't satisfy existing pods anti-affinity rules" in condition_of(driver.cycle()).message
        assert 0 < n_matched < 100
    driver.audit()
