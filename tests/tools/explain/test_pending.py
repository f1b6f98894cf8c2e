"""Pending pods by workload: which one explanation is about, and how many are made."""

from __future__ import annotations

import io
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.state.audit import differences
from scheduler.tools.explain import pending
from scheduler.tools.explain.answers import explain_waiting
from scheduler.tools.explain.formats.terminal import Style
from scheduler.tools.explain.pending import pending_workloads
from scheduler.tools.explain.report import report_lines
from scheduler.tools.explain.sentences import reason_in
from scheduler.tools.explain.serving import Leases, service_of
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from tests.support import build
from tests.support.json_cluster import decoded, loaded
from tests.support.storage_objects import claim

OURS = {"schedulerName": "affinity-scheduler"}


def owned(name: str, kind: str = "ReplicaSet", owner: str = "web", **more: Any) -> build.Json:
    controller = {**build.owned_by(kind, owner), "uid": "u"}
    return build.pod(name, spec=OURS, owner=controller, **more)


NODE = build.node("n", allocatable={"cpu": "1"})


def rows(cluster: LoadedCluster) -> list[tuple[str, int]]:
    return [(row.workload.text, row.n_pods) for row in pending_workloads(cluster).workloads]


@pytest.fixture
def explained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the pods that are explained from now on."""
    names: list[str] = []

    def counting(cluster: LoadedCluster, pod: Any, *more: Any, **named: Any) -> Any:
        names.append(pod.name)
        return explain_waiting(cluster, pod, *more, **named)

    monkeypatch.setattr(pending, "explain_waiting", counting)
    return names


def test_thousands_of_equal_pods_are_explained_once(explained: list[str]) -> None:
    pods = [owned(f"web-{number:04}", cpu="2") for number in range(2_000)]
    cluster = loaded(NODE, *pods)
    (row,) = pending_workloads(cluster).workloads
    assert (row.n_pods, explained) == (2_000, ["web-0000"])
    assert differences(cluster.state) == []


def test_a_stateful_set_is_explained_by_its_oldest_pod(explained: list[str]) -> None:
    """Each of its pods has claims of its own."""
    pods = [owned(f"db-{n}", "StatefulSet", "db", cpu="2") for n in range(3)]
    for number, pod in enumerate(pods):
        pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": f"data-{number}"}}]
        pod["metadata"]["creationTimestamp"] = f"2026-01-02T03:04:0{9 - number}Z"
    assert rows(loaded(NODE, *pods)) == [("sts/db", 3)]
    assert explained == ["db-2"]


def test_pods_of_a_daemon_set_that_were_refused_otherwise_are_not_alike(explained: list[str]) -> None:
    """Each is for one node: what keeps it out there says nothing of the others."""
    pods = []
    for name, reason in (("a", "Insufficient cpu"), ("b", "node(s) had untolerated taint(s)"), ("c", "")):
        named = build.affinity(node_required=[build.node_term(named=[f"in {name}"])])
        pods.append(owned(f"agent-{name}", "DaemonSet", "agent", cpu="2", affinity=named))
        others = "2 node(s) didn't satisfy plugin(s) [NodeAffinity]"
        message = f"0/3 nodes are available: 1 {reason}, {others}."
        pods[-1]["status"]["conditions"] = [build.unscheduled(message)] if reason else []
    nodes = [
        build.node("a", allocatable={"cpu": "1"}),
        build.node("b", taints=["spot:NoSchedule"]),
        build.node("c"),
    ]
    cluster = loaded(*nodes, *pods)
    assert [row.reason for row in pending_workloads(cluster).workloads] == [
        "node(s) didn't satisfy plugin(s) [NodeAffinity], Insufficient cpu",
        "node(s) didn't satisfy plugin(s) [NodeAffinity], node(s) had untolerated taint(s)",
        "it fits; affinity-scheduler has not placed it yet",
    ]
    assert explained == ["agent-a", "agent-b", "agent-c"]


def test_pods_without_a_controller_are_alike_by_their_labels_too() -> None:
    """The running pod keeps one of them away, and not the other."""
    apart = build.affinity(anti_required=[build.term(build.HOSTNAME, build.selector("app=b"))])
    runs = owned("runs", owner="db", node="n", affinity=apart)
    pods = [build.pod(name, labels={"app": name}, spec=OURS) for name in "ab"]
    found = pending_workloads(loaded(NODE, runs, *pods)).workloads
    assert [(row.pod, row.state) for row in found] == [("a", "schedulable"), ("b", "unschedulable")]


def test_what_is_not_explained_has_what_its_scheduler_said(
    explained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "_MAX_EXPLAINED", 1)
    message = "0/9 nodes are available: 9 Insufficient memory. preemption: 0/9 nodes are available: 9 x."
    pods = [owned(f"p{n}", owner=f"web-{n}", cpu="1") for n in range(3)]
    pods[2]["status"]["conditions"] = [build.unscheduled(message)]
    runs = owned("runs", owner="db", node="n", cpu="1")
    found = pending_workloads(loaded(NODE, runs, *pods)).workloads
    assert [(row.reason, row.state, row.change != ()) for row in found] == [
        ("Insufficient cpu", "unschedulable", True),
        ("not explained: there are too many; name the workload", "", False),
        ("Insufficient memory", "", False),
    ]
    assert explained == ["p0"]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ('annotation a: found "two", expected 1 to 5000', 'annotation a: found "two", expected 1 to 5000'),
        (
            '0/12 nodes are available: annotation a: found "two", expected 1 to 5000.',
            'annotation a: found "two", expected 1 to 5000',
        ),
        ("pod group a/b waits until 5 of its pods exist", "pod group a/b waits until 5 of its pods exist"),
        ("pod group a/b needs 12 places: 4 found", "pod group a/b needs 12 places: 4 found"),
        ("0/12 nodes are available: 3 Insufficient cpu, 9 x.", "Insufficient cpu, x"),
    ],
)
def test_of_a_message_only_numbers_of_nodes_are_left_out(message: str, reason: str) -> None:
    assert reason_in(message) == reason


@pytest.mark.parametrize(
    ("seen", "is_served"),
    [
        ({}, False),
        ({"conditions": "Unschedulable"}, True),
        ({"conditions": "SchedulingGated", "schedulingGates": [{"name": "example.com/gate"}]}, False),
        ({"nodeName": "n"}, True),
    ],
)
def test_a_scheduler_without_a_lease_is_known_by_what_it_did(seen: build.Json, is_served: bool) -> None:
    """The API server itself refuses a pod with gates."""
    more = dict(seen)
    reason = more.pop("conditions", "")
    other, pod = build.pod("other", spec=more), build.pod("p")
    if reason:
        other["status"]["conditions"] = [build.unscheduled(reason=reason)]
    others = map(decoded, (other, pod))
    unserved, notes = service_of(decoded(pod), default_settings(), Leases(), others)
    asked = "nothing is seen to serve default-scheduler; did you mean schedulerName: affinity-scheduler?"
    assert unserved == ("" if is_served else asked)
    assert bool(notes) == is_served


def grouped(n: int, *owner: str, **more: Any) -> list[build.Json]:
    """Return the pods of group g, which takes this many and has up to three."""
    labels = {"affinity-scheduler.io/pod-group": "g", "affinity-scheduler.io/pod-group-min-count": str(n)}
    labels["pod-template-hash"] = "54d9"
    return [owned(f"few-{number}", *owner, labels=labels, **more) for number in range(min(n, 3))]


GPU = [build.container(requests={"nvidia.com/gpu": "1"})]
TAINTED = [build.node(name, taints=["x:NoSchedule"]) for name in ("tainted-1", "tainted-2")]
FULL = [build.node("full", allocatable={"cpu": "2"}), owned("a", node="full", cpu="2")]
ON_SSD, CLAIMING = owned("c", cpu="2"), owned("p")
ON_SSD["spec"]["nodeSelector"] = {"disk": "ssd"}
CLAIMING["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
HASHED = {"pod-template-hash": "54d9"}


@pytest.mark.parametrize(
    ("documents", "numbers"),
    [
        pytest.param([owned("a", cpu="2"), owned("b", cpu="3"), ON_SSD], [2, 1], id="other specs"),
        pytest.param([owned("p", terminating=True)], [], id="one that is gone soon does not wait"),
        pytest.param([owned("p", owner="web-54d9", labels=HASHED)], [1], id="of a Deployment"),
        pytest.param([owned("p", "Job", "index")], [1], id="of a Job"),
        pytest.param([owned("p", "RayCluster", "ray")], [1], id="of a kind of the user's"),
        pytest.param([owned("p", containers=GPU)], [1], id="a resource that is nowhere"),
        pytest.param([claim("c", "fats-ssd"), CLAIMING], [1], id="a class that is nowhere"),
        pytest.param([*FULL, owned("p", cpu="2")], [1], id="a resource that is taken"),
        pytest.param([*TAINTED, owned("p", cpu="2")], [1], id="the reason of the most nodes first"),
        pytest.param(grouped(5, "ReplicaSet", "few-54d9"), [3], id="too few of a Deployment"),
        pytest.param(grouped(5, "StatefulSet", "few"), [3], id="too few of a StatefulSet"),
        pytest.param(grouped(5, "Job", "few"), [3], id="too few of a Job"),
        pytest.param(grouped(2, "Job", containers=GPU), [2], id="a resource of members that is nowhere"),
    ],
)
def test_each_workload_has_its_reason_and_what_would_help(
    documents: list[build.Json], numbers: list[int], snapshot: SnapshotAssertion
) -> None:
    found = pending_workloads(loaded(NODE, *documents)).workloads
    assert [row.n_pods for row in found] == numbers
    assert [(row.workload.text, row.reason, row.missing, row.change) for row in found] == snapshot


def test_a_group_of_which_too_few_pods_exist_says_how_many_there_are() -> None:
    cluster = loaded(NODE, *grouped(5, "Job", "few"))
    answer = explain_waiting(cluster, cluster.pending_pods()[0])
    lines = report_lines(answer, Style(io.StringIO(), {}))
    told = "3 of the 5 pods that its group needs exist: 2 more pods of the group would complete it"
    assert f"  {told}" in lines
