"""`explain` of all that is pending, of workloads, and of pods that no scheduler serves."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import LEASE, NAMESPACE, POD
from tests.cli.conftest import Called, embedded, hold_lease
from tests.support import accounts, build
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
async def served(tmp_path: Path, *pods: build.Json, runs: bool = True) -> AsyncIterator[DevCluster]:
    """Yield three nodes, a scheduler if it `runs`, and the pods."""
    async with embedded(tmp_path, nodes=3, zones=3) as cluster:
        if runs:
            hold_lease(cluster)
        for pod in pods:
            cluster.store.create(POD, "default", pod)
        yield cluster


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
    snapshot = str(tmp_path / "snapshot.json")
    async with served(tmp_path, bare("web", **OURS), runs=False) as cluster:
        if holder is not None:
            hold_lease(cluster, holder=holder, age_s=age_s)
        code, out, _ = await called("explain", "web")
        table = await called("explain")
        assert (await called("snapshot", "-o", snapshot))[0] == 0
    fits = "fits on 3 of 3 nodes; "
    if not why:
        assert (code, out.splitlines()[0].split(" (")[0]) == (0, "Pod default/web can be scheduled")
    else:
        headline, first, second, *_ = out.splitlines()
        assert (code, headline) == (1, "Pod default/web has no scheduler (profile affinity-scheduler)")
        assert first.startswith("  affinity-scheduler ")
        assert first.endswith(why)
        assert second.startswith(f"  with a scheduler: {fits}")
        row = table[1].splitlines()[3]
        assert row.endswith("run  start affinity-scheduler")
    assert await called("explain", "web", "--on", snapshot) == (code, out, "")
    (saved,) = read_objects(snapshot)["Leases"]
    assert [each["metadata"]["name"] for each in saved["found"]] == ["affinity-scheduler"] * (
        holder is not None
    )


async def test_a_misspelt_scheduler_is_named_with_the_one_that_was_meant(
    tmp_path: Path, called: Called
) -> None:
    async with served(tmp_path, bare("typo", schedulerName="afinity-scheduler")):
        code, out, _ = await called("explain", "typo")
        table = await called("explain")
    assert code == 1
    assert out.splitlines()[:2] == [
        "Pod default/typo has no scheduler",
        "  no known scheduler has the name afinity-scheduler; did you mean affinity-scheduler?",
    ]
    assert table[0] == 1
    assert "no known scheduler has the name afinity-scheduler  did you mean affinity-scheduler?" in table[1]


async def test_another_scheduler_that_has_placed_pods_counts_as_one(tmp_path: Path, called: Called) -> None:
    theirs = {"schedulerName": "volcano"}
    placed = bare("placed", nodeName="node-0001", **theirs), bare("old", nodeName="node-0001")
    pods = *placed, bare("waits", **theirs), bare("plain")
    async with served(tmp_path, *pods) as cluster:
        code, out, _ = await called("explain", "waits")
        unknown = await called("explain", "plain")
        hold_lease(cluster, name="kube-scheduler", age_s=600)
        stopped = await called("explain", "plain")
    assert code == 0
    assert "note: whether volcano runs now cannot be seen" in out
    assert unknown[0] == 0
    assert "note: whether default-scheduler runs is not known: there is no Lease kube-scheduler" in unknown[1]
    assert stopped[0] == 1
    assert (
        "default-scheduler does not run: scheduler-0 last renewed Lease kube-system/kube-scheduler"
        in stopped[1]
    )


@pytest.mark.parametrize(
    ("name", "note"),
    [
        (
            "afinity-scheduler",
            "no known scheduler has the name afinity-scheduler; did you mean affinity-scheduler?",
        ),
        ("affinity-scheduler", ""),
    ],
)
async def test_simulate_says_that_no_scheduler_has_the_name(
    name: str, note: str, tmp_path: Path, called: Called
) -> None:
    (tmp_path / "web.json").write_text(json.dumps(bare("web", schedulerName=name)))
    async with served(tmp_path):
        file = ("-f", str(tmp_path / "web.json"))
        code, out, _ = await called("simulate", *file)
        explained = await called("explain", *file)
    assert code == 0
    assert (f"note: {note}\n" in out) == bool(note)
    assert "no known scheduler" not in out or note
    assert note in explained[1]


async def test_what_no_node_has_is_in_the_table(tmp_path: Path, called: Called) -> None:
    """A label that is nearly one of a node is a slip of the pen, which is the change that would help."""
    big = [build.container(requests={"cpu": "6400"})]
    pods = (
        bare("typo", **OURS, nodeSelector={"topology.kubernetes.io/zon": "zone-a"}),
        bare("value", **OURS, nodeSelector={"topology.kubernetes.io/zone": "zone-z"}),
        bare("big", **OURS, containers=big),
    )
    async with served(tmp_path, *pods):
        table = (await called("explain"))[1]
        single = (await called("explain", "typo"))[1]
        other = (await called("explain", "big"))[1]
    rows = {line.split()[0]: line for line in table.splitlines() if line.startswith("  pod/")}
    asked = "no node has the label topology.kubernetes.io/zon; did you mean topology.kubernetes.io/zone?"
    assert asked in rows["pod/typo"]
    assert rows["pod/typo"].endswith("  -")
    assert "no node has it, but zone-a, zone-b, zone-c" in rows["pod/value"]
    assert "needs 6400 cpu, the largest node has " in rows["pod/big"]
    assert rows["pod/big"].endswith("  no small change")
    assert asked in single
    assert "No small change would help." not in single
    assert "No small change would help." in other


async def test_a_lease_in_another_namespace_counts(tmp_path: Path, called: Called) -> None:
    """An installation may have its own; the command need not be given its configuration."""
    async with served(tmp_path, bare("web", **OURS), runs=False) as cluster:
        hold_lease(cluster)
        lease = cluster.store.revision(LEASE, "kube-system", "affinity-scheduler").obj
        cluster.store.create(NAMESPACE, "", build.namespace("own"))
        cluster.store.delete(LEASE, "kube-system", "affinity-scheduler")
        cluster.store.create(
            LEASE, "own", {"metadata": {"name": "affinity-scheduler"}, "spec": lease["spec"]}
        )
        code, out, _ = await called("explain", "web")
    assert (code, "can be scheduled" in out) == (0, True)


async def test_a_user_who_may_not_list_leases_is_told(tmp_path: Path, called: Called) -> None:
    async with served(tmp_path, bare("web", **OURS)) as cluster:
        text = accounts.EXPLAIN_READER.read_text().replace(
            "[affinity-scheduler, kube-scheduler]", "[kube-scheduler]"
        )
        (tmp_path / "role.yaml").write_text(text)
        kubeconfig = accounts.person_kubeconfig(cluster, tmp_path, tmp_path / "role.yaml")
        code, out, err = await called("explain", "web", "--kubeconfig", kubeconfig)
    assert (code, "Lease" in err, "403" in err) == (0, False, False)
    assert "note: whether affinity-scheduler runs is not known: 403 Forbidden" in out


async def test_everything_pending_is_a_table_of_workloads(tmp_path: Path, called: Called) -> None:
    pods = [
        *(member(f"shop-54d9-{letter}", cpu="4") for letter in "abc"),
        *(member(f"calm-{n}", "calm", node=f"node-000{n}", cpu="1") for n in (1, 2, 3)),
    ]
    gated = {**OURS, "schedulingGates": [{"name": "example.com/gate"}]}
    placed = member("shop-54d9-d", node="node-0001")
    async with served(tmp_path, *pods, placed, bare("gated", **gated)) as cluster:
        cluster.store.create(NAMESPACE, "", build.namespace("team"))
        cluster.store.create(POD, "team", {**bare("alone", **OURS), "metadata": {"name": "alone"}})
        everywhere = await called("explain", "-A")
        here = await called("explain", "-n", "default")
        answered = await called("explain", "-A", "-o", "json")
        unknown = await called("explain", "-n", "defalt")
        empty = await called("explain", "-n", "kube-system")
    assert (everywhere[0], here[0]) == (1, 1)
    lines = everywhere[1].splitlines()
    assert lines[0] == "Pending in all namespaces: 5 pods of 3 workloads"
    assert lines[2].split() == [
        "NAMESPACE",
        "WORKLOAD",
        "PODS",
        "SINCE",
        "REASON",
        "WHAT",
        "WOULD",
        "HELP",
        "MOST",
    ]
    rows = {line.split()[1]: line.split() for line in lines[3:6]}
    assert rows["deploy/shop"][:3] == ["default", "deploy/shop", "3"]
    assert " ".join(rows["deploy/shop"][4:6]) == "Insufficient cpu"
    assert " ".join(rows["pod/gated"][4:]) == "scheduling gates: example.com/gate -"
    assert " ".join(rows["pod/alone"][4:]) == "it fits; affinity-scheduler has not placed it yet -"
    assert "pod/alone" not in here[1]
    answer = json.loads(answered[1])
    assert (answer["kind"], answer["namespace"], answer["pods"]) == ("PendingWorkloads", "", 5)
    shop = next(each for each in answer["workloads"] if each["name"] == "shop")
    assert (shop["workloadKind"], shop["pods"], shop["pod"], shop["state"]) == (
        "Deployment",
        3,
        "shop-54d9-a",
        "unschedulable",
    )
    assert "calm-" in shop["change"][0]
    assert (unknown[0], unknown[2].count("\n"), "defalt" in unknown[2]) == (2, 1, True)
    assert empty == (0, "Pending in namespace kube-system: nothing\n", "")


async def test_a_workload_is_explained_by_one_of_its_pods(tmp_path: Path, called: Called) -> None:
    """As kubectl names it, or as the output prints it; several at once."""
    pods = [member(f"shop-54d9-{letter}", cpu="100") for letter in "abc"]
    async with served(tmp_path, *pods, member("calm-1", "calm", node="node-0001")):
        base = ("explain",)
        code, out, _ = await called(*base, "deploy/shop")
        for written in ("deployment/shop", "deployments.apps/shop", "default/deploy/shop", "rs/shop-54d9"):
            assert (await called(*base, written))[0] == 1, written
        by_key = await called(*base, "-n", "kube-system", "default/shop-54d9-b")
        calm = await called(*base, "deploy/calm")
        several = await called(*base, "calm-1", "deploy/shop", "-o", "json")
        missing = await called(*base, "sts/shop")
        misspelt = await called(*base, "-n", "brk", "deploymnt/grp")
        other_kind = await called(*base, "svc/web")
        nothing = await called(*base, "-n", "brk", "zzz/web")
        in_namespace = await called(*base, "default/web")
    assert code == 1
    assert out.startswith("Pod default/shop-54d9-a cannot be scheduled")
    assert "note: the same holds for 2 more pods of Deployment shop: shop-54d9-b, shop-54d9-c\n" in out
    assert (by_key[0], by_key[1].split(" cannot")[0]) == (1, "Pod default/shop-54d9-b")
    assert calm[0] == 0
    assert "note: no pod of Deployment calm is pending; it has 1 pod\n" in calm[1]
    assert [each["pod"] for each in json.loads(several[1])] == ["calm-1", "shop-54d9-a"]
    assert several[0] == 1
    assert missing == (2, "", "there is no pod of StatefulSet shop in namespace default\n")
    assert misspelt == (2, "", "deploymnt: no kind of workload; did you mean deploy/grp?\n")
    expected = "POD, NAMESPACE/POD, or a workload such as deploy/NAME; use -f FILE to explain a manifest"
    assert other_kind == (2, "", f"svc: no kind of workload; expected {expected}\n")
    assert nothing == (2, "", "there is no pod web in namespace zzz, and zzz is no kind of workload\n")
    assert in_namespace == (2, "", "there is no pod web in namespace default\n")
