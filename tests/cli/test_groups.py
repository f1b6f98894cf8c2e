"""PodGroups in explain, simulate, snapshot and record: from a cluster and from a file, with the same answers."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.model.stimuli import PodGroupSeen, PodGroupsServed
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import CUSTOM_RESOURCE_DEFINITION, NODE, POD
from scheduler.tools.explain.recordings import recorded_events
from tests.cli.conftest import Called, embedded
from tests.support import build
from tests.support.custom_kinds import (
    COSCHEDULING,
    KUBERNETES,
    KUEUE,
    definition,
    group,
    topology,
    topology_definition,
)
from tests.support.forking import forked
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


@asynccontextmanager
async def served(tmp_path: Path) -> AsyncIterator[DevCluster]:
    """Yield six nodes of four CPUs in three zones, and a gang of three, of which no zone takes more than two."""
    async with embedded(tmp_path, nodes=6, zones=3) as cluster:
        for api_version in (KUBERNETES, COSCHEDULING):
            cluster.store.create(CUSTOM_RESOURCE_DEFINITION, "", definition(api_version))
        kind = cluster.store.kinds.of(KUBERNETES, "PodGroup")
        assert kind is not None
        cluster.store.create(kind, "default", group(KUBERNETES, "gang", GANG))
        for index in range(3):
            of_gang = {"podGroupName": "gang"}
            cluster.store.create(POD, "default", member(f"m-{index}", cpu="3", schedulingGroup=of_gang))
        waiting = {"scheduling.x-k8s.io/pod-group": "later"}
        cluster.store.create(POD, "default", member("rank-0", cpu="1", labels=waiting))
        yield cluster


async def test_a_cluster_and_its_snapshot_tell_of_podgroups(tmp_path: Path, called: Called) -> None:
    snapshot, manifest = str(tmp_path / "snapshot.json"), tmp_path / "job.json"
    job = workload("Job", "small", member("t", cpu="1", schedulingGroup={"podGroupName": "small"}), 3)
    wanted = {"apiVersion": "v1", "kind": "List", "items": [job, group(KUBERNETES, "small", GANG)]}
    manifest.write_text(json.dumps(wanted))
    commands = (
        ("explain", "m-0", "-o", "json"),
        ("explain", "rank-0", "-o", "json"),
        ("simulate", "-f", str(manifest), "-o", "json"),
    )
    async with served(tmp_path):
        live = [await called(*command) for command in commands]
        assert (await called("snapshot", "-o", snapshot))[0] == 0
    assert [await called(*command, "--on", snapshot) for command in commands] == live
    gang, alone, (simulation,) = (json.loads(out) for _, out, _ in live)
    assert gang["group"] == "default/gang"
    assert f"needs 3 places in one {build.ZONE}: zone-a has room for 2" in gang["message"]
    assert alone["message"] == (
        "pod group default/later waits: there is no PodGroup later of scheduling.x-k8s.io"
    )
    assert simulation["placed"] == 3
    assert simulation["moreGroups"] == 5
    assert [zone["pods"] for zone in simulation["zones"]].count(3) == 1


async def test_a_cluster_and_its_snapshot_tell_of_kueues_topology(tmp_path: Path, called: Called) -> None:
    """With it, the rack of one name in two blocks is two racks; without it, it is one."""
    snapshot, manifest, names = tmp_path / "snapshot.json", tmp_path / "job.json", ("a0", "a1", "b0", "b1")
    labels = {"affinity-scheduler.io/pod-group": "g", "affinity-scheduler.io/pod-group-min-count": "3"}
    template = member("t", cpu="1", labels=labels)
    template["metadata"]["annotations"] = {"kueue.x-k8s.io/podset-required-topology": RACK}
    manifest.write_text(json.dumps(workload("Job", "j", template, 3)))
    command = ("simulate", "-f", str(manifest), "-o", "json")
    async with embedded(tmp_path, nodes=0) as cluster:
        cluster.store.create(CUSTOM_RESOURCE_DEFINITION, "", topology_definition())
        kind = cluster.store.kinds.of(f"{KUEUE}/v1beta2", "Topology")
        assert kind is not None
        for name in names:
            labels = {BLOCK: name[0], RACK: "1"}
            cluster.store.create(
                NODE, "", build.node(name, labels=labels, allocatable={"cpu": "1", "pods": "9"})
            )
        without = await called(*command)
        cluster.store.create(kind, "", topology("room", BLOCK, RACK))
        live = await called(*command)
        assert (await called("snapshot", "-o", str(snapshot)))[0] == 0
    assert await called(*command, "--on", str(snapshot)) == live
    assert json.loads(without[1])[0]["placed"] == 3
    assert json.loads(live[1])[0]["placed"] == 0
    assert "a/1 has room for 2, b/1 has room for 2" in live[1]


async def test_a_malformed_member_has_no_place(tmp_path: Path, called: Called) -> None:
    async with embedded(tmp_path, nodes=1) as cluster:
        labels = {"affinity-scheduler.io/pod-group": "g", "affinity-scheduler.io/pod-group-min-count": "many"}
        cluster.store.create(POD, "default", member("odd", cpu="1", labels=labels))
        code, out, _ = await called("explain", "odd", "-o", "json")
    answer = json.loads(out)
    assert (code, answer["state"]) == (1, "unschedulable")
    assert answer["message"] == (
        'affinity-scheduler.io/pod-group-min-count of the pod: found "many", expected 1 to 5000'
    )


async def test_a_snapshot_of_a_cluster_without_the_kind_has_no_list_of_it(
    tmp_path: Path, called: Called
) -> None:
    """There the label of coscheduling means nothing."""
    snapshot = str(tmp_path / "snapshot.json")
    async with embedded(tmp_path, nodes=1) as cluster:
        waiting = {"scheduling.x-k8s.io/pod-group": "later"}
        cluster.store.create(POD, "default", member("rank-0", cpu="1", labels=waiting))
        assert (await called("snapshot", "-o", snapshot))[0] == 0
        live = await called("explain", "rank-0", "-o", "json")
    assert await called("explain", "rank-0", "-o", "json", "--on", snapshot) == live
    assert json.loads(live[1])["state"] == "schedulable"
    assert not [name for name in read_objects(snapshot) if "Group" in name]


async def test_a_recording_has_podgroups(tmp_path: Path) -> None:
    file = tmp_path / "day.jsonl"
    async with served(tmp_path):
        kubeconfig = str(tmp_path / "kubeconfig")
        process = await forked("scheduler", "record", "-o", str(file), "--kubeconfig", kubeconfig)
        assert b"Recording changes" in await process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    events = [event for _, event in recorded_events(str(file), default_settings())]
    (seen,) = [event.group for event in events if isinstance(event, PodGroupSeen)]
    assert (seen.key.text, seen.min_count, seen.topology.required) == ("default/gang", 3, (build.ZONE,))
    served_kinds = [event for event in events if isinstance(event, PodGroupsServed)]
    assert seen.key.kind in {event.kind for event in served_kinds}
    assert all(event.is_served for event in served_kinds)
