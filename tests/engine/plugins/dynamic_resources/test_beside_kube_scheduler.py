"""Drawn clusters on a real API server: the real kube-scheduler allocates the devices that ours would."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Coroutine
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis.database import InMemoryExampleDatabase

from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.plugins.dynamic_resources.allocator import Allocator
from scheduler.engine.plugins.dynamic_resources.answers import Answer, NotAllocated
from scheduler.engine.plugins.dynamic_resources.selection import SelectorResults
from tests.engine.plugins.dynamic_resources.clusters import allocated, decoded, indexed, node_of
from tests.engine.plugins.dynamic_resources.device_clusters import CLUSTERS, NODES, Cluster
from tests.support.api_client import Api
from tests.support.apiserver import Address
from tests.support.build import Json, container
from tests.support.cluster import kubeconfig_text
from tests.support.device_documents import using_claims
from tests.support.waiting import until
from tests.tools.shadow.test_loop import KUBE_SCHEDULER, OTHER, kube_scheduler, process

pytestmark = [pytest.mark.real, pytest.mark.slow]

_GROUP = "/apis/resource.k8s.io/v1"
_CLAIMS = f"{_GROUP}/namespaces/default/resourceclaims"
_PODS = "/api/v1/namespaces/default/pods"
_LABELS = {"node-0": {"zone": "z"}, "node-1": {}}
#: Clusters, of four pods at most each, unless `--lives` tells otherwise.
_N_CLUSTERS = 5
#: Until the watches of kube-scheduler have shown what was written.
_PAUSE_S = 0.3
_NOW = {"gracePeriodSeconds": 0}


class _Beside:
    """A server whose pods a kube-scheduler places, one after the other."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.n_bound = self.n_refused = self.n_left_out = 0

    async def begin(self) -> None:
        """Create the nodes."""
        for name, labels in _LABELS.items():
            node = {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {"pods": "100"}}}
            (await self._api.post("/api/v1/nodes", node)).ok  # noqa: B018 - asserts success

    async def compare(self, cluster: Cluster) -> None:
        """Play one cluster, and compare the devices of each pod."""
        slices, classes, claims = _storable(cluster)
        made = [
            *[(f"{_GROUP}/deviceclasses", each) for each in classes],
            *[(f"{_GROUP}/resourceslices", each) for each in slices],
        ]
        try:
            # The API server does not take every cluster that is drawn.
            if not all([await self._create(path, each) for path, each in made]):
                self.n_left_out += 1
                return
            await asyncio.sleep(_PAUSE_S)
            for number in range(0, len(claims), 2):
                await self._compare_pod(f"p{number}", claims[number : number + 2], slices)
        finally:
            await self._delete_all()

    async def _create(self, path: str, made: Json) -> bool:
        return (await self._api.post(path, made)).code == HTTPStatus.CREATED

    async def _compare_pod(self, name: str, claims: list[Json], cluster: list[Json]) -> None:
        wanted = [{**each, "metadata": {"name": each["metadata"]["name"]}} for each in claims]
        if not all([await self._create(_CLAIMS, each) for each in wanted]):
            self.n_left_out += 1
            return
        names = [each["metadata"]["name"] for each in wanted]
        stored = await self._stored(DeviceKind.CLAIM)
        answers = {node: self._answer(stored, names, node, await self._devices()) for node in NODES}
        await asyncio.sleep(_PAUSE_S)
        spec = {"schedulerName": OTHER, "containers": [container()], **using_claims(*names)}
        (await self._api.post(_PODS, {"metadata": {"name": name}, "spec": spec})).ok  # noqa: B018
        node, message = await self._decided(name)
        if not node:
            self.n_refused += 1
            refusals = [each for each in answers.values() if isinstance(each, NotAllocated)]
            # An error on one node ends the cycle.
            errors = [each for each in refusals if each.answer is Answer.ERROR]
            assert errors or len(refusals) == len(answers), (message, answers, claims)
            assert any(each.text in message for each in errors or refusals), (message, refusals)
            return
        self.n_bound += 1
        answer = answers[node]
        assert not isinstance(answer, NotAllocated), (node, answer, claims)
        shown = await self._stored(DeviceKind.CLAIM)
        for ours, claim in zip(answer, names, strict=True):
            theirs = next(each for each in shown if each["metadata"]["name"] == claim)
            results = theirs["status"]["allocation"]["devices"]["results"]
            expected = _results(json.loads(msgspec.json.encode(ours.devices.results)))
            assert expected == _results(results), (expected, _results(results), claims, cluster)

    def _answer(self, stored: list[Json], names: list[str], node: str, devices: list[list[Json]]) -> Any:
        slices = [decoded(DeviceKind.SLICE, each) for each in devices[0]]
        classes = [decoded(DeviceKind.CLASS, each) for each in devices[1]]
        claims: Any = [decoded(DeviceKind.CLAIM, each) for each in stored]
        in_use = allocated([each.allocation for each in claims if each.allocation is not None])
        by_name: Any = {each.key: each for each in classes}
        wanted = [each for name in names for each in claims if each.key == f"default/{name}"]
        index: Any = indexed(slices)
        allocator = Allocator(index, in_use, by_name, SelectorResults(), seed="seed")
        return allocator.allocate(node_of(node, _LABELS[node]), wanted)

    async def _devices(self) -> list[list[Json]]:
        return [await self._stored(DeviceKind.SLICE), await self._stored(DeviceKind.CLASS)]

    async def _stored(self, kind: DeviceKind) -> list[Json]:
        path = {
            DeviceKind.SLICE: f"{_GROUP}/resourceslices",
            DeviceKind.CLASS: f"{_GROUP}/deviceclasses",
            DeviceKind.CLAIM: _CLAIMS,
        }[kind]
        items: list[Json] = (await self._api.get(path)).ok["items"]
        return items

    async def _decided(self, name: str) -> tuple[str, str]:
        """Return the node of the pod, or the message of the condition that says why it has none."""

        async def decided() -> tuple[str, str]:
            pod = (await self._api.get(f"{_PODS}/{name}")).ok
            conditions = {each["type"]: each for each in pod["status"].get("conditions", [])}
            node = pod["spec"].get("nodeName", "")
            return node, "" if node else conditions.get("PodScheduled", {}).get("message", "")

        return await until(decided, any, what=f"a decision on {name}")

    async def _delete_all(self) -> None:
        for pod in (await self._api.get(_PODS)).ok["items"]:
            await self._api.delete(f"{_PODS}/{pod['metadata']['name']}", _NOW)
        for claim in await self._stored(DeviceKind.CLAIM):
            path = f"{_CLAIMS}/{claim['metadata']['name']}"
            await self._api.delete(path)
            freed = {"metadata": {"finalizers": None}, "status": None}
            await self._api.patch(f"{path}/status", {"status": {"reservedFor": None, "allocation": None}})
            await self._api.patch(path, freed)
        for path in (f"{_GROUP}/resourceslices", f"{_GROUP}/deviceclasses"):
            await self._api.delete(path)


def _storable(cluster: Cluster) -> Cluster:
    """
    Return a copy of the cluster without what the API server refuses, and without waits for drivers.

    Without counters too, which upstream keeps for refused devices (kubernetes #140436) and by the pool's name alone.
    """
    slices, classes, claims = json.loads(json.dumps(cluster))
    for device in (device for each in slices for device in each["spec"].get("devices", [])):
        device.pop("bindingConditions", None)
        device.pop("consumesCounters", None)
        if not device.get("allowMultipleAllocations"):
            for capacity in device.get("capacity", {}).values():
                capacity.pop("requestPolicy", None)
    for claim in claims:
        devices = claim["spec"]["devices"]
        names = {each["name"] for each in devices["requests"]}
        for request in devices["requests"]:
            names |= {f"{request['name']}/{each['name']}" for each in request.get("firstAvailable", [])}
            request.get("exactly", {}).pop("adminAccess", None)
        for constraint in devices.get("constraints", []):
            constraint["requests"] = [each for each in constraint["requests"] if each in names]
    return slices, classes, claims


def _results(results: list[Json]) -> list[tuple[object, ...]]:
    """Return what two allocations have in common; an ID of a share is drawn."""
    return [
        (
            each["request"], each["driver"], each["pool"], each["device"], bool(each.get("adminAccess")),
            each.get("consumedCapacity") or {}, "shareID" in each,
        )
        for each in results
    ]  # fmt: skip


@pytest.mark.skipif(not KUBE_SCHEDULER.is_file(), reason="no kube-scheduler beside the API server's binaries")
@pytest.mark.timeout(0)
def test_kube_scheduler_allocates_the_same_devices(
    real_server: Address, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """`--lives 150 -o faulthandler_timeout=0` is about 300 pods."""
    kubeconfig, ca_file = tmp_path / "kubeconfig", str(real_server.ca_file)
    kubeconfig.write_text(kubeconfig_text(real_server.url, token=real_server.token, ca_file=ca_file))
    headers = {"Authorization": f"Bearer {real_server.token}"}
    n_clusters = pytestconfig.option.lives or _N_CLUSTERS
    runner = asyncio.Runner()

    def run(coroutine: Coroutine[Any, Any, None]) -> None:
        runner.run(coroutine)

    with runner:
        api = Api(real_server.url, headers, ssl=ssl.create_default_context(cafile=ca_file))
        other = process(*kube_scheduler(kubeconfig, tmp_path, "1.36"), log=tmp_path / "kube-scheduler.log")
        runner.run(api.__aenter__())
        runner.run(other.__aenter__())
        beside = _Beside(api)
        try:
            run(beside.begin())

            @settings(max_examples=n_clusters, phases=[Phase.generate], database=InMemoryExampleDatabase())
            @given(CLUSTERS)
            def compare(cluster: Cluster) -> None:
                run(beside.compare(cluster))

            compare()
        finally:
            print(f"{beside.n_bound} bound, {beside.n_refused} refused, {beside.n_left_out} not stored")
            runner.run(other.__aexit__(None, None, None))
            runner.run(api.__aexit__(None, None, None))
    assert beside.n_bound > 0
