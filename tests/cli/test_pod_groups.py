"""PodGroups in `explain`, `simulate` and `snapshot`: from a cluster and from a file, with the same answers."""

from __future__ import annotations

import json
from pathlib import Path

from scheduler.sandbox.devcluster.kinds import CUSTOM_RESOURCE_DEFINITION, NODE, POD
from tests.cli.conftest import Called, embedded, recorded, written
from tests.support import build
from tests.support.custom_kinds import (
    COSCHEDULING,
    KUBERNETES,
    KUEUE,
    definition,
    group,
    kind_at,
    topology,
    topology_definition,
)
from tests.support.snapshots import read_objects
from tests.support.workloads import workload

BLOCK, RACK = "example.com/block", "example.com/rack"
GANG = {
    "schedulingPolicy": {"gang": {"minCount": 3}},
    "schedulingConstraints": {"topology": [{"key": build.ZONE}]},
}


def member(name: str, *, cpu: str, labels: build.Json | None = None, **spec: object) -> build.Json:
    spec = {"schedulerName": "affinity-scheduler", **spec}
    return build.pod(name, labels=labels or {}, cpu=cpu, spec=spec)


LATER = member("rank-0", cpu="1", labels={"scheduling.x-k8s.io/pod-group": "later"})


async def test_a_cluster_and_its_snapshot_tell_of_podgroups(tmp_path: Path, called: Called) -> None:
    """Six nodes of four CPUs in three zones, and a gang of three, of which no zone takes more than two."""
    snapshot = str(tmp_path / "snapshot.json")
    job = workload("Job", "small", member("t", cpu="1", schedulingGroup={"podGroupName": "small"}), 3)
    manifest = written(tmp_path / "job.json", job, group(KUBERNETES, "small", GANG))
    commands = (
        ("explain", "m-0", "-o", "json"),
        ("explain", "rank-0", "-o", "json"),
        ("simulate", "-f", manifest, "-o", "json"),
    )
    async with embedded(tmp_path, nodes=6, zones=3) as cluster:
        for api_version in (KUBERNETES, COSCHEDULING):
            cluster.store.create(CUSTOM_RESOURCE_DEFINITION, "", definition(api_version))
        kind = kind_at(cluster.store, KUBERNETES, "podgroups")
        cluster.store.create(kind, "default", group(KUBERNETES, "gang", GANG))
        gang = {"schedulingGroup": {"podGroupName": "gang"}}
        for pod in (*(member(f"m-{index}", cpu="3", **gang) for index in range(3)), LATER):
            cluster.store.create(POD, "default", pod)
        live = [await called(*command) for command in commands]
        assert (await called("snapshot", "-o", snapshot))[0] == 0
    assert [await called(*command, "--on", snapshot) for command in commands] == live
    of_gang, alone, (simulation,) = (json.loads(out) for _, out, _ in live)
    assert of_gang["group"] == "default/gang"
    assert f"needs 3 places in one {build.ZONE}: zone-a has room for 2" in of_gang["message"]
    assert alone["message"].startswith("pod group default/later waits: there is no PodGroup later of ")
    assert (simulation["placed"], simulation["moreGroups"]) == (3, 5)
    assert [zone["pods"] for zone in simulation["zones"]].count(3) == 1


async def test_a_cluster_and_its_snapshot_tell_of_kueues_topology(tmp_path: Path, called: Called) -> None:
    """With it, the rack of one name in two blocks is two racks; without it, it is one."""
    snapshot = str(tmp_path / "snapshot.json")
    labels = {"affinity-scheduler.io/pod-group": "g", "affinity-scheduler.io/pod-group-min-count": "3"}
    template = member("t", cpu="1", labels=labels)
    template["metadata"]["annotations"] = {"kueue.x-k8s.io/podset-required-topology": RACK}
    manifest = written(tmp_path / "job.json", workload("Job", "j", template, 3))
    command = ("simulate", "-f", manifest, "-o", "json")
    async with embedded(tmp_path) as cluster:
        cluster.store.create(CUSTOM_RESOURCE_DEFINITION, "", topology_definition())
        kind = kind_at(cluster.store, f"{KUEUE}/v1beta2", "topologies")
        for name in ("a0", "a1", "b0", "b1"):
            node = build.node(name, labels={BLOCK: name[0], RACK: "1"}, allocatable={"cpu": "1", "pods": "9"})
            cluster.store.create(NODE, "", node)
        without = await called(*command)
        cluster.store.create(kind, "", topology("room", BLOCK, RACK))
        live = await called(*command)
        assert (await called("snapshot", "-o", snapshot))[0] == 0
    assert await called(*command, "--on", snapshot) == live
    assert [json.loads(out)[0]["placed"] for _, out, _ in (without, live)] == [3, 0]
    assert "a/1 has room for 2, b/1 has room for 2" in live[1]


async def test_a_malformed_member_has_no_place(tmp_path: Path, called: Called) -> None:
    labels = {"affinity-scheduler.io/pod-group": "g", "affinity-scheduler.io/pod-group-min-count": "many"}
    on = recorded(tmp_path, build.node("n"), member("odd", cpu="1", labels=labels))
    code, out, _ = await called("explain", "odd", "-o", "json", "--on", on)
    answer = json.loads(out)
    assert (code, answer["state"]) == (1, "unschedulable")
    assert answer["message"].startswith('affinity-scheduler.io/pod-group-min-count of the pod: found "many"')


async def test_a_snapshot_of_a_cluster_without_the_kind_has_no_list_of_it(
    tmp_path: Path, called: Called
) -> None:
    """There the label of coscheduling means nothing."""
    snapshot, command = str(tmp_path / "snapshot.json"), ("explain", "rank-0", "-o", "json")
    async with embedded(tmp_path, nodes=1) as cluster:
        cluster.store.create(POD, "default", LATER)
        assert (await called("snapshot", "-o", snapshot))[0] == 0
        live = await called(*command)
    assert await called(*command, "--on", snapshot) == live
    assert json.loads(live[1])["state"] == "schedulable"
    assert not [name for name in read_objects(snapshot) if "Group" in name]
