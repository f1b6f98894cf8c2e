"""A cluster under test: the user's actions, and the results as the API server has them."""

from pathlib import Path
from typing import Any

import yaml

from scheduler.sandbox.devcluster.cluster import DevCluster
from tests.reference.cluster import Cluster as Reference
from tests.support import build
from tests.support.api_client import Api
from tests.support.apiserver import Address
from tests.support.build import Json
from tests.support.messages import refusals
from tests.support.waiting import TIMEOUT_S, until

NAME = "affinity-scheduler"
_NODES = "/api/v1/nodes"
_PODS = "/api/v1/pods"


class Cluster:
    """One API server and a namespace in it; `devcluster` is None for a real server."""

    def __init__(self, api: Api, kubeconfig: str, devcluster: DevCluster | None) -> None:
        self.api = api
        self.kubeconfig = kubeconfig
        self.devcluster = devcluster

    # The user's actions.

    async def add_node(self, name: str, **settings: Any) -> None:
        """Create the node of `build.node` with its status."""
        node = build.node(name, **settings)
        (await self.api.post(_NODES, node)).ok  # noqa: B018 - asserts success
        (await self.api.patch(f"{_NODES}/{name}/status", {"status": node["status"]})).ok  # noqa: B018

    async def edit_node(self, name: str, change: Json) -> None:
        """Apply the merge patch to the node."""
        (await self.api.patch(f"{_NODES}/{name}", change)).ok  # noqa: B018

    async def add_pod(self, name: str, *, cpu: str = "", scheduler: str = NAME, **settings: Any) -> Json:
        """Create the pod of `build.pod`, by default for our scheduler, and return it as stored."""
        if cpu:
            settings["containers"] = [build.container(requests={"cpu": cpu})]
        spec = {"schedulerName": scheduler, **settings.pop("spec", {})}
        pod = build.pod(name, namespace=self.api.namespace, spec=spec, **settings)
        return await self.create(self.api.pods(), pod)

    async def create(self, path: str, made: Json) -> Json:
        """Create the object at the path without the fields that the server writes, and return it as stored."""
        for field in ("uid", "namespace"):
            made["metadata"].pop(field, None)
        made.pop("status", None)
        stored: Json = (await self.api.post(path, made)).ok
        return stored

    async def add_priority_class(self, name: str, value: int, **more: str) -> None:
        """Create the class, unless an earlier test has."""
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        made = {**kind, "metadata": {"name": name}, "value": value, **more}
        await self.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", made)

    async def delete_pod(self, name: str) -> None:
        """Delete the pod without grace."""
        path = self.api.pods(name)
        (await self.api.delete(path, {"gracePeriodSeconds": 0})).ok  # noqa: B018

    # Results.

    async def pod(self, name: str) -> Json:
        """Return the pod as the server has it."""
        found: Json = (await self.api.get(self.api.pods(name))).ok
        return found

    async def pods(self) -> list[Json]:
        """Return all pods of the namespace."""
        found: list[Json] = (await self.api.get(self.api.pods())).ok["items"]
        return found

    async def n_bound(self) -> int:
        """Return how many pods of the namespace have a node."""
        return sum("nodeName" in pod["spec"] for pod in await self.pods())

    async def node_of(self, name: str, *, timeout_s: float = TIMEOUT_S) -> str:
        """Wait until the pod is bound and return its node."""
        pod = await until(
            lambda: self.pod(name),
            lambda pod: pod["spec"].get("nodeName"),
            timeout_s=timeout_s,
            what=f"{name} bound",
        )
        node_name: str = pod["spec"]["nodeName"]
        return node_name

    async def all_bound(self, n_pods: int, *, timeout_s: float = TIMEOUT_S) -> list[Json]:
        """Wait until this number of pods exists and each has its node; return all pods of the namespace."""
        return await until(
            self.pods,
            lambda pods: len(pods) == n_pods and all(pod["spec"].get("nodeName") for pod in pods),
            timeout_s=timeout_s,
            what=f"{n_pods} pods bound",
        )

    async def condition(self, name: str, message: str) -> Json:
        """Wait until the pod's PodScheduled condition has this message, preemption aside, and return it."""
        found = await until(
            lambda: self._scheduled(name),
            lambda one: refusals(one.get("message", "")) == message,
            what=f"{name}: {message!r}",
        )
        assert found["status"] == "False"
        return found

    async def _scheduled(self, name: str) -> Json:
        conditions = (await self.pod(name)).get("status", {}).get("conditions") or []
        return next((one for one in conditions if one["type"] == "PodScheduled"), {})

    async def events(self, name: str, reason: str) -> list[Json]:
        """Return the events of this reason about the pod, oldest first."""
        path = self.api.in_namespace("events", group="apis/events.k8s.io/v1")
        items: list[Json] = (await self.api.get(path)).ok["items"]
        about = [one for one in items if one["regarding"]["name"] == name and one["reason"] == reason]
        return sorted(about, key=lambda one: str(one["eventTime"]))

    # Invariants.

    async def assert_sound(self) -> None:
        """Check with the reference that every pod that we bound fits its node and breaks no rule."""
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
            pending = {**pod, "kind": "Pod", "spec": {**pod["spec"], "nodeName": ""}}
            refused = reference.evaluate(pending).get("filter", {})
            broken = {
                plugin: by_node[node_name] for plugin, by_node in refused.items() if node_name in by_node
            }
            assert not broken, f"{meta['name']} on {node_name}: {broken}"
            reference.apply({**pod, "kind": "Pod"})

    async def clear(self) -> None:
        """Delete all pods of the namespace and all nodes."""
        for pod in await self.pods():
            await self.api.delete(self.api.pods(pod["metadata"]["name"]), {"gracePeriodSeconds": 0})
        for node in (await self.api.get(_NODES)).ok["items"]:
            await self.api.delete(f"{_NODES}/{node['metadata']['name']}")


def kubeconfig_of(address: Address, path: Path, *, token: str = "") -> Path:
    """Write a kubeconfig of a real server, with the token of an administrator unless one is given."""
    path.touch(mode=0o600)
    path.write_text(kubeconfig_text(address.url, token=token or address.token, ca_file=str(address.ca_file)))
    return path


def kubeconfig_text(url: str, *, token: str = "", ca_file: str = "") -> str:
    cluster = {"server": url, **({"certificate-authority": ca_file} if ca_file else {})}
    text = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token} if token else {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    return yaml.safe_dump(text)
