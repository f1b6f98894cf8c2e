"""
Thousands of terms of running pods that all select one pod, by as many selections: a step or two for each, whatever
they say. Counted in calls of functions, not in time.
"""

from __future__ import annotations

import gc
import json
import sys
from types import FrameType
from typing import Any

import pytest

from scheduler.model.instructions import Bind
from scheduler.model.stimuli import PodSeen
from scheduler.state.matching import PodMatcher
from scheduler.state.row_counts import RowCounts
from scheduler.state.selection import MAX_COUNTED
from tests.support import build
from tests.support.driving import NAME, Driver

N_NODES, N_WEB = 200, 600
#: Terms of one annotation, and pods that carry one.
N_TERMS, N_HOSTILE = 64, 24
LIMITS: dict[str, dict[str, int]] = {
    "plain": {},
    "full": {"maxPodsPerDomain": 2},
    "almost full": {"maxPodsPerDomain": N_WEB // 2},
    "far from full": {"maxPodsPerDomain": 100_000},
}
#: Calls per term in a pod's life; 12 are measured at its first decision, 1 at the next.
CALLS = 25.0


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
        """Of a pod with app=web that comes, is tried, is bound where it fits, and goes."""
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
        """Terms whose pods are kept as one number per node, though each is declared by one pod."""
        state = self.driver.state
        return sum(term.counts.few(N_NODES) is None for term in state.declared.all().values())


@pytest.fixture(scope="module")
def alone() -> int:
    """Calls of a life that meets no term."""
    town = Town({}, n_hostile=0)
    town.calls_of_a_life("first")
    return town.calls_of_a_life("second")


@pytest.mark.parametrize("what", [*LIMITS, "preferred"])
def test_each_term_of_others_costs_a_few_steps(what: str, alone: int) -> None:
    """At first, again, after a node's labels moved, after a node came; and no term takes an array for itself."""
    town = Town(LIMITS.get(what, {}), weighted=what == "preferred")
    moves: list[tuple[str, dict[str, Any]]] = [
        ("first", {}),
        ("again", {}),
        ("moved", {"name": "n0", "labels": {build.ZONE: "z1"}}),
        ("came", {"name": "new", "labels": {build.ZONE: "z2"}}),
    ]
    for moment, node in moves:
        if node:
            town.driver.node(**node)
        calls = town.calls_of_a_life(moment)
        assert calls - alone < CALLS * N_TERMS * N_HOSTILE, moment
    assert town.n_arrays() == 0
    town.driver.audit()


def test_a_namespace_that_is_relabelled_concerns_those_alone_that_select_by_that_label() -> None:
    """Not every label set in it times every term that reads labels of namespaces."""
    driver = Driver()
    driver.node("n")
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
        assert n_matched == 0
        driver.namespace("default", team="t-3-7")
        assert 0 < n_matched < 200
    driver.audit()


def test_counts_that_pods_asked_for_once_do_not_outlive_their_bound() -> None:
    """However many running pods keep alive the specs whose preferences asked: 80 KB each at 5,000 nodes."""
    driver = Driver()
    for number in range(2):
        driver.node(f"n{number}", labels={build.ZONE: f"z{number}"})
    driver.pod("web", labels={"app": "web"}, node="n0")
    gc.collect()
    n_before = _n_counts()
    for number in range(60):
        terms = [build.term(build.ZONE, build.selector(f"app in web,x-{number}-{one}")) for one in range(120)]
        pod = driver.pod(f"p{number}", affinity=build.affinity(preferred=[(1, term) for term in terms]))
        (bind,) = [order for order in driver.cycle() if isinstance(order, Bind)]
        driver.confirm(pod, bind.node_name)
    gc.collect()
    n_declared = len(driver.state.declared.all())
    # Each selection has two; sums may hold as many again, of selections that have lost theirs.
    assert _n_counts() - n_before - n_declared <= 4 * MAX_COUNTED


def _n_counts() -> int:
    return sum(type(one) is RowCounts for one in gc.get_objects())
