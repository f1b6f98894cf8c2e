"""Create, read and delete a scene's objects on an API server, with many concurrent requests."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import aclosing, asynccontextmanager
from typing import Final, TypeVar

import aiohttp
import msgspec

from scheduler.engine.framework.kinds import KINDS
from tests.bench import devices
from tests.bench.measuring import cpu_s
from tests.bench.scene import Scene
from tests.bench.servers import Server
from tests.bench.templates import Planned, Template, as_new, priority_class
from tests.bench.volumes import claim_and_volume
from tests.support import build
from tests.support.api_client import MERGE, Api
from tests.support.build import ZONE, Json
from tests.support.custom_kinds import KUBERNETES, group

_CONCURRENCY: Final = 32
_PAGE: Final = 500
#: How long a watch may bring no new binding.
STALLED_S: Final = 90.0
_SILENT_S: Final = 15.0
_RESOURCE: Final = "/apis/resource.k8s.io/v1"


T = TypeVar("T")


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Pod(msgspec.Struct):
    """A pod, or the status that ends a watch: it has no node either."""

    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Event(msgspec.Struct):
    type: str
    object: _Pod


class Timing(msgspec.Struct):
    """Seconds at which the watch showed bindings, by a monotonic clock, and CPU seconds used before the first."""

    bound_s: list[float] = []
    cpu_before_s: float = 0.0
    server_cpu_before_s: float = 0.0


class Objects:
    """A client of one server."""

    def __init__(self, server: Server, api: Api) -> None:
        self._server = server
        self._api = api
        self.lines = api.lines

    async def create_cluster(self, scene: Scene) -> None:
        """Create namespaces, nodes, services and running pods: everything but the pods to be scheduled."""
        for namespace in scene.namespaces:
            await self.create_namespace(namespace)
        await self.create_namespace(build.namespace("default"))
        await concurrently(scene.nodes, self.create_node)
        for service in scene.services:
            service["spec"] |= {"ports": [{"port": 80}]}
            path = f"/api/v1/namespaces/{service['metadata']['namespace']}/services"
            await self._ask("POST", path, as_new(service))

        await self.publish(scene.from_drivers)
        if scene.shape.measured.devices == "claim":
            path = f"{_RESOURCE}/namespaces/{scene.shape.measured_namespace}/resourceclaimtemplates"
            await self._ask("POST", path, devices.claim_template())
        await self._create_priority_classes(scene)
        await self.create_claims(scene.running)
        await self.create_pods(scene.running, scheduler="nobody")

    async def publish(self, documents: Iterable[Json]) -> None:
        """Create what drivers create, such as classes and slices of devices."""

        async def create(document: Json) -> None:
            await self._ask("POST", KINDS[document["kind"]].path, as_new(document))

        await concurrently(documents, create)

    async def _create_priority_classes(self, scene: Scene) -> None:
        shape = scene.shape
        templates = (shape.measured, *(group.template for group in shape.idle), shape.arriving)
        for priority in {one.priority for one in templates if one is not None and one.priority}:
            document = {"metadata": {"name": priority_class(priority)}, "value": priority}
            await self._ask(
                "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", document, accepted={201, 409}
            )

    async def create_claims(self, pods: Iterable[Planned]) -> None:

        async def create(pod: Planned) -> None:
            claim, _ = claim_and_volume(pod)
            stored = await self._ask("POST", _claims_path(pod), as_new(claim))
            _, volume = claim_and_volume(pod, uid=stored["metadata"]["uid"])
            await self._ask("POST", KINDS[volume["kind"]].path, as_new(volume))

        await concurrently((pod for pod in pods if pod.template.claim), create)

    async def delete_claims(self, pods: Iterable[Planned]) -> None:

        async def delete(pod: Planned) -> None:
            claim, volume = claim_and_volume(pod)
            for path in (
                f"{_claims_path(pod)}/{claim['metadata']['name']}",
                f"{KINDS[volume['kind']].path}/{volume['metadata']['name']}",
            ):
                await self._free(path)

        await concurrently((pod for pod in pods if pod.template.claim), delete)

    async def device_claims(self) -> list[Json]:
        return [claim async for claim in self._listed(f"{_RESOURCE}/resourceclaims?")]

    async def delete_device_claims(self) -> None:

        async def delete(claim: Json) -> None:
            meta = claim["metadata"]
            path = f"{_RESOURCE}/namespaces/{meta['namespace']}/resourceclaims/{meta['name']}"
            await self._free(path)

        await concurrently(await self.device_claims(), delete)

    async def create_pod_groups(self, pods: Iterable[Planned], *, scheduler: str) -> None:
        """Create the PodGroups of the pods for this scheduler, each of which is required in one zone."""

        async def create(named: tuple[str, Template]) -> None:
            namespace, template = named
            spec = {
                "schedulingPolicy": {"gang": {"minCount": template.min_count}},
                "schedulingConstraints": {"topology": [{"key": ZONE}]},
            }
            path = f"/apis/{KUBERNETES}/namespaces/{namespace}/podgroups"
            await self._ask("POST", path, group(KUBERNETES, template.pod_group_for(scheduler), spec))

        wanted = {(pod.namespace, pod.template): None for pod in pods if pod.template.pod_group}
        await concurrently(wanted, create)

    async def create_pods(self, pods: Iterable[Planned], *, scheduler: str) -> None:

        async def create(pod: Planned) -> None:
            document = pod.template.pod(pod.namespace, pod.name, node=pod.node, scheduler=scheduler)
            await self._ask("POST", f"/api/v1/namespaces/{pod.namespace}/pods", as_new(document))

        await concurrently(pods, create)

    async def delete_pods(self, pods: Iterable[Planned]) -> None:
        """Delete the pods without grace."""

        async def delete(pod: Planned) -> None:
            path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
            await self.delete(path)

        await concurrently(pods, delete)

    async def create_node(self, node: Json) -> None:
        name = node["metadata"]["name"]
        await self._ask("POST", "/api/v1/nodes", as_new(node))
        await self._ask(
            "PATCH", f"/api/v1/nodes/{name}/status", {"status": node["status"]}, content_type=MERGE
        )

    async def delete(self, path: str) -> None:
        """Delete the object if it exists."""
        await self._ask("DELETE", path, {"gracePeriodSeconds": 0}, accepted={200, 202, 404})

    async def _free(self, path: str) -> None:
        """Delete the object with its finalizers, which without a controller nothing else removes."""
        await self.merge(path, {"metadata": {"finalizers": None}})
        await self.delete(path)

    async def delete_all(self, path: str) -> None:
        """Delete a collection; the server stops each request or breaks it off after a minute: it may take several."""
        is_cut_off = True
        while is_cut_off:
            with contextlib.suppress(aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError):
                answer = await self._ask("DELETE", path, {"gracePeriodSeconds": 0}, accepted={200, 504})
                is_cut_off = answer.get("code") == 504

    async def post(self, path: str, body: Json | list[Json]) -> None:
        await self._ask("POST", path, body)

    async def is_ok(self, url: str, *, token: str = "") -> bool:
        """
        Return whether the URL answers with 200; False if no server listens yet.

        With a token, the request carries it in place of the client's own, and any certificate will do.
        """
        headers = {"Authorization": f"Bearer {token}"} if token else None
        try:
            async with self._api.session.get(url, headers=headers, ssl=not token) as answer:
                return answer.status == 200
        except aiohttp.ClientConnectionError:
            return False

    async def create_namespace(self, namespace: Json) -> None:
        """Create the namespace unless it exists."""
        await self._ask("POST", "/api/v1/namespaces", as_new(namespace), accepted={201, 409})

    async def merge(self, path: str, body: Json) -> None:
        """Apply a merge patch to the object, if it exists yet."""
        await self._ask("PATCH", path, body, content_type=MERGE, accepted={200, 404})

    async def bindings(self, namespace: str) -> AsyncIterator[str]:
        """
        Yield the name of each pod of the namespace as a watch shows it bound; a pod may come again.

        A watch that brings nothing for `_SILENT_S` is opened anew: a busy server may leave one without an answer.
        """
        path = f"/api/v1/namespaces/{namespace}/pods?watch=true"
        decoder = msgspec.json.Decoder(_Event)
        while True:
            with contextlib.suppress(aiohttp.ServerTimeoutError):
                async with aclosing(self.lines(path, silent_s=_SILENT_S)) as lines:
                    async for line in lines:
                        pod = decoder.decode(line).object
                        if pod.spec.node_name:
                            yield pod.metadata.name

    async def nodes_of_pods(self) -> dict[tuple[str, str], str]:
        """Return the node name of every pod, empty if unbound, by namespace and name."""
        return {
            (pod["metadata"]["namespace"], pod["metadata"]["name"]): pod["spec"].get("nodeName", "")
            async for pod in self._listed("/api/v1/pods?")
        }

    async def n_told(self) -> int:
        """Return the number of Scheduled events on the server; reads all events."""
        path = "/apis/events.k8s.io/v1/events?fieldSelector=reason%3DScheduled&"
        return len([event["metadata"]["name"] async for event in self._listed(path)])

    async def n_events(self) -> int:
        """Return the number of events on the server, without reading them."""
        page = await self._ask("GET", "/apis/events.k8s.io/v1/events?limit=1")
        return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))

    async def version(self) -> str:
        """Return the current resourceVersion."""
        page = await self._ask("GET", "/api/v1/pods?limit=1")
        version: str = page["metadata"]["resourceVersion"]
        return version

    async def await_bindings(
        self, keys: frozenset[tuple[str, str]], since: str, pid: int, is_alive: Callable[[], bool]
    ) -> Timing:
        """
        Watch until all of the pods are bound.

        Raises RuntimeError if the scheduler ends, or binds nothing for 90 s.
        """
        timing, left = Timing(), set(keys)
        now_s = asyncio.get_running_loop().time
        try:
            # One timer that every pod defers: a timer for each would cost more than reading it.
            async with asyncio.timeout(STALLED_S) as stalled, aclosing(self._shown_from(since)) as shown:
                async for pod in shown:
                    stalled.reschedule(now_s() + STALLED_S)
                    key = (pod.metadata.namespace, pod.metadata.name)
                    if pod.spec.node_name and key in left:
                        left.discard(key)
                        self._note(timing, pid)
                    if not left or not is_alive():
                        break
        except TimeoutError as error:
            raise RuntimeError(f"{_unbound(left, keys)}, the scheduler binds no more") from error
        if left:
            raise RuntimeError(f"{_unbound(left, keys)}, the scheduler has ended")
        return timing

    async def _shown_from(self, since: str) -> AsyncGenerator[_Pod, None]:
        """Yield every pod that watches show after the version; the server ends one whose reader it finds too slow."""
        decoder = msgspec.json.Decoder(_Event)
        while True:
            path = f"/api/v1/pods?watch=true&resourceVersion={since}"
            with contextlib.suppress(aiohttp.ClientPayloadError):
                async with aclosing(self.lines(path)) as lines:
                    async for line in lines:
                        event = decoder.decode(line)
                        if event.type == "ERROR":
                            raise RuntimeError(f"the watch of pods ends: {line[:300]!r}")
                        since = event.object.metadata.resource_version
                        yield event.object

    def _note(self, timing: Timing, pid: int) -> None:
        timing.bound_s.append(time.monotonic())
        if len(timing.bound_s) == 1:
            timing.cpu_before_s, timing.server_cpu_before_s = cpu_s(pid), self._server.cpu_s()

    async def _listed(self, path: str) -> AsyncIterator[Json]:
        token = ""
        while True:
            query = f"limit={_PAGE}" + (f"&continue={token}" if token else "")
            page = await self._ask("GET", f"{path}{query}")
            for one in page["items"]:
                yield one
            token = page["metadata"].get("continue", "")
            if not token:
                return

    async def _ask(
        self,
        method: str,
        path: str,
        body: Json | list[Json] | None = None,
        *,
        content_type: str = "",
        accepted: set[int] | None = None,
    ) -> Json:
        """Return the body of the response; raise RuntimeError for a status that is not accepted (2xx by default)."""
        answer = await self._api.request(method, path, body, content_type=content_type)
        if not (answer.code in accepted if accepted else answer.code < 300):
            raise RuntimeError(f"{method} {path}: {answer.code} {str(answer.body)[:300]}")
        found: Json = answer.body
        return found


async def concurrently(wanted: Iterable[T], carry_out: Callable[[T], Awaitable[None]]) -> None:
    """Carry out what is wanted, many at a time."""
    waiting = iter(wanted)

    async def work() -> None:
        for item in waiting:
            await carry_out(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(_CONCURRENCY):
            group.create_task(work())


@asynccontextmanager
async def objects_of(server: Server) -> AsyncIterator[Objects]:
    """Open a client of the server for the duration of the block."""
    async with Api(server.url, server.headers, ssl=server.tls) as api:
        yield Objects(server, api)


def _claims_path(pod: Planned) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/persistentvolumeclaims"


def _unbound(left: Collection[object], keys: Collection[object]) -> str:
    return f"{len(left)} of {len(keys)} pods left"
