"""Deciding what another scheduler decides, on the state as it stood then."""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.daemon.assembly.profiles import build_profiles
from scheduler.engine.core.decide import ScheduleResult, decide
from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.stimuli import NodeSeen, ObjectSeen, PodGone, PodSeen
from scheduler.engine.state.audit import differences
from scheduler.engine.state.batches import finished
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.tools.shadow import races
from scheduler.tools.shadow.differences import reasons_of
from scheduler.tools.shadow.orders import RACE_S
from scheduler.tools.shadow.report import Cause, Difference
from scheduler.tools.shadow.shadow import INTERRUPTED_S, Shadow
from tests.support import build, storage_objects
from tests.support.driving import NAME
from tests.support.json_cluster import SETTINGS, Cluster, decoded, encoded, zoned
from tests.tools.explain.random_clusters import random_cluster

OTHER = "default-scheduler"


class Watched:
    """A shadow, and what a watch shows it."""

    def __init__(self, nodes: list[build.Json], *, state: ClusterState | None = None) -> None:
        state = state or ClusterState()
        profile = build_profiles(SETTINGS, ClusterView(state))[NAME]
        self.shadow = Shadow(OTHER, state, profile, random.Random(1))
        self.now_s = 0.0
        for node in nodes:
            finished(self.shadow.apply(NodeSeen(decode_node(encoded(node))), self.now_s))
        self.shadow.compares = True

    def see(self, pod: build.Json, *, after_s: float = 10.0) -> None:
        self.now_s += after_s
        finished(self.shadow.apply(PodSeen(decoded(pod)), self.now_s))
        assert differences(self.shadow.state) == []

    def bind(self, pod: build.Json, node: str, *, after_s: float = 10.0) -> None:
        """Show the pod pending, and then on the node."""
        self.see(pod, after_s=after_s)
        self.see(on(pod, node), after_s=0.0)

    @property
    def difference(self) -> Difference:
        (found,) = self.shadow.report().differences
        return found


def needs(name: str, cpu: str = "1", **more: Any) -> build.Json:
    return build.pod(name, containers=[build.container(requests={"cpu": cpu, "memory": "1Gi"})], **more)


def nominated(pod: build.Json, node: str) -> build.Json:
    return {**pod, "status": {**pod["status"], "nominatedNodeName": node}}


def unschedulable(pod: build.Json, message: str) -> build.Json:
    return {**pod, "status": {**pod["status"], "conditions": [build.unscheduled(message)]}}


def on(pod: build.Json, node: str) -> build.Json:
    return {**pod, "spec": {**pod["spec"], "nodeName": node}}


FIRST, SECOND = ("first", "a1", 10.0), ("second", "a1", 10.0)
ONLY_DB = zoned("b1", taints=["only=db:NoSchedule"])
MANY = [build.node(f"n{number}") for number in range(300)]
SOON_S, LATE_S = RACE_S / 4, RACE_S * 2


@pytest.mark.parametrize(
    ("nodes", "binds", "causes"),
    [
        (zoned("a1 a2 b1"), [("p", "b1", 10.0)], []),
        (zoned("a1 b1"), [FIRST, SECOND], [Cause.SCORE]),
        ([*zoned("a1"), *ONLY_DB], [("p", "b1", 10.0)], [Cause.RULE]),
        (MANY, [("first", "n0", 10.0), ("second", "n0", 10.0)], [Cause.SAMPLING]),
        # Without `first`, a1 would have been as good for `second`; long after it, it has fewer points.
        (zoned("a1 b1"), [FIRST, ("second", "a1", SOON_S)], [Cause.RACE]),
        (zoned("a1 b1"), [FIRST, ("second", "a1", LATE_S)], [Cause.SCORE]),
        # a1 is the fuller node when `second` goes there, and not once b1 has got the large pod.
        (zoned("a1 b1"), [FIRST, SECOND, ("large", "b1", SOON_S)], [Cause.RACE]),
        (zoned("a1 b1"), [FIRST, SECOND, ("large", "b1", LATE_S)], [Cause.SCORE]),
    ],
    ids=["best", "worse", "refused", "sampled", "after-a-bind", "long-after", "before-a-bind", "long-before"],
)
def test_a_bind_is_as_ours_or_a_difference_with_its_cause(
    nodes: list[build.Json],
    binds: list[tuple[str, str, float]],
    causes: list[Cause],
    snapshot: SnapshotAssertion,
) -> None:
    watched = Watched(nodes)
    for name, node, after_s in binds:
        watched.bind(needs(name, "3" if name == "large" else "1"), node, after_s=after_s)
    report = watched.shadow.report()
    assert (report.n_bound, report.n_alike) == (len(binds), len(binds) - len(report.differences))
    assert [each.cause for each in report.differences if each.pod != "large"] == causes
    assert sum(report.causes.values()) == len(report.differences)
    assert report.differences == snapshot


def test_a_race_whose_order_contradicts_another_race_is_not_proven() -> None:
    """`second` would need an order without `first`, which another race has known before it."""
    watched = Watched(zoned("a1 b1"))
    watched.bind(needs("first"), "a1")
    first, second = ("Pod", "uid-default-first"), ("Pod", "uid-default-second")
    assert watched.shadow._races._orders.prove(second, [first], [])
    watched.bind(needs("second"), "a1", after_s=RACE_S / 4)
    assert watched.difference.cause is Cause.SCORE
    assert watched.difference.explanation.endswith("no order of the 1 change shortly before explains it")


def test_a_pod_that_was_left_pending_is_decided_again() -> None:
    """The other did not know that `repelling` was gone when it left the pod pending, and did when it bound it."""
    watched = Watched([build.node(name, labels={"region": "r"}) for name in ("a1", "b1")])
    watched.bind(needs("first"), "a1")
    anti = build.affinity(anti_required=[build.term("region", build.selector("app=p"))])
    watched.bind(needs("repelling", affinity=anti), "b1")
    pod = needs("p", labels={"app": "p"})
    watched.see(pod)
    text = reasons_of(decide_on(watched, pod))
    watched.now_s += RACE_S / 10
    finished(watched.shadow.apply(PodGone("uid-default-repelling"), watched.now_s))
    watched.see(unschedulable(pod, text), after_s=RACE_S / 10)
    watched.see(on(pod, "a1"), after_s=RACE_S / 10)
    assert watched.shadow.report().causes == {Cause.RACE: 1, Cause.SCORE: 1}
    assert [each.cause for each in watched.shadow.report().differences] == [Cause.SCORE, Cause.RACE]
    watched.bind(needs("large", "3"), "b1", after_s=RACE_S / 10)
    assert watched.shadow.report().causes == {Cause.RACE: 2}


def decide_on(watched: Watched, pod: build.Json) -> FitError:
    state = watched.shadow.state
    profile = build_profiles(SETTINGS, ClusterView(state))[NAME]
    decision = decide(decoded(pod), ClusterView(state), profile, random.Random(1))
    assert isinstance(decision, FitError)
    return decision


def test_what_is_seen_while_a_watch_is_interrupted_is_not_compared() -> None:
    """Its order is another: here `second` would be behind, and `third`, later, is."""
    watched = Watched(zoned("a1 b1"))
    watched.bind(needs("first"), "a1")
    watched.shadow.interrupt(watched.now_s)
    watched.bind(needs("second"), "a1")
    pending = needs("pending", "100")
    watched.see(pending, after_s=0.0)
    watched.see(unschedulable(pending, "nonsense"), after_s=0.0)
    report = watched.shadow.report()
    assert (report.n_bound, report.n_unseen, report.n_pending, report.differences) == (1, 1, 0, ())
    watched.bind(needs("third"), "a1", after_s=INTERRUPTED_S)
    assert watched.difference.pod == "third"


def test_every_difference_that_a_later_change_explains_is_counted_as_a_race() -> None:
    """Also one that has no room among those that are shown."""
    watched = Watched(zoned("a1 b1"))
    watched.bind(needs("first"), "a1")
    with mock.patch.object(races, "_MAX_DIFFERENCES", 0):
        watched.bind(needs("second"), "a1")
        assert watched.shadow.report().causes == {Cause.SCORE: 1}
        watched.bind(needs("large", "3"), "b1", after_s=RACE_S / 4)
    report = watched.shadow.report()
    assert report.causes[Cause.RACE] >= 1
    assert Cause.SCORE not in report.causes
    assert report.n_more_differences == sum(report.causes.values())


def test_a_long_message_is_cut() -> None:
    watched = Watched(zoned("a1"))
    pod = needs("p", "100")
    watched.see(pod)
    watched.see(unschedulable(pod, "x" * 100_000))
    assert len(watched.difference.explanation) < 5_000


@pytest.mark.parametrize(
    ("message", "same"),
    [
        ("0/1 nodes are available: 1 Insufficient cpu.", True),
        (
            "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: "
            "1 No preemption victims found for incoming pod.",
            True,
        ),
        ("0/1 nodes are available: 1 Too many pods.", False),
    ],
)
def test_reasons_of_pending_pods_are_compared(message: str, same: bool) -> None:
    """What preemption adds to the message is left out. The same message again is not another pod."""
    watched = Watched(zoned("a1", allocatable={"cpu": "1", "pods": "9"}))
    pod = needs("p", "2")
    watched.see(pod)
    for _ in range(2):
        watched.see(unschedulable(pod, message))
    report = watched.shadow.report()
    assert (report.n_pending, report.n_same_reasons, len(report.differences)) == (1, same, not same)


def test_pods_of_others_and_pods_that_were_never_seen_pending_are_not_compared() -> None:
    watched = Watched(zoned("a1 b1"))
    watched.bind(needs("theirs", spec={"schedulerName": "third"}), "a1")
    watched.see(needs("sudden", node="a1"))
    report = watched.shadow.report()
    assert (report.n_bound, report.n_unseen, report.differences) == (0, 1, ())


def test_pods_that_are_nominated_keep_their_room() -> None:
    """A pod of the same priority does not fit beside the one that waits for the eviction on a1."""
    watched = Watched(zoned("a1", allocatable={"cpu": "4"}))
    watched.bind(needs("victim", "3"), "a1")
    message = "0/1 nodes are available: 1 Insufficient cpu."
    watched.see(nominated(unschedulable(needs("preemptor", "3"), message), "a1"))
    victim = watched.shadow.state.placed["uid-default-victim"].pod
    finished(watched.shadow.apply(PodGone(victim.uid), watched.now_s + 10))
    watched.see(needs("late", "2"), after_s=20)
    watched.see(unschedulable(needs("late", "2"), message))
    report = watched.shadow.report()
    assert (report.n_pending, report.n_same_reasons) == (2, 2)


def claiming(name: str) -> build.Json:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
    return needs(name, spec={"volumes": volumes})


class WithClaim(Watched):
    """A cluster with the claim `p` of a class whose volumes wait for their first pod."""

    def __init__(self) -> None:
        super().__init__(zoned("a1 b1"))
        self.store(storage_objects.storage_class("late"))
        self.store(storage_objects.csi_driver("d"))
        self.store(storage_objects.claim("p", "late"))

    def store(self, document: build.Json) -> None:
        self.now_s += 10
        finished(self.shadow.apply(ObjectSeen(KINDS[document["kind"]].decode(encoded(document))), self.now_s))


def test_a_pod_with_a_claim_is_compared_when_its_node_is_chosen_and_counts_there() -> None:
    """The claim's volume is in the zone of the node, which would explain any choice once it is there."""
    watched = WithClaim()
    watched.bind(needs("other"), "a1")
    watched.see(claiming("p"))
    watched.see(nominated(claiming("p"), "a1"))
    assert watched.difference.cause is Cause.SCORE
    assert watched.shadow.state.placed["uid-default-p"].pod.node_name == "a1"
    watched.store(storage_objects.claim("p", "late", node="a1"))
    watched.see(on(claiming("p"), "a1"))
    report = watched.shadow.report()
    assert (report.n_bound, len(report.differences)) == (2, 1)


def test_a_node_that_is_written_into_the_claim_is_the_choice_too() -> None:
    """Before 1.35 no nomination tells it. If the bind fails, the pod counts nowhere again."""
    watched = WithClaim()
    watched.see(claiming("p"))
    watched.store(storage_objects.claim("p", "late", node="b1"))
    assert watched.shadow.state.placed["uid-default-p"].pod.node_name == "b1"
    assert (watched.shadow.report().n_bound, watched.shadow.report().n_alike) == (1, 1)
    watched.see(unschedulable(claiming("p"), "0/2 nodes are available: 2 Insufficient cpu."))
    assert not watched.shadow.state.placed


def test_a_node_that_changed_shortly_before_is_a_race() -> None:
    watched = Watched(zoned("a1 b1"))
    watched.see(needs("p"))
    (node,) = zoned("b1", unschedulable=True)
    finished(watched.shadow.apply(NodeSeen(decode_node(encoded(node))), watched.now_s + 9.9))
    watched.see(on(needs("p"), "b1"))
    assert watched.difference.cause is Cause.RACE
    assert watched.difference.explanation.endswith("not so if node b1 came in the other order")


@pytest.mark.parametrize("seed", range(40))
def test_a_scheduler_that_decides_alike_differs_nowhere(seed: int) -> None:
    """Random clusters and pods, bound to any of the best nodes, or reported pending with their reasons."""
    cluster, subject = random_cluster(seed)
    state = Cluster(cluster.nodes, [p for p in cluster.pods if p["spec"].get("nodeName")], cluster.namespaces)
    watched = Watched([], state=state.state())
    profile = build_profiles(SETTINGS, ClusterView(watched.shadow.state))[NAME]
    rng = random.Random(seed)
    for pod in [subject, *(p for p in cluster.pods if not p["spec"].get("nodeName"))]:
        decision = decide(decoded(pod), ClusterView(watched.shadow.state), profile, rng)
        if isinstance(decision, ScheduleResult):
            watched.bind(pod, decision.node_name, after_s=rng.random())
    report = watched.shadow.report()
    assert (report.n_alike, report.differences) == (report.n_bound, ())
