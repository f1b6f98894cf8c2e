"""Pods with claims: they wait for their claims, and run where the volumes are, which are written before the bind."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from tests.support import build, storage_objects
from tests.support.build import ZONE, Json
from tests.support.cluster import NAME, Cluster
from tests.support.waiting import until
from tests.support.workloads import workload

_CLAIMS = "persistentvolumeclaims"
_VOLUMES = "/api/v1/persistentvolumes"

#: For what controllers do, or faults.
on_devcluster = pytest.mark.parametrize("server", ["devcluster"], indirect=True)


async def add_claim(cluster: Cluster, name: str, *args: Any, **settings: Any) -> Json:
    """Create the claim of `storage_objects.claim` in the cluster's namespace."""
    made = storage_objects.claim(name, *args, namespace=cluster.api.namespace, **settings)
    return await cluster.create(cluster.api.in_namespace(_CLAIMS), made)


async def bind_claim(cluster: Cluster, claim: Json, zone: str) -> None:
    """Create a volume in the zone for the claim and bind them, as a PV controller would if there is none."""
    meta = claim["metadata"]
    name = f"{meta['namespace']}-{meta['name']}"
    terms = [build.node_term(f"{ZONE} in {zone}")]
    reference = f"{meta['namespace']}/{meta['name']}"
    await cluster.create(
        _VOLUMES,
        storage_objects.volume(name, terms=terms, claimed_by=reference, claim_uid=meta["uid"]),
    )
    bound = {
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": name},
    }
    (await cluster.api.patch(cluster.api.in_namespace(_CLAIMS, meta["name"]), bound)).ok  # noqa: B018


def using(claim: str) -> Json:
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}


async def test_a_pod_runs_where_its_claims_volume_is(cluster: Cluster) -> None:
    await cluster.add_node("a", labels={ZONE: "za"})
    await cluster.add_node("b", labels={ZONE: "zb"})
    await cluster.add_pod("p", spec=using("data"))
    await cluster.condition("p", '0/2 nodes are available: persistentvolumeclaim "data" not found.')
    claim = await add_claim(cluster, "data", "")
    await cluster.condition("p", "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
    await bind_claim(cluster, claim, "zb")
    assert await cluster.node_of("p") == "b"


async def test_a_waiting_claim_gets_the_smallest_volume_that_its_pod_can_reach(cluster: Cluster) -> None:
    """The volume is promised to the claim; the pod is bound once the claim is."""
    await cluster.add_node("a", labels={ZONE: "za"})
    name, namespace = f"by-hand-{cluster.api.namespace}", cluster.api.namespace
    await cluster.create(
        "/apis/storage.k8s.io/v1/storageclasses",
        storage_objects.storage_class(name, "kubernetes.io/no-provisioner"),
    )
    claim = await add_claim(cluster, "data", name)
    await cluster.add_pod("p", spec=using("data"))
    await cluster.condition(
        "p", "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind."
    )
    for volume, zone, capacity in (("far", "zb", "1Gi"), ("large", "za", "5Gi"), ("small", "za", "2Gi")):
        terms = [build.node_term(f"{ZONE} in {zone}")]
        made = storage_objects.volume(f"{namespace}-{volume}", name, capacity=capacity, terms=terms)
        await cluster.create(_VOLUMES, made)
    if cluster.devcluster is None:
        await _as_the_controller(cluster, [f"{namespace}-{one}" for one in ("far", "large", "small")])
    assert await cluster.node_of("p") == "a"
    stored = (await cluster.api.get(cluster.api.in_namespace(_CLAIMS, "data"))).ok
    # The first volumes that are available may be chosen before the others are there.
    assert stored["spec"]["volumeName"] in (f"{namespace}-small", f"{namespace}-large")
    volume = (await cluster.api.get(f"{_VOLUMES}/{stored['spec']['volumeName']}")).ok
    assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
    await cluster.delete_pod("p")


async def _as_the_controller(cluster: Cluster, volumes: list[str]) -> None:
    """Make the volumes available, and bind the claim to the one that the scheduler promises to it."""
    for name in volumes:
        status = {"status": {"phase": "Available"}}
        (await cluster.api.patch(f"{_VOLUMES}/{name}/status", status)).ok  # noqa: B018

    async def promised() -> list[str]:
        found = [(await cluster.api.get(f"{_VOLUMES}/{name}")).ok for name in volumes]
        return [one["metadata"]["name"] for one in found if (one["spec"].get("claimRef") or {}).get("uid")]

    (name,) = await until(promised, what="a promised volume")
    bound = {
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": name},
    }
    (await cluster.api.patch(cluster.api.in_namespace(_CLAIMS, "data"), bound)).ok  # noqa: B018


@on_devcluster
async def test_the_pods_of_a_stateful_set_run_with_their_claims(cluster: Cluster) -> None:
    for name in "ab":
        await cluster.add_node(name, labels={ZONE: f"z{name}"})
    container = {**build.container("db"), "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    pod = build.pod(labels={"app": "db"}, containers=[container], spec={"schedulerName": NAME})
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    templates = [{"metadata": {"name": "data"}, "spec": claim}]
    stateful_set = workload("StatefulSet", "db", pod, 3, serviceName="db", volumeClaimTemplates=templates)
    path = cluster.api.in_namespace("statefulsets", group="apis/apps/v1")
    await cluster.create(path, stateful_set)

    async def running() -> list[str]:
        pods = await cluster.pods()
        return sorted(one["metadata"]["name"] for one in pods if one["status"].get("phase") == "Running")

    await until(running, lambda names: names == ["db-0", "db-1", "db-2"], what="three running pods")
    claims = (await cluster.api.get(cluster.api.in_namespace(_CLAIMS))).ok["items"]
    assert [one["status"]["phase"] for one in claims] == ["Bound"] * 3
    await cluster.api.delete(f"{path}/db")


@on_devcluster
async def test_writes_that_are_not_answered_are_read(cluster: Cluster) -> None:
    """The volume and the claim have been written."""
    assert cluster.devcluster is not None
    await cluster.add_node("a")
    storage_class = storage_objects.storage_class("local", "kubernetes.io/no-provisioner")
    await cluster.create("/apis/storage.k8s.io/v1/storageclasses", storage_class)
    await cluster.create("/api/v1/persistentvolumes", storage_objects.volume("disk", "local"))
    names = {"old": "local", "new": "standard"}
    for name, kind in names.items():
        await add_claim(cluster, name, kind)
    for kind in ("persistentvolumes", "persistentvolumeclaims"):
        cluster.devcluster.faults.add(Fault(action=Effect.LOSE_ANSWER, verb="patch", kind=kind))
    volumes = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in names]
    await cluster.add_pod("p", spec={"volumes": volumes})
    assert await cluster.node_of("p") == "a"
    assert cluster.devcluster.faults.pending() == []
