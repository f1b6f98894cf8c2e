"""A cluster under test: what a user does with kubectl, and what is read back from the API server to judge by."""

from typing import Any

import yaml

from scheduler.devcluster.server import DevCluster
from tests.devcluster.contract.client import Api
from tests.integration.waiting import TIMEOUT_S, until
from tests.reference.cluster import Cluster as Reference
from tests.support import build
from tests.support.build import Json

NAME = "affinity-scheduler"
_NODES = "/api/v1/nodes"
_PODS = "/api/v1/pods"


class Cluster:
    """One API server and a namespace in it; `devcluster` is None where the server is a real one."""

    def __init__(self, api: Api, kubeconfig: str, devcluster: DevCluster | None) -> None:
        self.api = api
        self.kubeconfig = kubeconfig
        self.devcluster = devcluster

    # What a user does.

    async def add_node(self, name: str, **settings: Any) -> None:
        """The node of `build.node` is there and has its status."""
        node = build.node(name, **settings)
        (await self.api.post(_NODES, node)).ok  # noqa: B018 - asserts success
        (await self.api.patch(f"{_NODES}/{name}/status", {"status": node["status"]})).ok  # noqa: B018

    async def edit_node(self, name: str, change: Json) -> None:
        """The merge patch is applied to the node."""
        (await self.api.patch(f"{_NODES}/{name}", change)).ok  # noqa: B018

    async def add_pod(self, name: str, *, cpu: str = "", scheduler: str = NAME, **settings: Any) -> Json:
        """The pod of `build.pod` as stored, for our scheduler unless said otherwise."""
        if cpu:
            settings["containers"] = [build.container(requests={"cpu": cpu})]
        spec = {"schedulerName": scheduler, **settings.pop("spec", {})}
        pod = build.pod(name, namespace=self.api.namespace, spec=spec, **settings)
        pod["metadata"].pop("uid")
        pod.pop("status")
        stored: Json = (await self.api.post(self.api.pods(), pod)).ok
        return stored

    async def delete_pod(self, name: str) -> None:
        """The pod is gone, without grace."""
        path = self.api.pods(name)
        (await self.api.delete(path, {"gracePeriodSeconds": 0})).ok  # noqa: B018

    # What is there.

    async def pod(self, name: str) -> Json:
        """The pod as the server has it."""
        found: Json = (await self.api.get(self.api.pods(name))).ok
        return found

    async def pods(self) -> list[Json]:
        """All pods of the namespace."""
        found: list[Json] = (await self.api.get(self.api.pods())).ok["items"]
        return found

    async def node_of(self, name: str, *, timeout_s: float = TIMEOUT_S) -> str:
        """Where the pod is bound, once it is."""
        pod = await until(
            lambda: self.pod(name),
            lambda pod: pod["spec"].get("nodeName"),
            timeout_s=timeout_s,
            what=f"{name} bound",
        )
        node_name: str = pod["spec"]["nodeName"]
        return node_name

    async def all_bound(self, n_pods: int, *, timeout_s: float = TIMEOUT_S) -> list[Json]:
        """All pods of the namespace, once there are so many and each has its node."""
        return await until(
            self.pods,
            lambda pods: len(pods) == n_pods and all(pod["spec"].get("nodeName") for pod in pods),
            timeout_s=timeout_s,
            what=f"{n_pods} pods bound",
        )

    async def condition(self, name: str, message: str) -> Json:
        """The pod's PodScheduled condition, once it has this message."""
        found = await until(
            lambda: self._scheduled(name),
            lambda one: one.get("message") == message,
            what=f"{name}: {message!r}",
        )
        assert found["status"] == "False"
        return found

    async def _scheduled(self, name: str) -> Json:
        conditions = (await self.pod(name)).get("status", {}).get("conditions") or []
        return next((one for one in conditions if one["type"] == "PodScheduled"), {})

    async def events(self, name: str, reason: str) -> list[Json]:
        """The events of this reason about the pod, oldest first."""
        path = self.api.in_namespace("events", group="apis/events.k8s.io/v1")
        items: list[Json] = (await self.api.get(path)).ok["items"]
        about = [one for one in items if one["regarding"]["name"] == name and one["reason"] == reason]
        return sorted(about, key=lambda one: str(one["eventTime"]))

    # What must hold.

    async def assert_sound(self) -> None:
        """Every pod that we placed would be let in again by the reference: no room or rule is broken."""
        nodes: list[Json] = (await self.api.get(_NODES)).ok["items"]
        pods: list[Json] = (await self.api.get(_PODS)).ok["items"]
        namespaces: list[Json] = (await self.api.get("/api/v1/namespaces")).ok["items"]
        reference = Reference()
        for kind, objects in (("Node", nodes), ("Pod", pods), ("Namespace", namespaces)):
            for one in objects:
                reference.apply({**one, "kind": kind})
        names = {node["metadata"]["name"] for node in nodes}
        for pod in pods:
            node_name = pod["spec"].get("nodeName")
            if node_name not in names or pod["spec"]["schedulerName"] != NAME:
                continue
            meta = pod["metadata"]
            reference.delete("Pod", meta["namespace"], meta["name"])
            refusals = reference.evaluate({**pod, "spec": {**pod["spec"], "nodeName": ""}}).get("filter", {})
            broken = {
                plugin: by_node[node_name] for plugin, by_node in refusals.items() if node_name in by_node
            }
            assert not broken, f"{meta['name']} on {node_name}: {broken}"
            reference.apply({**pod, "kind": "Pod"})

    async def clear(self) -> None:
        """No pod of the namespace and no node is left."""
        for pod in await self.pods():
            await self.api.delete(self.api.pods(pod["metadata"]["name"]), {"gracePeriodSeconds": 0})
        for node in (await self.api.get(_NODES)).ok["items"]:
            await self.api.delete(f"{_NODES}/{node['metadata']['name']}")


def kubeconfig_text(url: str, *, token: str = "", ca_file: str = "") -> str:
    """A kubeconfig of one cluster and one user."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "c",
                    "cluster": {"server": url, **({"certificate-authority": ca_file} if ca_file else {})},
                }
            ],
            "users": [{"name": "u", "user": {"token": token} if token else {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )
