"""Pending pods by workload: which one explanation is about, and how many are made."""

from __future__ import annotations

import io
from typing import Any

import pytest

from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.state.audit import differences
from scheduler.tools.explain import pending
from scheduler.tools.explain.answers import explain_waiting
from scheduler.tools.explain.formats.terminal import Style
from scheduler.tools.explain.pending import PendingWorkload, pending_workloads
from scheduler.tools.explain.report import report_lines
from scheduler.tools.explain.sentences import reason_in
from scheduler.tools.explain.serving import Leases, service_of
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from tests.support import build
from tests.support.json_cluster import decoded, loaded

CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "c", "namespace": "default", "uid": "c"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fats-ssd",
        "resources": {"requests": {"storage": "1Gi"}},
    },
}


def owned(name: str, kind: str = "ReplicaSet", owner: str = "web", **more: Any) -> build.Json:
    spec, controller = {"schedulerName": "affinity-scheduler"}, {**build.owned_by(kind, owner), "uid": "u"}
    return build.pod(name, spec=spec, owner=controller, **more)


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


def test_pods_with_other_specs_are_rows_of_their_own_unless_the_reason_is_the_same(
    explained: list[str],
) -> None:
    template = [owned("a", cpu="2"), owned("b", cpu="3")]
    selected = owned("c", cpu="2")
    selected["spec"]["nodeSelector"] = {"disk": "ssd"}
    found = pending_workloads(loaded(NODE, *template, selected)).workloads
    assert [(row.n_pods, row.reason) for row in found] == [
        (2, "Insufficient cpu"),
        (1, "node(s) didn't match Pod's node affinity/selector"),
    ]
    assert explained == ["a", "b", "c"]


def test_a_stateful_set_is_explained_by_its_oldest_pod(explained: list[str]) -> None:
    """Each of its pods has claims of its own."""
    pods = [owned(f"db-{n}", "StatefulSet", "db", cpu="2") for n in range(3)]
    for number, pod in enumerate(pods):
        pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": f"data-{number}"}}]
        pod["metadata"]["creationTimestamp"] = f"2026-01-02T03:04:0{9 - number}Z"
    assert rows(loaded(NODE, *pods)) == [("sts/db", 3)]
    assert explained == ["db-2"]


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


def test_pods_that_are_gone_soon_do_not_wait() -> None:
    assert rows(loaded(NODE, owned("p", terminating=True))) == []


@pytest.mark.parametrize(
    ("kind", "owner", "revision", "text"),
    [
        ("ReplicaSet", "web-54d9", "54d9", "deploy/web"),
        ("ReplicaSet", "web", "", "rs/web"),
        ("Job", "index", "", "job/index"),
        ("RayCluster", "ray", "", "RayCluster/ray"),
    ],
)
def test_a_row_names_what_can_be_edited(kind: str, owner: str, revision: str, text: str) -> None:
    pod = owned("p", kind, owner, labels={"pod-template-hash": revision} if revision else {})
    assert rows(loaded(NODE, pod)) == [(text, 1)]


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


def test_a_resource_or_a_class_that_is_nowhere_is_named() -> None:
    (device,) = pending_workloads(
        loaded(NODE, owned("p", containers=[build.container(requests={"nvidia.com/gpu": "1"})]))
    ).workloads
    assert (device.reason, device.missing) == (
        "Insufficient nvidia.com/gpu",
        "no node has the resource nvidia.com/gpu",
    )
    pod = owned("p")
    pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    claims = loaded(NODE, pod)
    claims.create_claim(CLAIM)
    assert [row.missing for row in pending_workloads(claims).workloads] == [
        "claim c: there is no class fats-ssd"
    ]
    full = build.node("full", allocatable={"cpu": "2"})
    some = loaded(NODE, full, owned("p", cpu="2"), owned("a", node="full", cpu="2"))
    assert [row.missing for row in pending_workloads(some).workloads] == [""]


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


def test_the_reason_that_refuses_the_most_nodes_comes_first() -> None:
    tainted = [build.node(name, taints=["x:NoSchedule"]) for name in ("tainted-1", "tainted-2")]
    (row,) = pending_workloads(loaded(NODE, *tainted, owned("p", cpu="2"))).workloads
    assert isinstance(row, PendingWorkload)
    assert row.reason == "node(s) had untolerated taint(s), Insufficient cpu"


@pytest.mark.parametrize(
    ("owner", "change"),
    [
        (("ReplicaSet", "few-54d9"), "Deployment default/few has replicas: 5"),
        (("StatefulSet", "few"), "StatefulSet default/few has replicas: 5"),
        (("Job", "few"), "2 more pods of the group"),
    ],
)
def test_a_group_of_which_too_few_pods_exist_says_how_many_there_are(
    owner: tuple[str, str], change: str
) -> None:
    group = {
        "affinity-scheduler.io/pod-group": "g",
        "affinity-scheduler.io/pod-group-min-count": "5",
        "pod-template-hash": "54d9",
    }
    pods = [owned(f"few-{n}", *owner, labels=group) for n in range(3)]
    cluster = loaded(NODE, *pods)
    (row,) = pending_workloads(cluster).workloads
    assert (row.reason, row.change) == ("3 of the 5 pods that its group needs exist", (change,))
    answer = explain_waiting(cluster, cluster.pending_pods()[0])
    lines = report_lines(answer, Style(io.StringIO(), {}))
    assert f"  3 of the 5 pods that its group needs exist: {change} would complete it" in lines


def test_what_no_node_has_that_a_member_of_a_group_asks_for_is_named() -> None:
    group = {"affinity-scheduler.io/pod-group": "g", "affinity-scheduler.io/pod-group-min-count": "2"}
    device = [build.container(requests={"nvidia.com/gpu": "1"})]
    pods = [owned(f"p{n}", "Job", labels=group, containers=device) for n in range(2)]
    (row,) = pending_workloads(loaded(NODE, *pods)).workloads
    assert row.missing == "no node has the resource nvidia.com/gpu"
