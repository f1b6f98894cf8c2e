"""Groups from the user's side: labels alone, and the PodGroups of kubernetes and of coscheduling."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from tests.support import build, storage_objects
from tests.support.build import Json
from tests.support.cluster import Cluster
from tests.support.custom_kinds import COSCHEDULING, KUBERNETES, definition, group
from tests.support.daemon import running
from tests.support.waiting import until
from tests.system.processes.conftest import embedded

pytestmark = pytest.mark.asyncio(loop_scope="module")

RACK = "example.com/rack"
GROUP, MIN_COUNT = "affinity-scheduler.io/pod-group", "affinity-scheduler.io/pod-group-min-count"
KUBERNETES_1_37 = "scheduling.k8s.io/v1beta1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with _serving(tmp_path_factory.mktemp("groups"), KUBERNETES, COSCHEDULING) as server:
        yield server


@asynccontextmanager
async def _serving(folder: Path, *api_versions: str, minor: int = 36) -> AsyncIterator[Cluster]:
    """Yield a cluster with these kinds of PodGroups, and a scheduler on it."""
    async with embedded(folder, controllers=True, minor=minor) as server:
        for api_version in api_versions:
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            (await server.api.post(path, definition(api_version))).ok  # noqa: B018
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
    made = group(api_version, name, spec)
    path = cluster.api.in_namespace("podgroups", group=f"apis/{api_version}")
    (await cluster.api.post(path, made)).ok  # noqa: B018
    return f"{path}/{name}"


async def _condition(cluster: Cluster, path: str) -> Json:
    conditions = (await cluster.api.get(path)).ok.get("status", {}).get("conditions") or [{}]
    found: Json = conditions[0]
    return found


async def _condition_is(cluster: Cluster, path: str, status: str) -> Json:
    return await until(
        lambda: _condition(cluster, path), lambda one: one.get("status") == status, what=f"{path}: {status}"
    )


def _together(name: str) -> Json:
    return build.affinity(required=[build.term(RACK, build.selector(f"job={name}"))])


async def _add_members(cluster: Cluster, names: list[str], **more: Any) -> None:
    for name in names:
        await cluster.add_pod(name, cpu="1", **more)


async def _racks_of(cluster: Cluster, n_pods: int) -> set[str]:
    pods = await cluster.all_bound(n_pods)
    return {pod["spec"]["nodeName"].partition("-")[0] for pod in pods}


async def test_members_named_by_labels_share_a_rack_or_wait(cluster: Cluster) -> None:
    await _racks(cluster, a=2, b=1)
    names = [f"worker-{index}" for index in range(3)]
    labels = {"job": "train", GROUP: "train", MIN_COUNT: "3"}
    await _add_members(cluster, names, labels=labels, affinity=_together("train"))
    group = f"pod group {cluster.api.namespace}/train"
    text = (
        f"{group} needs 3 places in one {RACK}: a has room for 2, b has room for 1; the next, worker-2 in a: 0/2 nodes"
        " are available: 2 Insufficient cpu."
    )
    found = await cluster.condition("worker-0", text)
    assert found["reason"] == "Unschedulable"
    await cluster.add_node("b-1", labels={RACK: "b"}, allocatable={"cpu": "1"})
    await cluster.add_node("b-2", labels={RACK: "b"}, allocatable={"cpu": "1"})
    assert await _racks_of(cluster, 3) == {"b"}


async def test_the_podgroup_of_kubernetes_is_read_and_told(cluster: Cluster) -> None:
    """Its gang and its topology constraint; its condition says what stops it, and then that it is placed."""
    await _racks(cluster, a=1, b=1)
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "schedulingConstraints": {"topology": [{"key": RACK}]},
    }
    path = await _add_group(cluster, KUBERNETES, "gang", spec)
    await _add_members(cluster, ["m-0", "m-1"], spec={"schedulingGroup": {"podGroupName": "gang"}})
    condition = await _condition_is(cluster, path, "False")
    assert (condition["type"], condition["reason"]) == ("PodGroupScheduled", "Unschedulable")
    assert "a has room for 1, b has room for 1" in condition["message"]
    await cluster.add_node("b-1", labels={RACK: "b"}, allocatable={"cpu": "1"})
    assert await _racks_of(cluster, 2) == {"b"}
    condition = await _condition_is(cluster, path, "True")
    assert (condition["reason"], condition["message"]) == ("Scheduled", "")


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


async def test_a_server_that_streams_no_lists_is_asked_for_pages(cluster: Cluster) -> None:
    """Of both kinds of PodGroups, after a watch that cannot be resumed."""
    assert cluster.devcluster is not None
    faults = cluster.devcluster.faults
    served = [f"/apis/{api_version}/podgroups" for api_version in (KUBERNETES, COSCHEDULING)]
    paths = [f"{path}$" for path in served]
    faults.add(
        *(
            Fault(action=Effect.RESPOND, path=path, verb="watch", code=code)
            for path in paths
            for code in (410, 400)
        ),
        *(Fault(action=Effect.END_STREAM, path=path) for path in paths),
    )

    async def all_happened() -> bool:
        return not faults.pending()

    await until(all_happened, what="the end of every watch")
    await _racks(cluster, a=2)
    labels = {"scheduling.x-k8s.io/pod-group": "listed"}
    await _add_group(cluster, COSCHEDULING, "listed", {"minMember": 2})
    await _add_members(cluster, ["l-0", "l-1"], labels=labels)
    assert await _racks_of(cluster, 2) == {"a"}


async def test_the_podgroup_of_kubernetes_1_37_is_found_by_discovery(tmp_path: Path) -> None:
    """Its condition has another type, and its fields another version; nothing is configured."""
    async with _serving(tmp_path, KUBERNETES_1_37, minor=37) as cluster:
        await _racks(cluster, a=1, b=1)
        spec = {
            "schedulingPolicy": {"gang": {"minCount": 2}},
            "schedulingConstraints": {"topology": [{"key": RACK}]},
            "disruptionMode": {"single": {}},
        }
        path = await _add_group(cluster, KUBERNETES_1_37, "gang", spec)
        await _add_members(cluster, ["m-0", "m-1"], spec={"schedulingGroup": {"podGroupName": "gang"}})
        condition = await _condition_is(cluster, path, "False")
        assert (condition["type"], condition["reason"]) == ("PodGroupInitiallyScheduled", "Unschedulable")
        await cluster.add_node("b-1", labels={RACK: "b"}, allocatable={"cpu": "1"})
        assert await _racks_of(cluster, 2) == {"b"}
        assert (await _condition_is(cluster, path, "True"))["reason"] == "Scheduled"


async def test_pods_are_evicted_for_a_group_all_or_none(cluster: Cluster) -> None:
    """For three members in one rack: not in the rack with a pod that is as important, and no pod too many."""
    await _racks(cluster, a=3, b=4)
    await cluster.add_priority_class("train", 1000)
    high = {"priorityClassName": "train"}
    await cluster.add_pod("kept", cpu="1", node="a-0", spec=high)
    lower = {f"low-{node}": node for node in ("a-1", "a-2", "b-0", "b-1", "b-2")}
    for name, node in lower.items():
        await cluster.add_pod(name, cpu="1", node=node)
    names = [f"worker-{index}" for index in range(3)]
    labels = {"job": "train", GROUP: "train", MIN_COUNT: "3"}
    await _add_members(cluster, names, labels=labels, affinity=_together("train"), spec=high)
    for name in names:
        assert (await cluster.node_of(name)).startswith("b-")
    left = {pod["metadata"]["name"] for pod in await cluster.pods()}
    evicted = lower.keys() - left
    assert len(evicted) == 2
    assert all(lower[name].startswith("b-") for name in evicted)
    (event,) = await until(lambda: cluster.events(min(evicted), "Preempted"), what="the Preempted event")
    assert event["note"].startswith(f"Preempted by pod group {cluster.api.namespace}/train on node b-")


async def test_volumes_of_members_are_made_where_the_members_go(cluster: Cluster) -> None:
    """Claims that wait for their first consumer; the rack with room for both is the one whose volumes are made."""
    await _racks(cluster, a=1, b=2)
    storage = storage_objects.storage_class("made-late", "kubernetes.io/no-provisioner")
    await cluster.create("/apis/storage.k8s.io/v1/storageclasses", storage)
    for node in ("a-0", "b-0", "b-1"):
        reach = [build.node_term(f"kubernetes.io/hostname in {node}")]
        local = {"local": {"path": "/mnt/data"}}
        volume = storage_objects.volume(f"volume-{node}", "made-late", terms=reach, source=local)
        await cluster.create("/api/v1/persistentvolumes", volume)
    labels = {"job": "db", GROUP: "db", MIN_COUNT: "2"}
    for index in range(2):
        claim = storage_objects.claim(f"data-{index}", "made-late", namespace=cluster.api.namespace)
        await cluster.create(cluster.api.in_namespace("persistentvolumeclaims"), claim)
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{index}"}}]
        await cluster.add_pod(
            f"db-{index}", cpu="1", labels=labels, affinity=_together("db"), spec={"volumes": volumes}
        )
    assert await _racks_of(cluster, 2) == {"b"}
    bound = (await cluster.api.get(cluster.api.in_namespace("persistentvolumeclaims"))).ok["items"]
    assert {one["spec"]["volumeName"] for one in bound} == {"volume-b-0", "volume-b-1"}
