"""
Pods like the one before are decided from what it left behind; whatever else happens, all is decided anew.

That a repeated decision is the same as one made anew is not said here: every test's machines are compared (conftest).
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from scheduler.core.decide import Placement
from scheduler.core.machine import Machine
from scheduler.core.repeating import MAX_KEPT, Repeating
from scheduler.framework.interface import Candidate, Feasible, PreScored, Rescored
from scheduler.framework.observer import Unobserved
from scheduler.framework.profile import Weighted
from scheduler.model.nodes import decode_workload
from scheduler.model.stimuli import NamespaceGone, SweepDue, WorkloadSeen
from scheduler.state.arrays import Scores
from scheduler.state.snapshot import Snapshot
from tests.support import build
from tests.support.build import Json
from tests.support.driving import NAME, Driver, bind_of

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"


class _Points(Unobserved):
    """How often each extension point was entered."""

    def __init__(self) -> None:
        self.entered: Counter[str] = Counter()

    def enter(self, point: str) -> None:
        self.entered[point] += 1


class _Watched:
    """A small cluster whose machine tells whether its last decision was made anew."""

    def __init__(self) -> None:
        self.points = _Points()
        self.driver = Driver()
        self.driver.machine = Machine(
            state=self.driver.state,
            queue=self.driver.queue,
            profiles=self.driver.profiles,
            chance=random.Random(1),
            observer=self.points,
        )
        for index in range(6):
            self.driver.node(f"n{index}", labels={ZONE: f"z{index % 2}", HOSTNAME: f"n{index}"})
        self._n = 0

    def place(self, **pod: object) -> bool:
        """One more pod is decided and bound. Returns whether that was made anew."""
        self.points.entered.clear()
        self._n += 1
        seen = self.driver.pod(f"p{self._n}", **pod)
        self.last = self.driver.confirm(seen, bind_of(self.driver.cycle()).node_name)
        return self.points.entered["PreFilter"] > 0


@pytest.fixture
def cluster() -> Iterator[_Watched]:
    watched = _Watched()
    yield watched
    watched.driver.audit()


_LABELS = {"app": "web"}
_SELECTOR = build.selector("app=web")
_CONSTRAINTS: dict[str, Json] = {
    "none": {},
    "anti-affinity": {"affinity": build.affinity(anti_required=[build.term(ZONE, build.selector("app=db"))])},
    "affinity": {"affinity": build.affinity(required=[build.term(ZONE, _SELECTOR)])},
    "preferred": {"affinity": build.affinity(preferred=[(5, build.term(HOSTNAME, _SELECTOR))])},
    "preferred anti": {"affinity": build.affinity(anti_preferred=[(5, build.term(ZONE, _SELECTOR))])},
    "hard spread": {"spread": [build.spread(ZONE, _SELECTOR)]},
    "soft spread": {"spread": [build.spread(HOSTNAME, _SELECTOR, soft=True)]},
}


@pytest.mark.parametrize("constraint", _CONSTRAINTS.values(), ids=_CONSTRAINTS)
def test_no_plugin_looks_at_a_pod_like_the_last_one(cluster: _Watched, constraint: Json) -> None:
    """The first is decided anew, and the second where the first was the first to declare a term."""
    pod = {"labels": _LABELS, **constraint}
    assert cluster.place(**pod)
    cluster.place(**pod)
    assert [cluster.place(**pod) for _ in range(8)] == [False] * 8


def test_classes_of_pods_may_take_turns(cluster: _Watched) -> None:
    kinds = [{"labels": _LABELS, **constraint} for constraint in _CONSTRAINTS.values()]
    for pod in (*kinds, *kinds):
        cluster.place(**pod)
    assert [cluster.place(**pod) for pod in (*kinds, *kinds)] == [False] * 14


def _labelled(cluster: _Watched) -> None:
    cluster.driver.node("n0", labels={ZONE: "z1", HOSTNAME: "n0"})


def _cordoned(cluster: _Watched) -> None:
    cluster.driver.node("n1", labels={ZONE: "z1", HOSTNAME: "n1"}, unschedulable=True)


def _lost(cluster: _Watched) -> None:
    cluster.driver.lose_node("n2")


def _on_a_ghost(cluster: _Watched) -> None:
    cluster.driver.pod("elsewhere", node="unknown")


def _namespace(cluster: _Watched) -> None:
    cluster.driver.namespace("default", team="a")


def _no_namespace(cluster: _Watched) -> None:
    cluster.driver.handle(NamespaceGone("default"))


def _declared(cluster: _Watched) -> None:
    far = build.affinity(anti_required=[build.term(ZONE, _SELECTOR)])
    cluster.driver.pod("shy", node="n3", labels={"app": "shy"}, affinity=far)


def _swept(cluster: _Watched) -> None:
    cluster.driver.handle(SweepDue())


def _refused(cluster: _Watched) -> None:
    failed = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}
    cluster.driver.pod(cluster.last.name, node=cluster.last.node_name, labels=_LABELS, status=failed)


_HAPPENINGS = {
    "a node is relabelled": _labelled,
    "a node is cordoned": _cordoned,
    "a node goes": _lost,
    "a pod is on a node that nobody knows": _on_a_ghost,
    "a namespace is relabelled": _namespace,
    "a namespace goes": _no_namespace,
    "a running pod declares what none did": _declared,
    "what nobody uses is dropped": _swept,
    "a kubelet refuses such a pod": _refused,
}


@pytest.mark.parametrize("happen", _HAPPENINGS.values(), ids=_HAPPENINGS)
def test_whatever_changes_but_pods_on_nodes_is_looked_at_anew(
    cluster: _Watched, happen: Callable[[_Watched], None]
) -> None:
    for _ in range(3):
        anew = cluster.place(labels=_LABELS)
    assert not anew
    happen(cluster)
    assert cluster.place(labels=_LABELS)
    assert not cluster.place(labels=_LABELS)


def _heartbeat(cluster: _Watched) -> None:
    cluster.driver.node("n0", labels={ZONE: "z0", HOSTNAME: "n0"})


def _pulled(cluster: _Watched) -> None:
    labels = {ZONE: "z0", HOSTNAME: "n0"}
    cluster.driver.node("n0", labels=labels, images={"pause": 700 * 1024 * 1024})


def _rolled_out(cluster: _Watched) -> None:
    document = json.dumps(build.replica_set("web", _SELECTOR)).encode()
    cluster.driver.handle(WorkloadSeen(decode_workload("ReplicaSet", document)))


_NOTHING_NEW = {
    "a node is seen as it was": _heartbeat,
    "a node has another image": _pulled,
    "the status of a replica set": _rolled_out,
}


@pytest.mark.parametrize("happen", _NOTHING_NEW.values(), ids=_NOTHING_NEW)
def test_what_happens_all_the_time_during_a_rollout_ends_nothing(
    cluster: _Watched, happen: Callable[[_Watched], None]
) -> None:
    _rolled_out(cluster)
    for _ in range(3):
        cluster.place(labels=_LABELS)
    happen(cluster)
    assert not cluster.place(labels=_LABELS)


def test_what_is_kept_of_an_epoch_goes_with_it() -> None:
    """It holds counts that nobody else holds any more, megabytes where a pod asks a hundred questions."""
    driver = Driver()
    for index in range(3):
        driver.node(f"n{index}")
    repeating = Repeating(Snapshot(driver.state), random.Random(1), Unobserved())
    pods = [driver.pod(f"p{index}", labels={"index": str(index)}) for index in range(9)]
    for pod in pods[:-1]:
        repeating.decide(pod, driver.profiles[NAME])
    driver.node("n3")
    repeating.decide(pods[-1], driver.profiles[NAME])
    assert len(repeating) == 1


def test_pods_that_come_to_nodes_and_leave_them_are_followed(cluster: _Watched) -> None:
    pod = {"labels": _LABELS, **_CONSTRAINTS["preferred"]}
    for _ in range(3):
        cluster.place(**pod)
    other = cluster.driver.pod("other", node="n4", labels={"app": "db"})
    assert not cluster.place(**pod)
    cluster.driver.lose(other)
    cluster.driver.lose(cluster.last)
    assert not cluster.place(**pod)


def test_nodes_fill_up_while_their_zone_is_closed(cluster: _Watched) -> None:
    """Who passed when the same zones were open is found again; some do not any more, or not for the same reason."""
    for index in range(6):
        labels = {ZONE: f"z{index % 2}", HOSTNAME: f"n{index}"}
        cluster.driver.node(f"n{index}", labels=labels, allocatable={"pods": "2"})
    anew = [cluster.place(labels=_LABELS, **_CONSTRAINTS["hard spread"]) for _ in range(8)]
    assert anew == [True] + [False] * 7


def test_a_node_is_preferred_less_while_zones_take_turns(cluster: _Watched) -> None:
    """Another is preferred even more: sums of when the same zone was better know nothing of that."""
    liked = build.affinity(preferred=[(1, build.term(HOSTNAME, build.selector("app=db")))])
    twins = build.spread(ZONE, build.selector("app=twin"), soft=True)
    for name, node in (("a", "n1"), ("b", "n3"), ("c", "n3")):
        cluster.driver.pod(name, node=node, labels={"app": "db"})
    for number in range(3):
        for node in ("n0", "n5"):
            twin = cluster.driver.pod(f"twin-{number}-{node}", node=node, labels={"app": "twin"})
            cluster.place(labels=_LABELS, affinity=liked, spread=[twins])
            cluster.driver.lose(twin)
        cluster.driver.pod(f"more-{number}", node="n3", labels={"app": "db"})


def test_where_too_many_nodes_have_moved_all_is_decided_anew(cluster: _Watched) -> None:
    for _ in range(3):
        cluster.place(labels=_LABELS)
    for index in range(40):
        cluster.driver.pod(f"other-{index}", node=f"n{index % 6}")
    assert cluster.place(labels=_LABELS)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"status": {"nominatedNodeName": "n3"}}, id="nominated"),
        pytest.param({"labels": {"app": "web", "index": "7"}}, id="labels of its own"),
        pytest.param({"containers": [build.container(requests={"cpu": "7m"})]}, id="another spec"),
        pytest.param({"owner": build.owned_by("ReplicaSet", "other")}, id="another owner"),
    ],
)
def test_a_pod_that_differs_in_what_a_decision_reads_is_decided_anew(cluster: _Watched, more: Json) -> None:
    for _ in range(3):
        cluster.place(labels=_LABELS)
    assert cluster.place(**{"labels": _LABELS, **more})


def test_no_more_classes_are_kept_than_the_bound() -> None:
    driver = Driver()
    for index in range(3):
        driver.node(f"n{index}")
    repeating = Repeating(Snapshot(driver.state), random.Random(1), Unobserved())
    profile = driver.profiles[NAME]
    pods = [driver.pod(f"p{index}", labels={"index": str(index)}) for index in range(MAX_KEPT + 5)]
    for pod in pods:
        repeating.decide(pod, profile)
    assert len(repeating) == MAX_KEPT


def test_the_draw_of_a_repeated_decision_is_the_same() -> None:
    """With the same seed the same nodes are chosen, whether decisions are repeated or each is the first."""
    chosen = []
    for renew in (False, True):
        driver = Driver()
        for index in range(40):
            driver.node(f"n{index}")
        chance = random.Random(5)
        repeating = Repeating(Snapshot(driver.state), chance, Unobserved())
        nodes = []
        for index in range(30):
            if renew:
                repeating = Repeating(Snapshot(driver.state), chance, Unobserved())
            nodes.append(_placed(driver, repeating, index))
        chosen.append(nodes)
    assert chosen[0] == chosen[1]


def _placed(driver: Driver, repeating: Repeating, index: int) -> str:
    pod = driver.pod(f"p{index}")
    decision = repeating.decide(pod, driver.profiles[NAME])
    assert isinstance(decision, Placement)
    driver.state.assume(pod, decision.node_name)
    return decision.node_name


class _OwnScorer:
    """Nodes that are not feasible have the most that the array holds, as they may."""

    def __init__(self, feasible: Feasible) -> None:
        self._scores = np.where(feasible.mask, 50, np.iinfo(np.int16).max).astype(np.int16)

    def raw(self) -> Scores:
        return self._scores

    def normalized(self, raw: Scores) -> Scores:
        return raw

    def again(self, rows: Sequence[int]) -> Rescored:
        return self._scores, rows


class _OwnScores:
    name = "Own"

    def prescore(self, candidate: Candidate, snapshot: Snapshot, feasible: Feasible) -> PreScored:
        del candidate, snapshot
        return _OwnScorer(feasible)


def test_nodes_that_are_not_feasible_may_have_any_scores() -> None:
    """Their sums are more than totals can be, and are no node's that counts; another plugin's scores move meanwhile."""
    watched = _Watched()
    profiles = watched.driver.profiles
    assert isinstance(profiles, dict)
    for name, profile in profiles.items():
        profiles[name] = replace(profile, scorers=(*profile.scorers, Weighted(_OwnScores(), 3)))
    watched.driver.node("n9", labels={ZONE: "z0", HOSTNAME: "n9"}, taints=["k=v:NoSchedule"])
    for number in range(6):
        is_first = watched.place(labels=_LABELS, spread=[build.spread(ZONE, _SELECTOR, soft=True)])
        assert is_first == (number == 0)
        watched.driver.pod(f"daemon-{number}", node="n9")
    watched.driver.audit()
