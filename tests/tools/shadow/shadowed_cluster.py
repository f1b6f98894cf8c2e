"""
A cluster drawn by seed on a real API server, and pods of all shapes for another scheduler, created one after another.

A life is one such cluster. Nothing of it is left at its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from random import Random
from typing import Final

from tests.engine.core.drawn_objects import Cluster, Templates, pod_of
from tests.engine.plugins.lives import Applied
from tests.support import storage_objects as storage
from tests.support.api_client import Api
from tests.support.build import ZONE, Json, node_term, toleration
from tests.support.waiting import until

#: By PriorityClass. Suites before this one may have left classes with plainer names on the server.
_PRIORITIES: Final = {"shadowed-low": -5, "shadowed-high": 1000}
_CLASS, _DRIVER = "dynamic", "ebs.csi.aws.com"
_CLAIMS: Final = "/api/v1/namespaces/default/persistentvolumeclaims"
_VOLUMES: Final = "/api/v1/persistentvolumes"
_PATHS: Final = {
    "Node": "/api/v1/nodes",
    "Namespace": "/api/v1/namespaces",
    "Service": "/api/v1/namespaces/default/services",
    "PersistentVolume": _VOLUMES,
    "PersistentVolumeClaim": _CLAIMS,
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
}
#: Not to wait for anything: it keeps what happens apart, so that no order but one explains a decision.
_PAUSE_S: Final = 0.15
_NOW: Final = {"gracePeriodSeconds": 0}


async def create_classes(api: Api) -> None:
    """Create the priority and storage classes of all lives, unless an earlier test has."""
    if (await api.get(f"{_PATHS['StorageClass']}/{_CLASS}")).code == HTTPStatus.OK:
        return
    for name, value in _PRIORITIES.items():
        await _create(api, {"kind": "PriorityClass", "metadata": {"name": name}, "value": value})
    await _create(api, storage.storage_class(_CLASS, "d.example.com"))


class Life:
    """
    One cluster and its pods, which are of the scheduler `scheduler_name`.

    With `with_waits` there are claims, which are bound only once a node was chosen for their pod. How volumes of other
    kinds decide is recorded (tests/data).
    """

    def __init__(self, api: Api, number: int, scheduler_name: str, *, with_waits: bool) -> None:
        self._api, self._number, self._scheduler_name = api, number, scheduler_name
        self._with_waits = with_waits
        self._chance = Random(number)
        self._cluster = Cluster(self._chance)
        self._cluster.n_nodes = min(self._cluster.n_nodes, 40)
        templates = Templates(self._chance)
        self._templates = [templates.draw() for _ in range(self._chance.choice([1, 3, 9]))]
        #: Paths of the pods that were decided, and whether each has a node.
        self._pods: dict[str, bool] = {}

    async def begin(self) -> None:
        """Create nodes and namespaces."""
        for applied in self._cluster.beginning():
            await self._apply(applied)

    async def play(self, n_pods: int) -> None:
        """Create pods, each once the one before is decided, and change the cluster now and then."""
        for index in range(n_pods):
            await self._create_pod(f"p{self._number}-{index}")
            await asyncio.sleep(_PAUSE_S)
            while self._chance.random() < 0.25:
                await self._change()
                await asyncio.sleep(_PAUSE_S)

    async def end(self) -> None:
        """Delete everything."""
        for is_bound in (False, True):
            for path in [path for path, bound in self._pods.items() if bound == is_bound]:
                await self._api.delete(path, _NOW)
        for kind in ("PersistentVolumeClaim", "PersistentVolume", "Service", "Node"):
            for found in (await self._api.get(_PATHS[kind])).ok["items"]:
                path = f"{_PATHS[kind]}/{found['metadata']['name']}"
                if found["metadata"].get("finalizers"):
                    await self._api.patch(path, {"metadata": {"finalizers": None}})
                await self._api.delete(path, _NOW)

    # -- what happens ------------------------------------------------------------------------------------------

    async def _change(self) -> None:
        drawn = self._chance.random()
        if drawn < 0.6 and self._pods:
            path = self._chance.choice(list(self._pods))
            del self._pods[path]
            await self._api.delete(path, _NOW)
        elif drawn < 0.85:
            await self._apply(self._cluster.node(self._chance.randrange(self._cluster.n_nodes)))
        elif drawn < 0.95:
            await self._apply(self._cluster.space(self._chance.choice(["default", "blue", "green"])))
        else:
            await self._apply(self._cluster.service())

    async def _apply(self, applied: Applied) -> None:
        """Create the object, or replace what may change of it."""
        made = applied.object
        if made["kind"] == "Service":
            made["spec"]["ports"] = [{"port": 80}]
        path = f"{_PATHS[made['kind']]}/{made['metadata']['name']}"
        stored = await self._api.get(path)
        if stored.code == 404:
            await _create(self._api, made)
            return
        before = stored.ok
        after = {**before, "spec": {**before.get("spec", {}), **made.get("spec", {})}}
        after["metadata"] = {**before["metadata"], "labels": made["metadata"].get("labels", {})}
        if made["kind"] == "Node":
            after["spec"] = made["spec"]
        (await self._api.put(path, after)).ok  # noqa: B018 - asserts success

    # -- pods --------------------------------------------------------------------------------------------------

    async def _create_pod(self, name: str) -> None:
        chance = self._chance
        made = pod_of(chance.choice(self._templates), name)
        made["metadata"].pop("annotations", None)
        for field in ("uid", "ownerReferences"):
            made["metadata"].pop(field, None)
        spec = made["spec"]
        spec |= {"schedulerName": self._scheduler_name, "terminationGracePeriodSeconds": 0}
        if chance.random() < 0.2:
            spec["priorityClassName"] = chance.choice(list(_PRIORITIES))
        if chance.random() < 0.1:
            spec["tolerations"] = [toleration("node.kubernetes.io/unschedulable"), toleration("k", "Exists")]
        if chance.random() < 0.15:
            spec["containers"][0]["resources"] = {"requests": {"cpu": chance.choice(["900m", "2", "3"])}}
        claim = ""
        if self._with_waits and chance.random() < 0.25:
            made["metadata"]["namespace"], claim = "default", name
            await _create(self._api, storage.claim(name, _CLASS))
            await asyncio.sleep(_PAUSE_S)
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
        space = made["metadata"]["namespace"]
        (await self._api.post(f"/api/v1/namespaces/{space}/pods", made)).ok  # noqa: B018 - asserts success
        path = f"/api/v1/namespaces/{space}/pods/{name}"

        async def decided() -> bool:
            if claim:
                await self._provision(claim)
            answer = await self._api.get(path)
            if answer.code == 404:
                return True
            self._pods[path] = bool(answer.ok["spec"].get("nodeName"))
            conditions = answer.ok["status"].get("conditions", [])
            return self._pods[path] or any(c.get("reason") == "Unschedulable" for c in conditions)

        await until(decided, what=f"a decision on {name}")

    async def _provision(self, claim: str) -> None:
        """Make the volume of a claim for which a node was chosen, as a provisioner does."""
        found = await self._api.get(f"{_CLAIMS}/{claim}")
        if found.code == 404 or found.ok["spec"].get("volumeName"):
            return
        node = found.ok["metadata"].get("annotations", {}).get("volume.kubernetes.io/selected-node")
        if node is None:
            return
        labels = (await self._api.get(f"/api/v1/nodes/{node}")).ok["metadata"]["labels"]
        made = storage.volume(
            f"pvc-{claim}",
            _CLASS,
            terms=[node_term(f"{ZONE} in {labels[ZONE]}")] if ZONE in labels else None,
            claimed_by=f"default/{claim}",
            claim_uid=found.ok["metadata"]["uid"],
            source={"csi": {"driver": _DRIVER, "volumeHandle": claim}},
        )
        await self._api.post(_VOLUMES, _as_new(made))


async def _create(api: Api, made: Json) -> Json:
    stored: Json = (await api.post(_PATHS[made["kind"]], _as_new(made))).ok
    return stored


def _as_new(made: Json) -> Mapping[str, object]:
    metadata = {key: value for key, value in made["metadata"].items() if key != "uid"}
    return {**made, "metadata": metadata}
