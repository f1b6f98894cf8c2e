"""`python -m scheduler enforce` as a process, and a cluster with a user's actions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from scheduler.engine.model.annotations import AFFINITY, GRACE
from scheduler.sandbox.devcluster.cluster import DevCluster
from tests.support import build, daemon
from tests.support.accounts import account_kubeconfig
from tests.support.api_client import Api
from tests.support.build import ZONE, Json
from tests.support.daemon import Daemon
from tests.support.forking import forked
from tests.support.waiting import TIMEOUT_S, until


class Shop:
    """A cluster: a1 and a2 in zone a, b1 and b2 in zone b, and a namespace."""

    def __init__(self, api: Api, kubeconfig: Path, namespace: str = "shop") -> None:
        self.api, self.kubeconfig, self.namespace = api, kubeconfig, namespace

    async def nodes(self) -> None:
        """Create the four nodes."""
        for name in ("a1", "a2", "b1", "b2"):
            (await self.api.post("/api/v1/nodes", build.node(name, labels={ZONE: name[0]}))).ok  # noqa: B018

    async def pod(
        self, name: str, node: str, annotation: Any = None, *, grace: str | None = None, **keywords: Any
    ) -> None:
        """Create the pod and bind it to the node, as another scheduler would."""
        document = build.pod(name, namespace=self.namespace, **keywords)
        document["metadata"].pop("uid")
        document["spec"]["schedulerName"] = "somebody-else"
        annotations = {AFFINITY: json.dumps(annotation)} if annotation else {}
        if grace is not None:
            annotations[GRACE] = grace
        document["metadata"]["annotations"] = annotations
        document.pop("status")
        (await self.api.post(self.path("pods"), document)).ok  # noqa: B018 - asserts success
        await self.bind(name, node)

    async def bind(self, name: str, node: str, **annotations: str) -> None:
        """Bind the pod, as another scheduler would."""
        metadata = {"name": name, "annotations": annotations}
        body = {"metadata": metadata, "target": {"kind": "Node", "name": node}}
        (await self.api.post(f"{self.path('pods')}/{name}/binding", body)).ok  # noqa: B018

    def path(self, plural: str, *, group: str = "api/v1") -> str:
        return f"/{group}/namespaces/{self.namespace}/{plural}"

    async def label(self, path: str, **labels: str | None) -> None:
        """Merge labels into the object at `path`."""
        (await self.api.patch(path, {"metadata": {"labels": labels}})).ok  # noqa: B018

    async def label_node(self, name: str, zone: str) -> None:
        (await self.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {ZONE: zone}}})).ok  # noqa: B018

    async def delete(self, name: str) -> None:
        (await self.api.delete(f"{self.path('pods')}/{name}", {"gracePeriodSeconds": 0})).ok  # noqa: B018

    async def names(self) -> set[str]:
        """Return the pods that are not being deleted."""
        items = (await self.api.get(self.path("pods"))).ok["items"]
        return {one["metadata"]["name"] for one in items if not one["metadata"].get("deletionTimestamp")}

    async def runs(self, name: str) -> None:
        """Wait until the pod is ready: a budget ignores pods that are not."""
        await until(lambda: self.ready(name), what=f"{name} to run")

    async def ready(self, name: str) -> bool:
        pod = (await self.api.get(f"{self.path('pods')}/{name}")).ok
        conditions = pod.get("status", {}).get("conditions") or []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    async def left(self, *names: str) -> None:
        """Wait until exactly these pods are left."""
        await until(self.names, lambda found: found == set(names), what=f"{names} alone")

    async def events(self, name: str, reason: str = "RequiredDuringExecutionViolated") -> list[Json]:
        items = (await self.api.get(self.path("events", group="apis/events.k8s.io/v1"))).ok["items"]
        return [one for one in items if one["regarding"]["name"] == name and one["reason"] == reason]


def deployment(replicas: int, *, annotations: Json | None = None, **spec: Any) -> Json:
    """Return the Deployment web, with this in the spec of its pods."""
    labels, containers = {"app": "web"}, [{"name": "c", "image": "pause"}]
    template = {
        "metadata": {"labels": labels, "annotations": annotations or {}},
        "spec": {"schedulerName": "affinity-scheduler", "containers": containers, **spec},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


@asynccontextmanager
async def shop(folder: Path) -> AsyncIterator[Shop]:
    async with DevCluster(controllers=True) as server, Api(server.url, {}) as api:
        (await api.post("/api/v1/namespaces", build.namespace("shop", labels={"team": "red"}))).ok  # noqa: B018
        shop = Shop(api, account_kubeconfig(server, "enforcer", folder))
        await shop.nodes()
        yield shop


def started(kubeconfig: Path, *arguments: str, **how: Any) -> AbstractAsyncContextManager[Daemon]:
    """Start an enforcer without a limit on shares, as `daemon.started` does a scheduler."""
    return daemon.started(kubeconfig, "--max-share", "100%", *arguments, command="enforce", **how)


def enforcing(kubeconfig: Path, *arguments: str) -> AbstractAsyncContextManager[Daemon]:
    """Start such an enforcer and wait until it is ready. At the end it must stop orderly."""
    return daemon.running(kubeconfig, "--max-share", "100%", *arguments, command="enforce")


async def output(*arguments: str) -> tuple[int, str, str]:
    """Run a command. Return exit code, standard output and standard error."""
    process = await forked("scheduler", *arguments)
    async with asyncio.timeout(TIMEOUT_S):
        out, errors = await process.communicate()
        return await process.wait(), out.decode(), errors.decode()
