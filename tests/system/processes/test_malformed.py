"""Malformed objects are counted and logged once and affect no other object."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from scheduler.sandbox.devcluster.kinds import NAMESPACE, NODE, POD, SERVICE, JsonObject, Kind
from scheduler.sandbox.devcluster.storage.store import ObjectStore
from tests.support import build
from tests.support.cluster import NAME, Cluster
from tests.support.daemon import Daemon, running
from tests.support.waiting import until
from tests.system.processes.conftest import PROFILES, SPREADING, embedded


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with embedded(tmp_path) as cluster:
        await cluster.api.enter_namespace()
        await cluster.add_node("a")
        yield cluster


@pytest.fixture
async def daemon(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Daemon]:
    config = tmp_path / "scheduler.yaml"
    config.write_text(PROFILES)
    async with running(Path(cluster.kubeconfig), "--config", str(config)) as daemon:
        yield daemon


@pytest.fixture
def store(cluster: Cluster) -> ObjectStore:
    assert cluster.devcluster is not None
    return cluster.devcluster.store


def pod(name: str = "odd", *, is_running: bool = False, **settings: Any) -> JsonObject:
    """Return a pod for our scheduler, running on node a or pending."""
    spec = {"schedulerName": NAME, **settings.pop("spec", {})}
    made = build.pod(name, node="a" if is_running else None, spec=spec, **settings)
    made["metadata"]["uid"] = f"uid-{name}"
    return made


def with_metadata(obj: JsonObject, **metadata: object) -> JsonObject:
    return {**obj, "metadata": {**obj["metadata"], **metadata}}


def affinity_by(operator: str) -> build.Json:
    selector = {"matchExpressions": [{"key": "app", "operator": operator, "values": ["x"]}]}
    return build.affinity(anti_required=[build.term(build.HOSTNAME, selector)])


#: What is wrong -> the kind and the object, of any name.
ODD: Mapping[str, tuple[Kind, JsonObject]] = {
    "pod: a request that is no quantity": (POD, pod(containers=[build.container(requests={"cpu": "lots"})])),
    "pod: a running one's selector that does not parse": (
        POD,
        pod(is_running=True, affinity=affinity_by("Near")),
    ),
    "node: an amount that is no quantity": (NODE, build.node("odd", allocatable={"cpu": "many"})),
    "namespace: a label that is a list": (NAMESPACE, with_metadata(build.namespace("odd"), labels={"a": []})),
    "service: a selector of numbers": (SERVICE, {**build.service("odd", {}), "spec": {"selector": {"a": 1}}}),
}


async def test_malformed_objects_affect_no_other(
    cluster: Cluster, daemon: Daemon, store: ObjectStore
) -> None:
    """Each is counted and logged once, however often it changes; other pods are scheduled as if it did not exist."""
    for version in ("1", "2"):
        for number, (kind, odd) in enumerate(ODD.values()):
            store.rewrite(kind, with_metadata(odd, name=f"odd-{number}.", annotations={"version": version}))
    await cluster.add_pod("well")
    await cluster.add_pod("also-well", scheduler=SPREADING)
    assert await cluster.node_of("well") == "a"
    assert await cluster.node_of("also-well") == "a"

    async def complaints() -> dict[str, int]:
        return {what: len(daemon.logged("Malformed object", f"odd-{n}.")) for n, what in enumerate(ODD)}

    await until(complaints, lambda found: all(found.values()), what="a complaint about each")
    assert await complaints() == dict.fromkeys(ODD, 1)
    assert await daemon.metric("affinity_scheduler_malformed_objects_total") == len(ODD)
    assert await daemon.metric("affinity_scheduler_objects_malformed") == len(ODD)
    assert await daemon.metric("affinity_scheduler_objects_malformed", kind="Service") == 1


async def test_a_repaired_pod_is_scheduled(cluster: Cluster, daemon: Daemon, store: ObjectStore) -> None:
    """The next version of the object is decoded again."""
    odd = pod(containers=[build.container(requests={"cpu": "lots"})])
    store.rewrite(POD, odd)
    await daemon.says("Malformed object")
    store.rewrite(POD, pod())

    async def node_name() -> str:
        spec = (await cluster.api.get("/api/v1/namespaces/default/pods/odd")).ok["spec"]
        return str(spec.get("nodeName", ""))

    assert await until(node_name, what="the mended pod bound") == "a"
    assert await daemon.metric("affinity_scheduler_malformed_objects_total") == 1
    assert await daemon.metric("affinity_scheduler_objects_malformed") == 0
