"""
JobSet, LeaderWorkerSet, Kueue's annotations and plain indexed Jobs come up with the topology that they ask for.

The embedded server has none of these controllers. The test makes the pods as their controllers and webhooks do: names,
labels, annotations, owners, affinity, node selectors. Counts and levels are those of the examples in the projects' own
documentation. Source: jobset v1alpha2, leaderworkerset v1, kueue v1beta2 (August 2026).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support import build
from tests.support.build import Json
from tests.support.cluster import Cluster
from tests.support.custom_kinds import flavor, flavor_definition, topology, topology_definition
from tests.support.daemon import running
from tests.support.waiting import until
from tests.system.processes.conftest import embedded

pytestmark = pytest.mark.asyncio(loop_scope="module")

POOL = "cloud.google.com/gke-nodepool"
BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"
OURS, JOB_SET, LWS = "affinity-scheduler.io", "jobset.sigs.k8s.io", "leaderworkerset.sigs.k8s.io"
INDEX = "batch.kubernetes.io/job-completion-index"
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


async def _room(
    cluster: Cluster, key: str, domains: Mapping[str, int], cpu: int = 1, block: str = ""
) -> None:
    """Add as many nodes to each domain as `domains` says; `block`: of all of them."""
    blocks = {BLOCK: block} if block else {}
    for domain, n_nodes in domains.items():
        for index in range(n_nodes):
            await cluster.add_node(
                f"{domain}-{index}", labels={key: domain, **blocks}, allocatable={"cpu": str(cpu)}
            )


async def _domains(cluster: Cluster, key: str, n_pods: int) -> dict[str, str]:
    """Wait until so many pods are bound, and return the domain of each."""
    nodes = (await cluster.api.get("/api/v1/nodes")).ok["items"]
    by_node = {node["metadata"]["name"]: node["metadata"]["labels"][key] for node in nodes}
    pods = await cluster.all_bound(n_pods)
    return {pod["metadata"]["name"]: by_node[pod["spec"]["nodeName"]] for pod in pods}


def _job_set_labels(name: str, job: str, index: int, n_jobs: int) -> dict[str, str]:
    """Return what labelAndAnnotateObject writes, as labels and as annotations."""
    key = sha256(f"{name}-{job}-{index}".encode()).hexdigest()[:63]
    texts = {"jobset-name": name, "jobset-uid": f"uid-{name}", "replicatedjob-name": job, "job-key": key}
    numbers = {"restart-attempt": 0, "replicatedjob-replicas": n_jobs, "global-replicas": n_jobs}
    numbers |= {
        "job-index": index,
        "job-global-index": index,
        "group-replicas": n_jobs,
        "job-group-index": index,
    }
    words = {**texts, **{word: str(number) for word, number in numbers.items()}, "group-name": "default"}
    return {f"{JOB_SET}/{word}": text for word, text in words.items()}


def _exclusive(level: str, key: str, text: str, more: str = "") -> Json:
    """Return the affinity of a leader: near the pods with its key, and apart from those with another."""
    apart = [key, f"{key} notin {text}", *([more] if more else [])]
    everywhere: Json = {"namespaceSelector": {}} if key.startswith(JOB_SET) else {}
    near, away = (build.term(level, build.selector(*words)) for words in ([f"{key} in {text}"], apart))
    return build.affinity(required=[{**near, **everywhere}], anti_required=[{**away, **everywhere}])


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


@pytest.mark.parametrize("ours", [{}, {f"{OURS}/pod-group-from": "JobSet"}], ids=["unchanged", "as a group"])
async def test_a_jobset_with_exclusive_placement_has_a_pool_for_each_job(
    cluster: Cluster, ours: dict[str, str]
) -> None:
    """Leaders first; the webhook lets followers be created once their leader has a node, and sends them there."""
    await cluster.clear()
    await _room(cluster, POOL, {"a": 3, "b": 4, "c": 3})
    exclusive = {f"alpha.{JOB_SET}/exclusive-topology": POOL, **ours}
    jobs = {f"exclusive-placement-workers-{index}": index for index in range(3)}
    for job, number in jobs.items():
        marks = _job_set_labels("exclusive-placement", "workers", number, 3)
        labels = {**marks, f"{JOB_SET}/priority": "0"}
        key = f"{JOB_SET}/job-key"
        affinity = _exclusive(POOL, key, marks[key], f"{JOB_SET}/priority in 0")
        await _job_pod(cluster, job, 0, labels, {**marks, **exclusive}, affinity=affinity)
    for job, number in jobs.items():
        pool = (await cluster.node_of(f"{job}-0-x")).partition("-")[0]
        marks = _job_set_labels("exclusive-placement", "workers", number, 3)
        for index in (1, 2):
            labels = {**marks, f"{JOB_SET}/priority": "0"}
            await _job_pod(cluster, job, index, labels, {**marks, **exclusive}, node_selector={POOL: pool})
    pools = await _domains(cluster, POOL, 9)
    used = {job: {pool for name, pool in pools.items() if name.startswith(job)} for job in jobs}
    assert all(len(each) == 1 for each in used.values())
    assert len(set.union(*used.values())) == 3


async def _replica(
    cluster: Cluster, name: str, index: int, size: int, annotations: Mapping[str, str], level: str = ""
) -> None:
    """Create a leader and its workers; with an exclusive level, the workers once the leader has a node."""
    leader = f"{name}-{index}"
    key = sha256(leader.encode()).hexdigest()[:40]
    labels = {f"{LWS}/name": name, f"{LWS}/group-index": str(index), f"{LWS}/group-key": key}
    labels[f"{LWS}/template-revision-hash"] = "1"
    notes = {f"{LWS}/size": str(size), **annotations}
    selector: dict[str, str] = {}
    for worker in range(size):
        is_leader = worker == 0
        if worker == 1 and level:
            selector = {level: (await cluster.node_of(leader)).partition("-")[0]}
        pod_index = str(index if is_leader else worker)
        await cluster.add_pod(
            leader if is_leader else f"{leader}-{worker}",
            cpu="1",
            labels={**labels, f"{LWS}/worker-index": str(worker), "apps.kubernetes.io/pod-index": pod_index},
            annotations=notes if is_leader else {**notes, f"{LWS}/leader-name": leader},
            owner=build.owned_by("StatefulSet", name if is_leader else leader),
            affinity=_exclusive(level, f"{LWS}/group-key", key) if is_leader and level else None,
            node_selector=selector,
        )


@pytest.mark.parametrize(
    "ours", [{}, {f"{OURS}/pod-group-from": "LeaderWorkerSet"}], ids=["unchanged", "as a group"]
)
async def test_a_leaderworkerset_with_exclusive_placement_has_a_pool_for_each_replica(
    cluster: Cluster, ours: dict[str, str]
) -> None:
    await cluster.clear()
    await _room(cluster, POOL, {"a": 4, "b": 5, "c": 4})
    name = "leaderworkerset-sample"
    for index in range(3):
        await _replica(cluster, name, index, 4, {f"{LWS}/exclusive-topology": POOL, **ours}, POOL)
    pools = await _domains(cluster, POOL, 12)
    used = [{pool for pod, pool in pools.items() if pod.startswith(f"{name}-{index}")} for index in range(3)]
    assert [len(each) for each in used] == [1, 1, 1]
    assert len(set.union(*used)) == 3


async def test_each_replica_of_a_leaderworkerset_is_in_one_rack_by_kueues_annotation(
    cluster: Cluster,
) -> None:
    """Not both in one rack: Kueue applies the level to each replica."""
    await cluster.clear()
    await _room(cluster, RACK, {"a": 3, "b": 2, "c": 3})
    asked = {
        f"{OURS}/pod-group-from": "LeaderWorkerSet",
        f"{OURS}/pod-group-min-count": "6",
        f"{KUEUE}-required-topology": RACK,
        f"{KUEUE}-group-name": "lws-group",
    }
    for index in range(2):
        await _replica(cluster, "nginx-leaderworkerset", index, 3, asked)
    racks = await _domains(cluster, RACK, 6)
    assert Counter(racks.values()) == {"a": 3, "c": 3}
    assert len({rack for pod, rack in racks.items() if "set-0" in pod}) == 1


async def _job(
    cluster: Cluster, job: str, n_pods: int, annotations: Mapping[str, str], **labels: str
) -> None:
    for index in range(n_pods):
        await _job_pod(cluster, job, index, labels, annotations)


def _group(name: str, n_pods: int) -> dict[str, str]:
    return {f"{OURS}/pod-group": name, f"{OURS}/pod-group-min-count": str(n_pods)}


async def test_a_job_in_one_rack_by_kueues_annotation_takes_the_tightest(cluster: Cluster) -> None:
    await cluster.clear()
    await _room(cluster, RACK, {"a": 4, "b": 3, "c": 2}, cpu=4)
    await _job(cluster, "tas-sample-required", 10, {**_group("tas", 10), f"{KUEUE}-required-topology": RACK})
    assert set((await _domains(cluster, RACK, 10)).values()) == {"b"}


async def test_a_job_in_few_blocks_by_kueues_annotation_takes_the_block_with_room_for_all(
    cluster: Cluster,
) -> None:
    await cluster.clear()
    await _room(cluster, BLOCK, {"a": 4, "b": 2, "c": 5}, cpu=8)
    await _job(
        cluster, "tas-sample-preferred", 40, {**_group("tas", 40), f"{KUEUE}-preferred-topology": BLOCK}
    )
    assert set((await _domains(cluster, BLOCK, 40)).values()) == {"c"}


async def test_a_jobset_in_one_rack_by_kueues_annotation(cluster: Cluster) -> None:
    await cluster.clear()
    await _room(cluster, RACK, {"a": 3, "b": 5, "c": 4})
    marks = _job_set_labels("jobset-tas-required", "workers", 0, 1)
    asked = {f"{OURS}/pod-group-from": "JobSet", f"{OURS}/pod-group-part-min-count": "4"}
    asked[f"{KUEUE}-required-topology"] = RACK
    await _job(cluster, "jobset-tas-required-workers-0", 4, {**marks, **asked}, **marks)
    assert set((await _domains(cluster, RACK, 4)).values()) == {"c"}


async def test_each_slice_of_a_jobset_is_in_one_rack_by_kueues_annotations(cluster: Cluster) -> None:
    """No rack has room for the whole job; neighbours in rank are in one slice."""
    await cluster.clear()
    await _room(cluster, RACK, {"a": 4, "b": 3, "c": 5})
    marks = _job_set_labels("jobset-tas-sliced", "workers", 0, 1)
    asked = {f"{OURS}/pod-group-from": "JobSet", f"{OURS}/pod-group-min-count": "8"}
    asked |= {f"{KUEUE}-slice-required-topology": RACK, f"{KUEUE}-slice-size": "4"}
    await _job(cluster, "jobset-tas-sliced-workers-0", 8, {**marks, **asked}, **marks)
    racks = await _domains(cluster, RACK, 8)
    slices = [{racks[f"jobset-tas-sliced-workers-0-{n}-x"] for n in range(at, at + 4)} for at in (0, 4)]
    assert sorted(map(sorted, slices)) == [["a"], ["c"]]


async def test_an_indexed_job_with_our_annotations_has_neighbours_in_one_rack(cluster: Cluster) -> None:
    """One block, the fewest racks in it, and the ranks in order."""
    await cluster.clear()
    await _room(cluster, RACK, {"a1": 2, "a2": 1, "a3": 1}, block="a")
    await _room(cluster, RACK, {"b1": 1, "b2": 3, "b3": 3}, block="b")
    asked = {f"{OURS}/pod-group-required-topology": BLOCK, f"{OURS}/pod-group-preferred-topology": RACK}
    await _job(cluster, "train", 6, {**_group("train", 6), **asked})
    racks = await _domains(cluster, RACK, 6)
    halves = [{racks[f"train-{n}-x"] for n in range(at, at + 3)} for at in (0, 3)]
    assert sorted(map(sorted, halves)) == [["b2"], ["b3"]]


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
