"""
A Job with Kueue's annotations comes up with the topology that it asks for.

The embedded server does not have Kueue's controllers. Source: kueue v1beta2 (August 2026).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support import build
from tests.support.cluster import Cluster
from tests.support.custom_kinds import flavor, flavor_definition, topology, topology_definition
from tests.support.daemon import running
from tests.support.waiting import until
from tests.system.processes.conftest import embedded

pytestmark = pytest.mark.asyncio(loop_scope="module")

POOL = "cloud.google.com/gke-nodepool"
BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"
OURS, INDEX = "affinity-scheduler.io", "batch.kubernetes.io/job-completion-index"
KUEUE = "kueue.x-k8s.io/podset"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with embedded(tmp_path_factory.mktemp("workloads")) as server:
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        for definition in (topology_definition(), flavor_definition()):
            (await server.api.post(path, definition)).ok  # noqa: B018
        async with running(Path(server.kubeconfig), "--seed", "1"):
            await server.api.enter_namespace()
            yield server
            await server.assert_sound()


async def _job_pod(
    cluster: Cluster,
    job: str,
    index: int,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    **more: Any,
) -> str:
    """Create the pod of an indexed Job."""
    name = f"{job}-{index}-x"
    await cluster.add_pod(
        name,
        cpu="1",
        labels={"batch.kubernetes.io/job-name": job, "job-name": job, INDEX: str(index), **labels},
        annotations={INDEX: str(index), **annotations},
        owner=build.owned_by("Job", job, api_version="batch/v1"),
        **more,
    )
    return name


def _group(name: str, n_pods: int) -> dict[str, str]:
    return {f"{OURS}/pod-group": name, f"{OURS}/pod-group-min-count": str(n_pods)}


async def _domains(cluster: Cluster, key: str, n_pods: int) -> dict[str, str]:
    """Wait until so many pods are bound, and return the domain of each."""
    nodes = (await cluster.api.get("/api/v1/nodes")).ok["items"]
    by_node = {node["metadata"]["name"]: node["metadata"]["labels"][key] for node in nodes}
    pods = await cluster.all_bound(n_pods)
    return {pod["metadata"]["name"]: by_node[pod["spec"]["nodeName"]] for pod in pods}


async def test_a_job_waits_while_kueues_topology_tells_racks_of_two_blocks_apart(cluster: Cluster) -> None:
    """
    Both blocks have a rack of the same name; the Topology vanishes while the job waits.

    Of two Topologies with unlike levels counts the one that the ResourceFlavor in the node selectors names.
    """
    await cluster.clear()
    kinds = "/apis/kueue.x-k8s.io/v1beta2"
    for name, outer in (("gpus", BLOCK), ("cpus", POOL)):
        (await cluster.api.post(f"{kinds}/topologies", topology(name, outer, RACK))).ok  # noqa: B018
        (await cluster.api.post(f"{kinds}/resourceflavors", flavor(name, name, kind=name))).ok  # noqa: B018
    for block in ("a", "b"):
        for index in range(2):
            labels = {BLOCK: block, RACK: "1", "kind": "gpus"}
            await cluster.add_node(f"{block}-{index}", labels=labels, allocatable={"cpu": "1"})
    annotations = {**_group("tas", 3), f"{KUEUE}-required-topology": RACK}
    for index in range(3):
        await _job_pod(cluster, "tas", index, {}, annotations, node_selector={"kind": "gpus"})
    room = "a/1 has room for 2, b/1 has room for 2"
    await until(lambda: cluster.pod("tas-0-x"), lambda pod: room in json.dumps(pod), what=room)
    (await cluster.api.delete(f"{kinds}/topologies/gpus")).ok  # noqa: B018
    assert set((await _domains(cluster, RACK, 3)).values()) == {"1"}
