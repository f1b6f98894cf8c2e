"""
Groups from the user's side: the PodGroups of kubernetes and of coscheduling, and a Job with Kueue's annotations.

The embedded server does not have Kueue's controllers. Source: kueue v1beta2 (August 2026).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import build
from tests.support.build import Json
from tests.support.cluster import Cluster
from tests.support.custom_kinds import (
    COSCHEDULING,
    KUBERNETES,
    definition,
    flavor,
    flavor_definition,
    group,
    topology,
    topology_definition,
)
from tests.support.daemon import running
from tests.support.waiting import until
from tests.system.processes.conftest import embedded

RACK = "example.com/rack"
KUBERNETES_1_37 = "scheduling.k8s.io/v1beta1"


@pytest.fixture(scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    kinds = (definition(KUBERNETES), definition(COSCHEDULING), topology_definition(), flavor_definition())
    async with _serving(tmp_path_factory.mktemp("groups"), *kinds) as server:
        yield server


@asynccontextmanager
async def _serving(folder: Path, *kinds: Json, minor: int = 36) -> AsyncIterator[Cluster]:
    """Yield a cluster with these kinds, and a scheduler on it."""
    async with embedded(folder, controllers=True, minor=minor) as server:
        for kind in kinds:
            await server.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", kind)
        async with running(Path(server.kubeconfig), "--seed", "1"):
            await server.api.enter_namespace()
            yield server
            await server.assert_sound()


async def _racks(cluster: Cluster, **n_nodes: int) -> None:
    await cluster.clear()
    for rack, n in n_nodes.items():
        for index in range(n):
            await cluster.add_node(f"{rack}-{index}", labels={RACK: rack}, allocatable={"cpu": "1"})


async def _add_group(cluster: Cluster, api_version: str, name: str, spec: Json) -> str:
    path = cluster.api.in_namespace("podgroups", group=f"apis/{api_version}")
    await cluster.create(path, group(api_version, name, spec))
    return f"{path}/{name}"


async def _condition(cluster: Cluster, path: str) -> Json:
    conditions = (await cluster.api.get(path)).ok.get("status", {}).get("conditions") or [{}]
    found: Json = conditions[0]
    return found


async def _condition_is(cluster: Cluster, path: str, status: str) -> Json:
    return await until(
        lambda: _condition(cluster, path), lambda one: one.get("status") == status, what=f"{path}: {status}"
    )


async def _add_members(cluster: Cluster, names: list[str], **more: Any) -> None:
    for name in names:
        await cluster.add_pod(name, cpu="1", **more)


async def _racks_of(cluster: Cluster, n_pods: int) -> set[str]:
    pods = await cluster.all_bound(n_pods)
    return {pod["spec"]["nodeName"].partition("-")[0] for pod in pods}


async def test_the_podgroup_of_coscheduling_is_read(cluster: Cluster) -> None:
    """Members wait for their PodGroup, and for its minMember."""
    await _racks(cluster, a=3)
    labels = {"scheduling.x-k8s.io/pod-group": "mpi"}
    await _add_members(cluster, ["rank-0", "rank-1"], labels=labels)
    await _add_group(cluster, COSCHEDULING, "mpi", {"minMember": 3})
    group = f"pod group {cluster.api.namespace}/mpi"
    await cluster.condition(
        "rank-0", f"{group} waits until 3 of its pods exist that may be placed (minMember)"
    )
    await _add_members(cluster, ["rank-2"], labels=labels)
    assert await _racks_of(cluster, 3) == {"a"}


@pytest.mark.parametrize(
    ("api_version", "minor", "told", "more"),
    [
        (KUBERNETES, 36, "PodGroupScheduled", {}),
        (KUBERNETES_1_37, 37, "PodGroupInitiallyScheduled", {"disruptionMode": {"single": {}}}),
    ],
)
async def test_the_podgroup_of_kubernetes_is_found_by_discovery(
    tmp_path: Path, api_version: str, minor: int, told: str, more: Json
) -> None:
    """Its gang and its topology constraint; its condition says what stops it, and then that it is placed."""
    async with _serving(tmp_path, definition(api_version), minor=minor) as cluster:
        await _racks(cluster, a=1, b=1)
        topology = {"topology": [{"key": RACK}]}
        spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "schedulingConstraints": topology, **more}
        path = await _add_group(cluster, api_version, "gang", spec)
        await _add_members(cluster, ["m-0", "m-1"], spec={"schedulingGroup": {"podGroupName": "gang"}})
        condition = await _condition_is(cluster, path, "False")
        assert (condition["type"], condition["reason"]) == (told, "Unschedulable")
        assert "a has room for 1, b has room for 1" in condition["message"]
        await cluster.add_node("b-1", labels={RACK: "b"}, allocatable={"cpu": "1"})
        assert await _racks_of(cluster, 2) == {"b"}
        condition = await _condition_is(cluster, path, "True")
        assert (condition["reason"], condition["message"]) == ("Scheduled", "")


async def test_a_job_waits_while_kueues_topology_tells_racks_of_two_blocks_apart(cluster: Cluster) -> None:
    """
    Both blocks have a rack of the same name; the Topology vanishes while the job waits.

    Of two Topologies with unlike levels counts the one that the ResourceFlavor in the node selectors names.
    """
    await cluster.clear()
    kinds = "/apis/kueue.x-k8s.io/v1beta2"
    for name, outer in (("gpus", "example.com/block"), ("cpus", "example.com/pool")):
        await cluster.create(f"{kinds}/topologies", topology(name, outer, RACK))
        await cluster.create(f"{kinds}/resourceflavors", flavor(name, name, kind=name))
    for block in ("a", "b"):
        for index in range(2):
            labels = {"example.com/block": block, RACK: "1", "kind": "gpus"}
            await cluster.add_node(f"{block}-{index}", labels=labels, allocatable={"cpu": "1"})
    ours, position = "affinity-scheduler.io/pod-group", "batch.kubernetes.io/job-completion-index"
    annotations = {ours: "tas", f"{ours}-min-count": "3", "kueue.x-k8s.io/podset-required-topology": RACK}
    for index in range(3):
        await cluster.add_pod(
            f"tas-{index}",
            cpu="1",
            labels={"batch.kubernetes.io/job-name": "tas", position: str(index)},
            annotations={position: str(index), **annotations},
            owner=build.owned_by("Job", "tas", api_version="batch/v1"),
            node_selector={"kind": "gpus"},
        )
    room = "a/1 has room for 2, b/1 has room for 2"
    await until(lambda: cluster.pod("tas-0"), lambda pod: room in json.dumps(pod), what=room)
    (await cluster.api.delete(f"{kinds}/topologies/gpus")).ok  # noqa: B018
    await cluster.all_bound(3)
