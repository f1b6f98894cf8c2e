"""Volumes that are written before their pods are bound: a StatefulSet's, and ones whose writes are not answered."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from tests.support import storage_objects
from tests.support.build import ZONE
from tests.support.cluster import NAME, Cluster
from tests.support.waiting import until
from tests.system.processes.conftest import embedded

pytestmark = pytest.mark.asyncio(loop_scope="module")

_CLAIMS, _SETS = "persistentvolumeclaims", "statefulsets"
_APPS = "/apis/apps/v1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Yield an embedded cluster, whose controllers bind and provision volumes."""
    async with embedded(tmp_path_factory.mktemp("server"), controllers=True) as cluster:
        yield cluster


async def test_the_pods_of_a_stateful_set_run_with_their_claims(cluster: Cluster) -> None:
    for name in "ab":
        await cluster.add_node(name, labels={ZONE: f"z{name}"})
    labels = {"app": "db"}
    container = {"name": "db", "image": "db:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    stateful_set = {
        "metadata": {"name": "db"},
        "spec": {
            "serviceName": "db",
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"schedulerName": NAME, "containers": [container]},
            },
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "data"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                }
            ],
        },
    }
    path = f"{_APPS}/namespaces/{cluster.api.namespace}/{_SETS}"
    (await cluster.api.post(path, stateful_set)).ok  # noqa: B018

    async def running() -> list[str]:
        pods = await cluster.pods()
        return sorted(one["metadata"]["name"] for one in pods if one["status"].get("phase") == "Running")

    await until(running, lambda names: names == ["db-0", "db-1", "db-2"], what="three running pods")
    claims = (await cluster.api.get(cluster.api.in_namespace(_CLAIMS))).ok["items"]
    assert [one["status"]["phase"] for one in claims] == ["Bound"] * 3
    await cluster.api.delete(f"{path}/db")


async def test_writes_that_are_not_answered_are_read(cluster: Cluster) -> None:
    """The volume and the claim have been written."""
    assert cluster.devcluster is not None
    await cluster.add_node("a")
    storage_class = storage_objects.storage_class("local", "kubernetes.io/no-provisioner")
    (await cluster.api.post("/apis/storage.k8s.io/v1/storageclasses", storage_class)).ok  # noqa: B018
    await cluster.create("/api/v1/persistentvolumes", storage_objects.volume("disk", "local"))
    names = {"old": "local", "new": "standard"}
    for name, kind in names.items():
        made = storage_objects.claim(name, kind, namespace=cluster.api.namespace)
        await cluster.create(cluster.api.in_namespace(_CLAIMS), made)
    for kind in ("persistentvolumes", "persistentvolumeclaims"):
        cluster.devcluster.faults.add(Fault(action=Effect.LOSE_ANSWER, verb="patch", kind=kind))
    volumes = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in names]
    await cluster.add_pod("p", spec={"volumes": volumes})
    assert await cluster.node_of("p") == "a"
    assert cluster.devcluster.faults.pending() == []
