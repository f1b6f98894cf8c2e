"""The example quota of KEP-2249: it applies as it is, and keeps affinity across namespaces out of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from scheduler.sandbox.demo.api import ApiSession, RequestError
from scheduler.sandbox.demo.examples import documents, folder
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import CORE_EVENT, DEPLOYMENT, POD, RESOURCE_QUOTA
from scheduler.sandbox.devcluster.storage.store import Store
from tests.support.waiting import until_written

pytestmark = pytest.mark.asyncio

_MANIFEST = "quota-cross-namespace.yaml"
_NAMESPACE = "guest"
_ACROSS: dict[str, Any] = {"namespaceSelector": {}}


@dataclass(frozen=True, slots=True)
class Guarded:
    """A cluster to which the example was applied, its quota counted."""

    store: Store
    api: ApiSession


@pytest_asyncio.fixture
async def guarded() -> AsyncIterator[Guarded]:
    async with DevCluster(nodes=1, controllers=True) as cluster, ApiSession(cluster.url) as api:
        for document in documents(_MANIFEST):
            await api.apply(document)
        await until_written(
            cluster.store, lambda: _status(cluster.store) == {"hard": {"pods": "0"}, "used": {"pods": "0"}}
        )
        yield Guarded(cluster.store, api)


def _status(store: Store) -> Any:
    return store.get(RESOURCE_QUOTA, _NAMESPACE, "no-cross-namespace-affinity").get("status")


def _spec(**term: object) -> dict[str, object]:
    away = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}, **term}
    anti = {"requiredDuringSchedulingIgnoredDuringExecution": [away]}
    return {
        "affinity": {"podAntiAffinity": anti},
        "containers": [{"name": "c", "image": "registry.test/pause:1"}],
    }


def _pod(namespace: str = _NAMESPACE, **term: Any) -> dict[str, Any]:
    metadata = {"name": "p", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _spec(**term)}


@pytest.mark.parametrize("term", [_ACROSS, {"namespaces": ["default"]}, {"namespaces": [_NAMESPACE]}])
async def test_a_pod_that_reaches_across_namespaces_is_refused(
    guarded: Guarded, term: dict[str, Any]
) -> None:
    with pytest.raises(RequestError) as refused:
        await guarded.api.apply(_pod(**term))
    assert refused.value.status == 403
    assert (
        'pods "p" is forbidden: exceeded quota: no-cross-namespace-affinity, requested: pods=1, used: pods=0, '
        "limited: pods=0"
    ) in str(refused.value)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(_pod(), id="within the namespace"),
        pytest.param(_pod("default", **_ACROSS), id="elsewhere"),
    ],
)
async def test_everybody_else_gets_in(guarded: Guarded, pod: dict[str, Any]) -> None:
    await guarded.api.apply(pod)
    assert guarded.store.find(POD, pod["metadata"]["namespace"], "p") is not None
    assert _status(guarded.store)["used"] == {"pods": "0"}


async def test_a_deployments_pods_are_refused_where_its_owner_can_see_it(guarded: Guarded) -> None:
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": _spec(**_ACROSS)}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    guarded.store.create(DEPLOYMENT, _NAMESPACE, {"metadata": {"name": "web"}, "spec": spec})

    def told() -> list[dict[str, Any]]:
        return guarded.store.list(CORE_EVENT, _NAMESPACE, field_selector="reason=FailedCreate")[0]

    await until_written(guarded.store, told)
    assert "exceeded quota: no-cross-namespace-affinity" in told()[0]["message"]


async def test_the_example_says_how_to_use_it() -> None:
    text = (folder() / _MANIFEST).read_text()
    assert f"kubectl apply -f {_MANIFEST}" in text
    assert "CrossNamespacePodAffinity" in text
