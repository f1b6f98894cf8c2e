"""`explain` of pods, of workloads, and of all that is pending; and of pods that no scheduler serves."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from syrupy.assertion import SnapshotAssertion

from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import LEASE, NAMESPACE, POD
from tests.cli.conftest import Called, bind_pod, embedded, hold_lease, recorded, refused, served, written
from tests.support import accounts, build
from tests.support.messages import refusals
from tests.support.snapshots import read_objects

OURS: Mapping[str, str] = {"schedulerName": "affinity-scheduler"}


def member(name: str, owner: str = "shop", revision: str = "54d9", **more: Any) -> build.Json:
    """Return a pod of a Deployment, as its ReplicaSet makes it."""
    labels = {"app": owner, "pod-template-hash": revision}
    controller = {**build.owned_by("ReplicaSet", f"{owner}-{revision}"), "uid": "u"}
    return build.pod(name, labels=labels, owner=controller, **{"spec": OURS, **more})


def bare(name: str, **spec: object) -> build.Json:
    return build.pod(name, spec=spec)


@asynccontextmanager
async def three_nodes(tmp_path: Path, *pods: build.Json, runs: bool = True) -> AsyncIterator[DevCluster]:
    """Yield three nodes, a scheduler if it `runs`, and the pods."""
    async with embedded(tmp_path, nodes=3, zones=3) as cluster:
        if runs:
            hold_lease(cluster)
        for pod in pods:
            cluster.store.create(POD, "default", pod)
        yield cluster


def three_recorded(folder: Path, *pods: build.Json) -> tuple[str, str]:
    """Return the flag that names a snapshot of three nodes and the pods."""
    nodes = [build.node(f"n-{zone}", labels={build.ZONE: f"zone-{zone}"}) for zone in "abc"]
    return "--on", recorded(folder, build.namespace("default"), *nodes, *pods)


#: Zone -> its pod.
ZONES = {"zone-a": "web-0", "zone-b": "web-1", "zone-c": "web-2"}


# -- a pod ---------------------------------------------------------------------------------------------------


async def test_a_pending_pod_is_explained_with_the_pod_that_blocks_each_zone(
    tmp_path: Path, called: Called, snapshot: SnapshotAssertion
) -> None:
    """Alike as table, wide and JSON, by its name or pod/NAME, on the cluster and on a snapshot; nothing is written."""
    saved = str(tmp_path / "snapshot.json")
    async with served(tmp_path) as cluster:
        before = cluster.store.resource_version
        code, out, err = await called("explain", "web-3")
        assert cluster.store.resource_version == before
        live = await called("explain", "pod/web-3", "-o", "json")
        assert (await called("snapshot", "-o", saved))[0] == 0
    assert (code, out, err) == (1, snapshot, "")
    lines = out.splitlines()
    assert refusals(lines[1]) == "  0/6 nodes are available: 6 node(s) didn't match pod anti-affinity rules."
    assert all(line == line.rstrip() for line in lines)
    kept = await called("explain", "web-3", "-o", "json", "--on", saved)
    assert (kept[0], json.loads(kept[1])) == (1, json.loads(live[1]))
    for rule in json.loads(live[1])["rules"]:
        assert {row["domain"]: row["pods"] for row in rule["domains"]} == dict.fromkeys(ZONES, 1)
        assert {pod["domain"]: pod["name"] for pod in rule["pods"]["shown"]} == ZONES
    code, wide, _ = await called("explain", "web-3", "-o", "wide", "--on", saved)
    assert code == 1
    assert all(zone in wide for zone in ZONES)


async def test_a_bound_pod_shows_its_scores_and_the_record_of_its_decision(
    tmp_path: Path, called: Called, snapshot: SnapshotAssertion
) -> None:
    """The scheduler writes the record into an annotation of the binding. One of another bind is not shown."""
    record = {
        "v": 1, "evaluated": 6, "feasible": 4, "rejected": {"node(s) didn't match pod anti-affinity rules": 2},
        "top": [{"node": "node-0004", "total": 398, "scores": {"TaintToleration": 300, "NodeResourcesFit": 98}}],
    }  # fmt: skip
    async with served(tmp_path) as cluster:
        for name, node in (("other", "node-0004"), ("forged", "node-0001")):
            created = cluster.store.create(POD, "default", bare(name, **OURS))
            await bind_pod(cluster, created, node, json.dumps(record))
        code, out, _ = await called("explain", "other")
        _, forged, _ = await called("explain", "forged")
    assert (code, out) == (0, snapshot)
    assert "runs on node-0004, one of 6 nodes where it fits now" in out
    assert (out.count("total"), "WHEN IT WAS BOUND" in out) == (2, True)
    assert ("WHEN IT WAS BOUND" in forged, "not written at the bind of this pod" in forged) == (False, True)


async def test_a_missing_pod_is_one_line_with_namespace_and_name(tmp_path: Path, called: Called) -> None:
    """The namespace is the context's unless -n names another; --context selects another context."""
    async with embedded(tmp_path, nodes=1):
        found = [await called("explain", "nobody")]
        document = yaml.safe_load((tmp_path / "kubeconfig").read_text())
        (entry,) = document["contexts"]
        document["contexts"].append({"name": "other", "context": {**entry["context"], "namespace": "team"}})
        document["current-context"] = "nowhere"
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(document))
        found += [await called("explain", "nobody", "--context", "other")]
        found += [await called("explain", "nobody", "--context", "other", "-n", "mine")]
        wrong = await called("explain", "nobody", "--context", "third")
        assert (await called("snapshot", "-o", str(tmp_path / "s.json"), "--context", "other"))[0] == 0
    assert found == [
        (2, "", f"there is no pod nobody in namespace {namespace}\n")
        for namespace in ("default", "team", "mine")
    ]
    assert wrong[:2] == (2, "")
    assert wrong[2].startswith("--context: found 'third', expected one of ")


async def test_a_pod_that_has_failed_is_there(tmp_path: Path, called: Called) -> None:
    """In a snapshot, and as one of its workload; pods that have succeeded are in none."""
    failed = build.pod("web-0", owner=build.owned_by("StatefulSet", "web"), node="n", phase="Failed")
    on = ("--on", recorded(tmp_path, build.node("n"), failed))
    for name in ("web-0", "sts/web"):
        code, out, _ = await called("explain", name, *on)
        assert (code, out.splitlines()[0].split(" (")[0]) == (0, "Pod default/web-0 is finished")


async def test_a_form_that_there_is_not_is_one_line(called: Called) -> None:
    code, out, err = await called("explain", "p", "-o", "xml")
    assert (code, out, err.count("\n"), "invalid choice: 'xml'" in err) == (2, "", 1, True)


async def test_a_server_that_refuses_is_one_line(tmp_path: Path, called: Called) -> None:
    async with embedded(tmp_path, token="right"):
        text = (tmp_path / "kubeconfig").read_text()
        (tmp_path / "kubeconfig").write_text(text.replace("right", "wrong"))
        code, out, err = await called("explain", "p")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("API server: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("p", "-f", "x"),
        ("-A", "p"),
        ("a/b/c",),
        ("deploy/",),
        ("",),
        ("p", "--on", "absent.json"),
        ("-A", "--on", ""),
        ("-f", "absent.yaml"),
        ("-f", ""),
        ("-f", "x" * 300),
        ("p", "--plugins", ""),
        ("p", "--kubeconfiq=x", "--qqqqqq"),
        ("p", "--kubeconfig", "absent"),
        ("p", "--config", "absent.yaml"),
    ],
    ids=lambda arguments: " ".join(arguments)[:40],
)
async def test_bad_arguments_are_one_line(
    arguments: tuple[str, ...],
    called: Called,
    snapshot: SnapshotAssertion,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert await refused(called, "explain", *arguments) == snapshot


PLUGIN = f"#!{sys.executable}\nfrom scheduler.cli.main import main\nraise SystemExit(main())\n"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
async def test_kubectl_affinity_explain_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = tmp_path / "kubectl-affinity"
    plugin.write_text(PLUGIN)
    plugin.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    async with embedded(tmp_path, nodes=3) as cluster:
        cluster.store.create(POD, "default", build.pod("p", node_selector={"disk": "ssd"}))
        process = await asyncio.create_subprocess_exec(
            *("kubectl", "affinity", "explain", "p"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(30):
            out, err = await process.communicate()
    assert (process.returncode, err) == (1, b"")
    assert b"0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector." in out


# -- whether a scheduler serves it ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("holder", "age_s", "why"),
    [
        ("scheduler-0", 150, "scheduler-0 last renewed Lease kube-system/affinity-scheduler 2m ago"),
        ("", 0, "Lease kube-system/affinity-scheduler has been released"),
        (None, 0, "there is no Lease affinity-scheduler (one without leader election has none)"),
        ("scheduler-0", 3, ""),
    ],
)
async def test_a_pod_whose_scheduler_is_stopped_has_no_scheduler(
    holder: str | None, age_s: float, why: str, tmp_path: Path, called: Called
) -> None:
    """It is said first, of a live cluster and of its snapshot, and the exit code is 1."""
    saved = str(tmp_path / "snapshot.json")
    async with three_nodes(tmp_path, bare("web", **OURS), runs=False) as cluster:
        if holder is not None:
            hold_lease(cluster, holder=holder, age_s=age_s)
        code, out, _ = await called("explain", "web")
        table = await called("explain")
        assert (await called("snapshot", "-o", saved))[0] == 0
    if not why:
        assert (code, out.splitlines()[0].split(" (")[0]) == (0, "Pod default/web can be scheduled")
    else:
        headline, first, second, *_ = out.splitlines()
        assert (code, headline) == (1, "Pod default/web has no scheduler (profile affinity-scheduler)")
        assert first.startswith("  affinity-scheduler ")
        assert first.endswith(why)
        assert second.startswith("  with a scheduler: fits on 3 of 3 nodes; ")
        assert table[1].splitlines()[3].endswith("run  start affinity-scheduler")
    assert await called("explain", "web", "--on", saved) == (code, out, "")
    (leases,) = read_objects(saved)["Leases"]
    named = [each["metadata"]["name"] for each in leases["found"]]
    assert named == ["affinity-scheduler"] * (holder is not None)


async def test_a_lease_in_another_namespace_counts(tmp_path: Path, called: Called) -> None:
    """An installation may have its own; the command need not be given its configuration."""
    async with three_nodes(tmp_path, bare("web", **OURS)) as cluster:
        lease = cluster.store.revision(LEASE, "kube-system", "affinity-scheduler").obj
        cluster.store.create(NAMESPACE, "", build.namespace("own"))
        cluster.store.delete(LEASE, "kube-system", "affinity-scheduler")
        own = {"metadata": {"name": "affinity-scheduler"}, "spec": lease["spec"]}
        cluster.store.create(LEASE, "own", own)
        code, out, _ = await called("explain", "web")
    assert (code, "can be scheduled" in out) == (0, True)


async def test_a_user_who_may_not_list_leases_is_told(tmp_path: Path, called: Called) -> None:
    async with three_nodes(tmp_path, bare("web", **OURS)) as cluster:
        text = accounts.EXPLAIN_READER.read_text().replace(
            "[affinity-scheduler, kube-scheduler]", "[kube-scheduler]"
        )
        (tmp_path / "role.yaml").write_text(text)
        kubeconfig = accounts.person_kubeconfig(cluster, tmp_path, tmp_path / "role.yaml")
        code, out, err = await called("explain", "web", "--kubeconfig", kubeconfig)
    assert (code, "Lease" in err, "403" in err) == (0, False, False)
    assert "note: whether affinity-scheduler runs is not known: 403 Forbidden" in out


async def test_a_misspelt_scheduler_is_named_with_the_one_that_was_meant(
    tmp_path: Path, called: Called, snapshot: SnapshotAssertion
) -> None:
    """Also of a manifest, and by `simulate`, which says nothing of a name that is right."""
    name, note = "afinity-scheduler", "no known scheduler has the name afinity-scheduler"
    on = three_recorded(tmp_path, bare("typo", schedulerName=name))
    for pod in (["typo"], []):
        code, out, _ = await called("explain", *pod, *on)
        assert (code, note in out, out) == (1, True, snapshot)
    file = tmp_path / "web.json"
    for spec, is_noted in (({"schedulerName": name}, True), (OURS, False)):
        written(file, bare("web", **spec))
        for command in ("simulate", "explain"):
            code, out, _ = await called(command, "-f", str(file), *on)
            assert (note in out) == is_noted
            assert (command, code) in (("explain", int(is_noted)), ("simulate", 0))


async def test_another_scheduler_that_has_placed_pods_counts_as_one(tmp_path: Path, called: Called) -> None:
    """As kube-scheduler does without a Lease; a pod of no profile of ours is explained with a note."""
    theirs = {"schedulerName": "volcano"}
    placed = bare("placed", nodeName="node-0001", **theirs), bare("old", nodeName="node-0001")
    async with three_nodes(tmp_path, *placed, bare("waits", **theirs), bare("plain")) as cluster:
        found = [await called("explain", "waits"), await called("explain", "plain")]
        hold_lease(cluster, name="kube-scheduler", age_s=600)
        found += [await called("explain", "plain")]
    assert [code for code, *_ in found] == [0, 0, 1]
    for (_, out, _), why in zip(
        found,
        (
            "note: whether volcano runs now cannot be seen",
            "note: whether default-scheduler runs is not known: there is no Lease kube-scheduler",
            "default-scheduler does not run: scheduler-0 last renewed Lease kube-system/kube-scheduler",
        ),
        strict=True,
    ):
        assert why in out
    assert "its schedulerName is default-scheduler, which is no profile of this scheduler" in found[1][1]


# -- all that is pending -------------------------------------------------------------------------------------


async def test_what_no_node_has_is_in_the_table(
    tmp_path: Path, called: Called, snapshot: SnapshotAssertion
) -> None:
    """A label that is nearly one of a node is a slip of the pen, which is the change that would help."""
    pods = (
        bare("typo", **OURS, nodeSelector={"topology.kubernetes.io/zon": "zone-a"}),
        bare("value", **OURS, nodeSelector={build.ZONE: "zone-z"}),
        bare("big", **OURS, containers=[build.container(requests={"cpu": "6400"})]),
    )
    on = three_recorded(tmp_path, *pods)
    code, table, _ = await called("explain", *on)
    assert (code, table) == (1, snapshot)
    for pod, has_none in (("typo", False), ("big", True)):
        assert ("No small change would help." in (await called("explain", pod, *on))[1]) is has_none


async def test_everything_pending_is_a_table_of_workloads(
    tmp_path: Path, called: Called, snapshot: SnapshotAssertion
) -> None:
    pods = [
        # The oldest comes first.
        bare("gated", **OURS, schedulingGates=[{"name": "example.com/gate"}]),
        *(member(f"shop-54d9-{letter}", cpu="4") for letter in "abc"),
        *(member(f"calm-{n}", "calm", node=f"node-000{n}", cpu="1") for n in (1, 2, 3)),
        member("shop-54d9-d", node="node-0001"),
    ]
    async with three_nodes(tmp_path, *pods) as cluster:
        cluster.store.create(NAMESPACE, "", build.namespace("team"))
        cluster.store.create(POD, "team", {**bare("alone", **OURS), "metadata": {"name": "alone"}})
        everywhere = await called("explain", "-A")
        here = await called("explain", "-n", "default")
        answered = await called("explain", "-A", "-o", "json")
        unknown = await called("explain", "-n", "defalt")
        empty = await called("explain", "-n", "kube-system")
    assert everywhere[0] == 1
    assert re.sub(r"\d+[smh]\w* +", "AGE  ", everywhere[1]) == snapshot
    assert (here[0], "pod/alone" in here[1]) == (1, False)
    answer = json.loads(answered[1])
    assert (answer["kind"], answer["namespace"], answer["pods"]) == ("PendingWorkloads", "", 5)
    (shop,) = (each for each in answer["workloads"] if each["name"] == "shop")
    facts = [shop[name] for name in ("workloadKind", "pods", "pod", "state")]
    assert facts == ["Deployment", 3, "shop-54d9-a", "unschedulable"]
    assert "calm-" in shop["change"][0]
    assert (unknown[0], unknown[2].count("\n"), "defalt" in unknown[2]) == (2, 1, True)
    assert empty == (0, "Pending in namespace kube-system: nothing\n", "")


async def test_a_workload_is_explained_by_one_of_its_pods(
    tmp_path: Path, called: Called, snapshot: SnapshotAssertion
) -> None:
    """As kubectl names it, or as the output prints it; several at once."""
    pods = [member(f"shop-54d9-{letter}", cpu="100") for letter in "abc"]
    on = three_recorded(tmp_path, *pods, member("calm-1", "calm", node="n-a"))
    for spelled in (
        *("rs/shop-54d9", "deployment/shop", "deployments.apps/shop", "default/deploy/shop", "deploy/shop"),
    ):
        code, out, _ = await called("explain", spelled, *on)
        assert (code, out.split(" cannot")[0]) == (1, "Pod default/shop-54d9-a"), spelled
    assert "the same holds for 2 more pods of Deployment shop: shop-54d9-b, shop-54d9-c\n" in out
    code, out, _ = await called("explain", "-n", "kube-system", "default/shop-54d9-b", *on)
    assert (code, out.split(" cannot")[0]) == (1, "Pod default/shop-54d9-b")
    code, out, _ = await called("explain", "deploy/calm", *on)
    assert (code, "note: no pod of Deployment calm is pending; it has 1 pod\n" in out) == (0, True)
    code, out, _ = await called("explain", "calm-1", "deploy/shop", "-o", "json", *on)
    assert (code, [each["pod"] for each in json.loads(out)]) == (1, ["calm-1", "shop-54d9-a"])
    for missing in ("sts/shop", "deploymnt/grp", "svc/web", "-n brk zzz/web", "default/web"):
        assert await called("explain", *missing.split(), *on) == (2, "", snapshot)
