"""Pods with claims, and with extended resources that a class provides; drivers are a test's."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from tests.support import build, device_documents
from tests.support.build import Json
from tests.support.cluster import Cluster
from tests.support.waiting import until
from tests.system.processes.conftest import embedded, real

_RESOURCE = "/apis/resource.k8s.io/v1"


@pytest.fixture(scope="module", params=["devcluster", pytest.param("real", marks=pytest.mark.real)])
async def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """Yield a cluster without controllers, with the devices of two nodes."""
    folder = tmp_path_factory.mktemp("server")
    is_real = request.param == "real"
    server = real(folder, request.getfixturevalue("real_server")) if is_real else embedded(folder)
    async with server as cluster:
        made = [
            ("deviceclasses", device_documents.device_class("gpu", "example.com/gpu")),
            ("resourceslices", device_documents.device_slice("a", 2)),
            ("resourceslices", device_documents.device_slice("b", 2)),
        ]
        for plural, document in made:
            await cluster.create(f"{_RESOURCE}/{plural}", document)
        yield cluster
        for plural, document in made:
            await cluster.api.delete(f"{_RESOURCE}/{plural}/{document['metadata']['name']}")


def _claims(cluster: Cluster) -> str:
    return f"{_RESOURCE}/namespaces/{cluster.api.namespace}/resourceclaims"


async def _add_claim(cluster: Cluster, name: str) -> None:
    await cluster.create(_claims(cluster), device_documents.resource_claim(name))


async def _add_pod(cluster: Cluster, name: str, *claims: str, requests: dict[str, str] | None = None) -> None:
    container = build.container(requests=requests)
    if requests:
        container["resources"]["limits"] = requests
    await cluster.add_pod(name, containers=[container], spec=device_documents.using_claims(*claims))


async def _bound(cluster: Cluster, n_pods: int) -> dict[str, Json]:
    return {pod["metadata"]["name"]: pod for pod in await cluster.all_bound(n_pods)}


async def test_claims_are_allocated_and_reserved_for_their_pods(cluster: Cluster) -> None:
    for node in "ab":
        await cluster.add_node(node)
    for name in ("c1", "c2", "shared"):
        await _add_claim(cluster, name)
    for name, claim in (("p1", "c1"), ("p2", "c2"), ("p3", "shared"), ("p4", "shared")):
        await _add_pod(cluster, name, claim)
    pods = await _bound(cluster, 4)
    claims = {
        claim["metadata"]["name"]: claim["status"]
        for claim in (await cluster.api.get(_claims(cluster))).ok["items"]
    }
    assert {
        name: sorted(each["name"] for each in status["reservedFor"]) for name, status in claims.items()
    } == {
        "c1": ["p1"],
        "c2": ["p2"],
        "shared": ["p3", "p4"],
    }
    for name, claim in (("p1", "c1"), ("p2", "c2"), ("p3", "shared"), ("p4", "shared")):
        (result,) = claims[claim]["allocation"]["devices"]["results"]
        assert result["pool"] == pods[name]["spec"]["nodeName"]
    for name in ("c1", "c2", "shared"):
        await _free(cluster, name)


async def test_an_extended_resource_gets_a_claim_of_its_own(cluster: Cluster) -> None:
    await cluster.add_node("a")
    await _add_pod(cluster, "gpus", requests={"example.com/gpu": "2"})
    pods = await _bound(cluster, 1)
    status = pods["gpus"]["status"]["extendedResourceClaimStatus"]
    assert status["requestMappings"] == [
        {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}
    ]
    claim = (await cluster.api.get(f"{_claims(cluster)}/{status['resourceClaimName']}")).ok
    assert claim["metadata"]["ownerReferences"][0]["name"] == "gpus"
    assert len(claim["status"]["allocation"]["devices"]["results"]) == 2
    assert [each["name"] for each in claim["status"]["reservedFor"]] == ["gpus"]
    # The check afterwards knows no devices.
    await cluster.delete_pod("gpus")
    await _free(cluster, status["resourceClaimName"])


async def test_a_pod_with_both_kinds_of_claims_has_one_of_each(cluster: Cluster) -> None:
    """
    On the embedded server after a conflict and a refused bind.

    The claim is read again; the claim of a pod that is not bound is deleted, and made anew.
    """
    faults = None if cluster.devcluster is None else cluster.devcluster.faults
    await cluster.add_node("a")
    await _add_claim(cluster, "own")
    if faults is not None:
        faults.add(
            Fault(action=Effect.RESPOND, verb="patch", kind="resourceclaims.resource.k8s.io", code=409),
            Fault(action=Effect.RESPOND, path="/pods/[^/]+/binding", code=403),
        )
    await _add_pod(cluster, "both", "own", requests={"example.com/gpu": "1"})
    pods = await _bound(cluster, 1)
    assert faults is None or faults.pending() == []
    made = pods["both"]["status"]["extendedResourceClaimStatus"]["resourceClaimName"]

    async def names() -> list[str]:
        return sorted(
            each["metadata"]["name"] for each in (await cluster.api.get(_claims(cluster))).ok["items"]
        )

    await until(names, sorted([made, "own"]).__eq__, what="one claim for the extended resource")
    await cluster.delete_pod("both")
    await _free(cluster, made)
    await _free(cluster, "own")


async def _free(cluster: Cluster, name: str) -> None:
    """Deallocate and delete the claim, as the claim controller does, which does not run here."""
    path = f"{_claims(cluster)}/{name}"
    claim = (await cluster.api.get(path)).ok
    claim["status"] = {}
    claim = (await cluster.api.put(f"{path}/status", claim)).ok
    claim["metadata"]["finalizers"] = []
    (await cluster.api.put(path, claim)).ok  # noqa: B018
    await cluster.api.delete(path)
