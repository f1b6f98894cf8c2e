"""A plugin of one's own, whole: at most so many pods of a team on a rack. scheduler/README.md prints it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from scheduler.core.decide import Decision, ScheduleResult, decide
from scheduler.framework.diagnosis import FitError
from scheduler.framework.interface import PodContext, PreFiltered, RuleFilter
from scheduler.framework.observer import Unobserved
from scheduler.framework.status import SKIP, unschedulable
from scheduler.model.labels import NOTHING, Requirement, Selector
from scheduler.state.matching import NamespaceRule, PodMatcher
from scheduler.state.snapshot import Snapshot
from tests.conformance.product import ProductSubject
from tests.support import build


class RackLimit:
    """At most `most` pods of a team on a rack."""

    name = "RackLimit"

    def __init__(self, most: int) -> None:
        self._most = most

    def prefilter(self, context: PodContext, snapshot: Snapshot) -> PreFiltered:
        """Skip a pod without a team."""
        pod = context.pod
        if "team" not in pod.labels:
            return SKIP
        namespace = NamespaceRule(frozenset({pod.namespace}), NOTHING)
        team = Selector((Requirement("team", "In", (pod.labels["team"],)),))
        full = snapshot.pods_by_domain(PodMatcher(((namespace, team),)), "rack").at_least(self._most)
        return RuleFilter(snapshot.n_rows, (~full, unschedulable("node(s) had the team on their rack")))


@pytest.fixture
def subject() -> ProductSubject:
    """Four nodes on two racks, and one without a rack that is full."""
    made = ProductSubject(None)
    for name, rack in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
        made.apply(build.node(name, labels={"rack": rack}))
    made.apply(build.node("full", allocatable={"pods": "0"}))
    return made


def _decided(subject: ProductSubject, pod: build.Json) -> Decision:
    profile = replace(subject.profile, filters=(*subject.profile.filters, RackLimit(2)))
    return decide(
        subject.cluster.pod(pod), subject.cluster.snapshot(), profile, random.Random(1), Unobserved()
    )


def _pod(name: str, team: str, node: str | None = None) -> build.Json:
    return build.pod(name, labels={"team": team}, node=node)


def test_a_team_spreads_over_racks_until_all_are_full(subject: ProductSubject) -> None:
    racks = []
    for number in range(4):
        decision = _decided(subject, _pod(f"p{number}", "red"))
        assert isinstance(decision, ScheduleResult)
        racks.append(decision.node_name[0])
        subject.apply(_pod(f"p{number}", "red", decision.node_name))
    assert sorted(racks) == ["a", "a", "b", "b"]
    refused = _decided(subject, _pod("p4", "red"))
    assert isinstance(refused, FitError)
    assert refused.rejecting == {"NodeResourcesFit", "RackLimit"}
    assert refused.message() == (
        "0/5 nodes are available: 1 Too many pods, 4 node(s) had the team on their rack."
    )


def test_only_pods_of_the_same_team_and_namespace_count(subject: ProductSubject) -> None:
    for number, team in enumerate(("red", "blue", "blue")):
        subject.apply(_pod(f"p{number}", team, "a1"))
    subject.apply(build.pod("elsewhere", namespace="other", labels={"team": "red"}, node="a2"))
    decision = _decided(subject, _pod("new", "red"))
    assert isinstance(decision, ScheduleResult)
    assert decision.n_feasible == 4


def test_it_follows_pods_that_go_and_racks_that_change(subject: ProductSubject) -> None:
    """Though it keeps nothing itself."""
    for number, node in enumerate(("a1", "a2", "b1", "b1")):
        subject.apply(_pod(f"p{number}", "red", node))
    assert isinstance(_decided(subject, _pod("new", "red")), FitError)
    subject.delete("Pod", "default", "p0")
    one_rack = _decided(subject, _pod("new", "red"))
    assert isinstance(one_rack, ScheduleResult)
    assert one_rack.n_feasible == 2
    subject.apply(build.node("a1", labels={"rack": "c"}))
    subject.apply(_pod("p5", "red", "a2"))
    alone = _decided(subject, _pod("new", "red"))
    assert isinstance(alone, ScheduleResult)
    assert alone.node_name == "a1"


def test_a_pod_without_a_team_goes_anywhere(subject: ProductSubject) -> None:
    for number in range(8):
        subject.apply(_pod(f"p{number}", "red", "a1" if number % 2 else "b1"))
    decision = _decided(subject, build.pod("new"))
    assert isinstance(decision, ScheduleResult)
    assert decision.n_feasible == 4
