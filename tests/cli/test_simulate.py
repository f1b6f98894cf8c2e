"""`simulate`: where the replicas of manifests go, whom they evict, and where the pods of drained nodes go."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from syrupy.assertion import SnapshotAssertion

from scheduler.errors import SettingsError
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import POD, POD_DISRUPTION_BUDGET, PRIORITY_CLASS
from scheduler.tools.explain.priority_classes import priority_class_named
from tests.cli.conftest import DEPLOYMENT, Called, embedded, recorded, refused, written
from tests.support import build
from tests.support.build import Json
from tests.support.cases.volume_rows import using
from tests.support.device_documents import device_class, device_slice, resource_claim
from tests.support.storage_objects import claim, csi_node, storage_class
from tests.support.workloads import workload

OURS = {"schedulerName": "affinity-scheduler"}


# -- replicas ------------------------------------------------------------------------------------------------


async def test_replicas_are_placed_until_the_next_does_not_fit(
    tmp_path: Path, called: Called, snapshot: SnapshotAssertion
) -> None:
    manifest = tmp_path / "web.yaml"
    manifest.write_text(DEPLOYMENT)
    async with embedded(tmp_path, nodes=6, zones=3):
        base = ("simulate", "-f", str(manifest))
        code, out, _ = await called(*base)
        fits = await called(*base, "--replicas", "3")
        answered = await called(*base, "-o", "json")
    assert (code, out) == (1, snapshot)
    assert (fits[0], "3 of 3 replicas fit" in fits[1]) == (0, True)
    (simulation,) = json.loads(answered[1])
    assert (simulation["placed"], simulation["next"]["state"]) == (3, "unschedulable")
    assert {zone["zone"]: zone["pods"] for zone in simulation["zones"]} == dict.fromkeys(
        ("zone-a", "zone-b", "zone-c"), 1
    )


async def test_several_manifests_end_with_their_sum(
    tmp_path: Path, called: Called, snapshot: SnapshotAssertion
) -> None:
    node = build.node("n", allocatable={"cpu": "4"})
    for name, cpu in (("small", "1"), ("large", "100")):
        written(tmp_path / f"{name}.json", build.pod(name, cpu=cpu))
    base, on = ("simulate", "-f"), ("--on", recorded(tmp_path, node))
    one = await called(*base, str(tmp_path / "small.json"), *on)
    sums = [await called(*base, str(tmp_path), *on)]
    recorded(tmp_path, node, build.pod("small", node="n"))
    sums += [await called(*base, str(tmp_path), *on)]
    assert [(code, out.splitlines()[-6:]) for code, out, _ in sums] == snapshot
    assert [out.splitlines()[-1] for _, out, _ in sums] == ["All 2 manifests: 1 of 2 replicas fit"] * 2
    assert "manifests" not in one[1]


async def test_a_daemon_set_has_a_pod_for_each_node(
    tmp_path: Path, called: Called, snapshot: SnapshotAssertion
) -> None:
    """A node without room does not stop the nodes after it; `--replicas` makes no sense."""
    nodes = [build.node(f"n{number}", allocatable={"cpu": "4"}) for number in range(6)]
    on = recorded(tmp_path, *nodes, build.pod("full", node="n1", cpu="3"))
    document = workload("DaemonSet", "agent", build.pod(cpu="3", labels={"app": "a"}))
    base = ("simulate", "-f", written(tmp_path / "agent.json", document), "--on", on)
    code, out, _ = await called(*base)
    assert (code, out) == (1, snapshot)
    assert out.startswith("DaemonSet default/agent: 5 of 6 replicas fit\n")
    message = (
        "0/6 nodes are available: 1 Insufficient cpu, 5 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )
    assert message in out
    assert await called(*base, "--replicas", "2") == (2, "", snapshot)


# -- claims of devices ---------------------------------------------------------------------------------------


API = {"apiVersion": "resource.k8s.io/v1"}
#: As users write it: without the mode, and without the count of one device.
ONE = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}
TEMPLATE = {
    **API,
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one"},
    "spec": {"spec": {"devices": ONE}},
}
CLAIM = {**API, "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": ONE}}
DEVICES = [API | device_class(), API | device_slice("a", 2), API | device_slice("b", 1)]


def infer(**entry: str) -> Json:
    """Return a Deployment of eight pods with one claim each."""
    spec = {"resourceClaims": [{"name": "gpu", **entry}], **OURS}
    return workload("Deployment", "infer", build.pod(labels={"app": "infer"}, spec=spec), 8)


@pytest.fixture
def answer(tmp_path: Path, called: Called) -> Any:
    """Return a function that gives the JSON of an answer about documents in a cluster of the nodes a and b."""

    async def ask(*documents: Json, on: tuple[Json, ...] = (), command: str = "simulate") -> Any:
        file = recorded(tmp_path, build.node("a"), build.node("b"), *on)
        manifest = written(tmp_path / "m.yaml", *documents)
        _, out, err = await called(command, "-f", manifest, "--on", file, "-o", "json")
        return json.loads(out)[0] if out else err

    return ask


async def test_each_pod_of_a_template_gets_a_claim_of_its_own(answer: Any) -> None:
    documents = *DEVICES, TEMPLATE, infer(resourceClaimTemplateName="one")
    found = await answer(*documents)
    assert (found["placed"], found["replicas"], found["notes"]) == (3, 8, [])
    assert {share["node"]: share["pods"] for share in found["nodes"]} == {"a": 2, "b": 1}
    where = {group["examples"][0]: group["where"] for group in found["next"]["groups"]}
    start = "request r: 1 of class gpu wanted, 0 of"
    assert where["a"].startswith(f"{start} 2 devices free: 2 in use by infer-")
    assert where["b"].startswith(f"{start} 1 device free: 1 in use by infer-")
    assert (await answer(*documents, command="explain"))["state"] == "schedulable"


async def test_pods_of_one_claim_share_its_devices(answer: Any) -> None:
    """They go where its device is, which the first of them has allocated."""
    found = await answer(*DEVICES, CLAIM, infer(resourceClaimName="c"))
    assert (found["placed"], len(found["nodes"])) == (8, 1)


async def test_a_template_of_the_cluster_is_known_by_a_claim_made_from_it(answer: Any) -> None:
    """Without one nothing is known of the template."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "old", "uid": "u", "controller": True}
    made = resource_claim("old-gpu-x", 2)
    made["metadata"]["ownerReferences"] = [owner]
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
    old = build.pod("old", uid="u", spec=claims)
    old["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "old-gpu-x"}]
    key = "ResourceClaimTemplate default/one is not in the manifest"
    for on, placed, why in (
        ((old, made), 1, "taken from claim default/old-gpu-x"),
        ((), 0, "no claim made from it is known"),
    ):
        found = await answer(*DEVICES, infer(resourceClaimTemplateName="one"), on=on)
        assert (found["placed"], found["notes"]) == (placed, [f"{key}: {why}"])


async def test_a_claim_that_exists_stays_as_it_is(answer: Any) -> None:
    """Applying its manifest again would not take its devices away."""
    results = [{"request": "r", "driver": "gpu.example.com", "pool": "b", "device": "gpu-0"}]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}
    allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    existing = resource_claim("c", allocation=allocation)
    found = await answer(*DEVICES, CLAIM, infer(resourceClaimName="c"), on=(existing,))
    assert [share["node"] for share in found["nodes"]] == ["b"]


@pytest.mark.parametrize("spec", [{}, {"spec": 3}, {"spec": {"devices": {"requests": 3}}}])
async def test_a_malformed_template_is_one_line(answer: Any, spec: Json) -> None:
    err = await answer({**TEMPLATE, "spec": spec}, infer(resourceClaimTemplateName="one"))
    assert "m.yaml: document 1: found a malformed ResourceClaim" in err
    assert err.count("\n") == 1


# -- groups --------------------------------------------------------------------------------------------------


GROUP, MIN_COUNT = "affinity-scheduler.io/pod-group", "affinity-scheduler.io/pod-group-min-count"


@pytest.fixture
def trained(tmp_path: Path, called: Called) -> Any:
    """Return a function that gives the answer for a job on racks with room for 9, 4 and 2 pods, beside some pods."""

    async def ask(n_pods: int, *pods: Json, pending: int = 0) -> Any:
        nodes = [
            build.node(f"{rack}-{index}", labels={"rack": rack}, allocatable={"cpu": "1"})
            for rack, n_nodes in (("a", 9), ("b", 4), ("c", 2))
            for index in range(n_nodes)
        ]
        near = build.affinity(required=[build.term("rack", build.selector("job=train"))])
        labels = {"job": "train", GROUP: "train", MIN_COUNT: str(n_pods)}
        waiting = [build.pod(f"train-{n}", cpu="1", labels=labels, affinity=near) for n in range(pending)]
        job = workload("StatefulSet", "train", build.pod(cpu="1", labels=labels, affinity=near), n_pods)
        manifest = written(tmp_path / "group.json", job)
        on = recorded(tmp_path, *nodes, *pods, *waiting)
        _, out, _ = await called("simulate", "-f", manifest, "--on", on, "-o", "json")
        return json.loads(out)[0]

    return ask


async def test_members_that_are_pending_already_are_not_counted_beside_those_of_the_file(
    trained: Any,
) -> None:
    """The file was applied before. What would help ten members is not what would help twenty."""
    before, applied = await trained(10), await trained(10, pending=10)
    assert applied["next"]["suggestions"] == before["next"]["suggestions"] != []
    assert applied["notes"] == before["notes"]


async def test_of_a_group_that_does_not_fit_the_moves_that_would_do_are_named(trained: Any) -> None:
    """The small pod in the large rack has room elsewhere, if one controller makes it anew."""
    pod = build.pod("small", node="a-0", owner=build.owned_by("ReplicaSet", "web"), cpu="1")
    notes = (await trained(9, pod))["next"]["notes"]
    assert [
        note
        for note in notes
        if note.startswith("The group would fit after: move default/small from a-0 to ")
    ]


async def test_why_a_group_of_pods_has_no_places_is_said_once(
    tmp_path: Path, called: Called, snapshot: SnapshotAssertion
) -> None:
    labels = {GROUP: "g", MIN_COUNT: "4"}
    pods = [build.pod(f"p-{index}", cpu="1", labels=labels) for index in range(4)]
    on = recorded(tmp_path, *(build.node(name, allocatable={"cpu": "1"}) for name in "ab"))
    _, out, _ = await called("simulate", "-f", written(tmp_path / "group.json", *pods), "--on", on)
    assert out == snapshot
    assert (
        out.count("0 of 1 replica fits")
        == out.count("  note: pod group default/g needs 4 places: 2 found")
        == 1
    )


# -- evictions -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def full(tmp_path: Path) -> AsyncIterator[DevCluster]:
    """Yield two nodes, each full with two pods; a budget protects those on the first."""
    async with embedded(tmp_path, nodes=2, zones=1) as cluster:
        for node, app in (("node-0001", "kept"), ("node-0002", "batch")):
            for index in range(2):
                pod = build.pod(f"{app}-{index}", node=node, cpu="2", labels={"app": app})
                cluster.store.rewrite(POD, pod)
        budget = {"metadata": {"name": "kept"}, "spec": {"selector": {"matchLabels": {"app": "kept"}}}}
        cluster.store.create(POD_DISRUPTION_BUDGET, "default", budget)
        for name, policy in (("urgent", "PreemptLowerPriority"), ("gentle", "Never")):
            cluster.store.create(PRIORITY_CLASS, "", build.priority_class(name, 1000, policy))
        yield cluster


def urgent(name: str = "urgent", n_replicas: int = 2, cpu: str = "3", **spec: str) -> Json:
    return workload("Deployment", name, build.pod(labels={"app": "urgent"}, cpu=cpu, spec=spec), n_replicas)


async def test_victims_are_named_and_the_budget_that_one_breaks(
    tmp_path: Path, called: Called, snapshot: SnapshotAssertion
) -> None:
    """The pods that no budget protects go first; nothing is written. A snapshot gives the same answer for the value."""
    command = ("simulate", "-f", written(tmp_path / "urgent.json", urgent()), "--priority-class")
    saved = str(tmp_path / "snapshot.json")
    async with full(tmp_path) as cluster:
        before = cluster.store.resource_version
        code, out, err = await called(*command, "urgent")
        assert (await called("snapshot", "-o", saved))[0] == 0
        gentle = await called(*command, "gentle")
        unknown = await called(*command, "none")
        assert cluster.store.resource_version == before
    assert (code, out, err) == (0, snapshot, "")
    evicted = [line.split() for line in out.splitlines() if "  default/" in line]
    assert [(one[2], one[3]) for one in evicted] == [("node-0002", "-")] * 2 + [("node-0001", "kept")] * 2
    assert (await called(*command, "1000", "--on", saved))[:2] == (0, out)
    assert (gentle[0], "0 of 2 replicas fit" in gentle[1], "EVICTED" in gentle[1]) == (1, True, False)
    assert unknown == (2, "", snapshot)
    for value in ("2000000000", "urgent"):
        assert await called(*command, value, "--on", saved) == (2, "", snapshot)


async def test_the_class_that_a_manifest_names_is_the_clusters_or_in_the_file(
    tmp_path: Path, called: Called, snapshot: SnapshotAssertion
) -> None:
    own = build.priority_class("own", 7)
    manifests = {
        name: written(tmp_path / f"of-{name}.json", own, urgent(priorityClassName=name))
        for name in ("urgent", "gentle", "own", "system-node-critical", "none")
    }
    saved = str(tmp_path / "snapshot.json")
    async with full(tmp_path):
        found = {name: await called("simulate", "-f", path) for name, path in manifests.items()}
        explained = {name: (await called("explain", "-f", path))[1] for name, path in manifests.items()}
        assert (await called("snapshot", "-o", saved))[0] == 0
    for name in ("urgent", "own", "system-node-critical"):
        assert (found[name][0], "EVICTED" in found[name][1]) == (0, True), name
        assert "it evicts default/batch-" in explained[name], name
    assert found["gentle"][0] == 1
    assert "not eligible due to preemptionPolicy=Never" in explained["gentle"]
    assert found["none"] == (2, "", snapshot)
    for command in ("simulate", "explain"):
        code, out, err = await called(command, "-f", manifests["urgent"], "--on", saved)
        assert (code, err) == (1, "read Deployment, PriorityClass\n")
        assert "a snapshot has no PriorityClasses: priority 0 is assumed, not urgent's" in out
    assert (await called("simulate", "-f", manifests["own"], "--on", saved))[0] == 0
    beta = {**own, "apiVersion": "scheduling.k8s.io/v1beta1"}
    beta_file = written(tmp_path / "beta.json", beta, urgent(priorityClassName="own"))
    code, out, err = await called("simulate", "-f", beta_file, "--on", saved)
    left_out = "left out PriorityClass of scheduling.k8s.io/v1beta1 instead of scheduling.k8s.io/v1"
    assert (code, left_out in err, "priority 0 is assumed, not own's" in out) == (1, True, True)


def test_an_answer_that_is_no_class_is_an_error_of_one_line() -> None:
    """As of a proxy that wants a login."""
    with pytest.raises(SettingsError, match=r"^PriorityClass urgent: found a malformed answer: .+$"):
        priority_class_named("urgent", "--priority-class", lambda _: b"<html>")


async def test_replicas_that_a_later_manifest_evicts_are_not_placed(
    tmp_path: Path, called: Called, snapshot: SnapshotAssertion
) -> None:
    """Three small replicas fill two nodes of 4 CPUs; one of 3 CPUs takes the place of two, or of the single one."""
    last = urgent(n_replicas=1, priorityClassName="system-cluster-critical")
    path = written(tmp_path / "both.json", urgent("small", 3, "2"), last)
    nodes = [build.node(name, allocatable={"cpu": "4"}) for name in "ab"]
    code, out, _ = await called("simulate", "-f", path, "--on", recorded(tmp_path, *nodes))
    assert (code, out) == (1, snapshot)
    assert "1 replica would be evicted again for a manifest of higher priority" in out


#: The waiting pod, the next one, and what keeps that out.
BESIDE = {
    "room": ("2", "", "1", "", "Insufficient cpu"),
    "attach limit": ("100m", "cd", "100m", "e", "node(s) exceed max volume count"),
}


@pytest.mark.parametrize(("cpu", "claims", "next_cpu", "next_claims", "reason"), BESIDE.values(), ids=BESIDE)
async def test_the_room_of_a_pod_that_waits_for_its_bind_is_not_offered(
    cpu: str, claims: str, next_cpu: str, next_claims: str, reason: str, tmp_path: Path, called: Called
) -> None:
    """Commands know of it what its object says."""

    def asking(name: str, cpu: str, claims: str, **status: str) -> Json:
        made = using(*claims, name=name)
        made["spec"] |= {**OURS, "containers": [build.container(requests={"cpu": cpu})]}
        return {**made, "apiVersion": "v1", "kind": "Pod", "status": status}

    on = recorded(
        tmp_path,
        build.node("n", allocatable={"cpu": "2"}),
        asking("zz-db", cpu, claims, nominatedNodeName="n"),
        *(claim(name, "made", node="n" if name in "cd" else None) for name in "cde"),
        storage_class("made"),
        csi_node("n", d=2),
    )
    manifest = written(tmp_path / "pod.json", asking("aa-web", next_cpu, next_claims))
    for command in ("explain", "simulate"):
        code, out, _ = await called(command, "-f", manifest, "--on", on)
        assert code == 1
        assert f"0/1 nodes are available: 1 {reason}." in out
        assert "room is kept for nominated pods: default/zz-db (priority 0) on node n" in out


# -- drained nodes -------------------------------------------------------------------------------------------


def owned(name: str, node: str, *, owner: str = "ReplicaSet") -> Json:
    controller = {**build.owned_by(owner, "web"), "uid": "u"} if owner else None
    return build.pod(name, node=node, labels={"app": "web"}, owner=controller, phase="Running")


@asynccontextmanager
async def guarded(tmp_path: Path) -> AsyncIterator[DevCluster]:
    """Yield six nodes in three zones; a budget lets two web pods on node-0001 go one at a time."""
    async with embedded(tmp_path, nodes=6, zones=3) as cluster:
        for pod in (
            owned("web-0", "node-0001"),
            owned("web-1", "node-0001"),
            owned("agent", "node-0001", owner="DaemonSet"),
            owned("bare", "node-0004", owner=""),
        ):
            cluster.store.rewrite(POD, pod)
        budget = build.disruption_budget("web", build.selector("app=web"), 1)
        cluster.store.rewrite(POD_DISRUPTION_BUDGET, budget)
        yield cluster


async def test_a_drain_says_where_pods_go_and_when(
    tmp_path: Path, called: Called, snapshot: SnapshotAssertion
) -> None:
    """A live cluster and its snapshot give the same answer; nothing is written."""
    saved = str(tmp_path / "snapshot.json")
    async with guarded(tmp_path) as cluster:
        before = cluster.store.resource_version
        code, out, err = await called("simulate", "--drain", "node-0001")
        assert (await called("snapshot", "-o", saved))[0] == 0
        assert cluster.store.resource_version == before
    assert (code, out, err) == (0, snapshot, "")
    base = ("simulate", "--on", saved)
    assert await called(*base, "--drain", "node-0001") == (0, out, "")
    # Names with commas, with spaces, both, and after flags of their own are the same drain; YAML says what JSON does.
    names = (
        ("node-0001,node-0002", "node-0004"),
        ("node-0001", "node-0002", "node-0004"),
        ("node-0001", "--drain", "node-0002,node-0004"),
    )
    answers = [await called(*base, "--drain", *each, "-o", "json") for each in names]
    _, as_yaml, _ = await called(*base, "--drain", *names[0], "-o", "yaml")
    assert answers[0] == answers[1] == answers[2]
    document = json.loads(answers[0][1])
    assert document["nodes"] == ["node-0001", "node-0002", "node-0004"]
    assert yaml.safe_load(as_yaml) == document
    assert as_yaml.startswith(f"{next(iter(document))}: ")
    code, out, _ = await called(*base, "-o", "json", "--without-zone", "zone-a")
    answer = json.loads(out)
    assert code == 1, "the pod without a controller is lost"
    where = answer["kind"], answer["zone"], answer["nodes"]
    assert where == ("Drain", "zone-a", ["node-0001", "node-0004"])
    assert (answer["pods"], answer["placed"], answer["rounds"]) == (2, 2, 1), "they leave at once"
    staying = {each["why"]: each["pods"]["total"] for each in answer["staying"]}
    assert staying == {"DaemonSet": 1, "no controller": 1}


@pytest.mark.parametrize(
    "flags",
    [
        ("--without-zone", "zone-z"),
        ("--without-zone", ""),
        ("--drain", "b"),
        ("--drain", ""),
        ("--drain", ","),
        ("--drain", "a", "--replicas", "1"),
        ("-f", "x", "--replicas", "-1"),
        ("-f", "pod", "--priority-class", ""),
        ("-f", "."),
    ],
    ids=" ".join,
)
async def test_what_makes_no_sense_is_one_line(
    flags: tuple[str, ...],
    called: Called,
    snapshot: SnapshotAssertion,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    on = recorded(tmp_path, build.node("a", labels={build.ZONE: "zone-a"}))
    written(tmp_path / "pod", build.pod("p"))
    assert await refused(called, "simulate", *flags, "--on", on) == snapshot


async def test_pods_of_a_workload_without_a_place_are_one_line(
    tmp_path: Path, called: Called, snapshot: SnapshotAssertion
) -> None:
    """A wide table has them one by one; a workload can be given to `explain` as it is printed."""
    nodes = [build.node(f"n-{zone}", labels={build.ZONE: zone}) for zone in "abc"]
    pods = [owned(f"web-{number}", "n-a") for number in range(4)]
    for pod in pods:
        pod["spec"]["nodeSelector"] = {build.ZONE: "a"}
    base = ("simulate", "--without-zone", "a", "--on", recorded(tmp_path, *nodes, *pods))
    code, out, _ = await called(*base)
    assert (code, out) == (1, snapshot)
    _, wide, _ = await called(*base, "-o", "wide")
    assert sum("default/web-" in line and "n-a" in line for line in wide.splitlines()) == 4
    _, answered, _ = await called(*base, "-o", "json")
    assert {each["workload"] for each in json.loads(answered)["leaving"]} == {"rs/web"}
    assert (await called("explain", "default/rs/web", *base[-2:]))[0] == 0
