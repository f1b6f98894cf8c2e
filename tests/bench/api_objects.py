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
from tests.bench.volumes import claim_and_volume, claims_and_volumes
from tests.support import build
from tests.support.api_client import MERGE, Api
from tests.support.build import ZONE, Json
from tests.support.custom_kinds import KUBERNETES, group

_CONCURRENCY: Final = 32
_PAGE: Final = 500
#: How long a watch may bring no new binding.
STALLED_S: Final = 90.0
_SILENT_S: Final = 15.0
_EVENTS: Final = "/apis/events.k8s.io/v1/events"
_EVENTS_QUIET_S: Final = 5.0
#: Of kinds that no scheduler watches, and of the version of PodGroups that is measured.
_OTHER_PATHS: Final = {
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/resourceclaimtemplates",
    "PodGroup": f"/apis/{KUBERNETES}/podgroups",
}

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

    async def create_cluster(self, scene: Scene) -> None:
        """Create namespaces, nodes, services and running pods: everything but the pods to be scheduled."""
        shape = scene.shape
        await self.create([*scene.namespaces, build.namespace("default")])
        await concurrently(scene.nodes, self.create_node)
        for service in scene.services:
            service["spec"] |= {"ports": [{"port": 80}]}
        await self.create([*scene.services, *scene.from_drivers])
        if shape.measured.devices == "claim":
            await self.post(devices.claim_template(shape.measured_namespace))
        templates = (shape.measured, *(group.template for group in shape.idle), shape.arriving)
        priorities = {one.priority for one in templates if one is not None and one.priority}
        await self.create(build.priority_class(priority_class(each), each) for each in priorities)
        await self.create_claims(scene.running)
        await self.create_pods(scene.running, scheduler="nobody")

    async def create(self, documents: Iterable[Json]) -> None:
        """Create the objects, many at a time; namespaces and priority classes may exist."""
        await concurrently(documents, self.post)

    async def post(self, document: Json) -> Json:
        """Return the object as it was created."""
        may_exist = document["kind"] in ("Namespace", "PriorityClass")
        return await self._ask(
            "POST", _collection(document), as_new(document), accepted={201, 409} if may_exist else None
        )

    async def create_claims(self, pods: Iterable[Planned]) -> None:

        async def create(pod: Planned) -> None:
            stored = await self.post(claim_and_volume(pod)[0])
            await self.post(claim_and_volume(pod, uid=stored["metadata"]["uid"])[1])

        await concurrently((pod for pod in pods if pod.template.claim), create)

    async def delete_claims(self, pods: Iterable[Planned]) -> None:
        await concurrently(claims_and_volumes(pods), self._free)

    async def device_claims(self) -> list[Json]:
        path = KINDS["ResourceClaim"].path
        return [{**claim, "kind": "ResourceClaim"} async for claim in self._listed(f"{path}?")]

    async def delete_device_claims(self) -> None:
        await concurrently(await self.device_claims(), self._free)

    async def create_pod_groups(self, pods: Iterable[Planned], *, scheduler: str) -> None:
        """Create the PodGroups of the pods for this scheduler, each of which is required in one zone."""
        wanted = {(pod.namespace, pod.template): None for pod in pods if pod.template.pod_group}
        await self.create(_pod_group(*each, scheduler) for each in wanted)

    async def create_pods(self, pods: Iterable[Planned], *, scheduler: str) -> None:
        await self.create(
            pod.template.pod(pod.namespace, pod.name, node=pod.node, scheduler=scheduler) for pod in pods
        )

    async def delete_pods(self, pods: Iterable[Planned]) -> None:
        """Delete the pods without grace."""
        await concurrently(
            (f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}" for pod in pods), self._delete
        )

    async def create_node(self, node: Json) -> None:
        name = (await self.post(node))["metadata"]["name"]
        await self.merge(f"/api/v1/nodes/{name}/status", {"status": node["status"]})

    async def _delete(self, path: str) -> None:
        """Delete the object if it exists."""
        await self._ask("DELETE", path, {"gracePeriodSeconds": 0}, accepted={200, 202, 404})

    async def _free(self, document: Json) -> None:
        """Delete the object with its finalizers, which without a controller nothing else removes."""
        path = f"{_collection(document)}/{document['metadata']['name']}"
        await self.merge(path, {"metadata": {"finalizers": None}})
        await self._delete(path)

    async def send_token(self, url: str, token: str) -> None:
        """Ask with another token than the client's own, whatever certificate there is; nobody may listen yet."""
        with contextlib.suppress(aiohttp.ClientConnectionError):
            headers = {"Authorization": f"Bearer {token}"}
            async with self._api.session.get(url, headers=headers, ssl=False):
                pass

    async def merge(self, path: str, body: Json) -> None:
        """Apply a merge patch to the object, if it exists yet."""
        await self._ask("PATCH", path, body, content_type=MERGE, accepted={200, 404})

    async def bindings(self, namespace: str) -> AsyncIterator[str]:
        """Yield the name of each pod of the namespace as a watch shows it bound; a pod may come again."""
        async for pod in self._shown(f"/api/v1/namespaces/{namespace}/pods"):
            if pod.spec.node_name:
                yield pod.metadata.name

    async def nodes_of_pods(self) -> dict[tuple[str, str], str]:
        """Return the node name of every pod, empty if unbound, by namespace and name."""
        return {
            (pod["metadata"]["namespace"], pod["metadata"]["name"]): pod["spec"].get("nodeName", "")
            async for pod in self._listed("/api/v1/pods?")
        }

    async def await_told(self, n: int, since: str, measure: Callable[[], T]) -> tuple[T, int]:
        """
        Wait for `n` Scheduled events after the version; return what was measured at the last, and how many are missing.

        Schedulers drop events when they bind too fast: after `_EVENTS_QUIET_S` without a new one, none will follow.
        """
        measured = measure()
        path = f"{_EVENTS}?watch=true&fieldSelector=reason%3DScheduled&resourceVersion={since}"
        with contextlib.suppress(aiohttp.ServerTimeoutError):
            async with aclosing(self._api.lines(path, silent_s=_EVENTS_QUIET_S)) as lines:
                async for line in lines:
                    if line.startswith(b'{"type":"ADDED"'):
                        measured, n = measure(), n - 1
                    if not n:
                        break
        return measured, n

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
            async with (
                asyncio.timeout(STALLED_S) as stalled,
                aclosing(self._shown("/api/v1/pods", since)) as shown,
            ):
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

    async def _shown(self, path: str, since: str = "") -> AsyncGenerator[_Pod, None]:
        """
        Yield every pod that watches show, after the version if there is one.

        The server ends a watch whose reader it finds too slow. One that brings nothing for `_SILENT_S` is opened anew:
        a busy server may leave one without an answer.
        """
        decoder = msgspec.json.Decoder(_Event)
        while True:
            query = f"{path}?watch=true&resourceVersion={since}"
            with contextlib.suppress(aiohttp.ClientPayloadError, aiohttp.ServerTimeoutError):
                async with aclosing(self._api.lines(query, silent_s=_SILENT_S)) as lines:
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
        body: Json | None = None,
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


async def concurrently(wanted: Iterable[T], carry_out: Callable[[T], Awaitable[object]]) -> None:
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


def _collection(document: Json) -> str:
    """Return the path of the objects of its kind, in its namespace if it has one."""
    path = _OTHER_PATHS.get(document["kind"]) or KINDS[document["kind"]].path
    namespace = document["metadata"].get("namespace")
    head, _, plural = path.rpartition("/")
    return f"{head}/namespaces/{namespace}/{plural}" if namespace else path


def _pod_group(namespace: str, template: Template, scheduler: str) -> Json:
    spec = {
        "schedulingPolicy": {"gang": {"minCount": template.min_count}},
        "schedulingConstraints": {"topology": [{"key": ZONE}]},
    }
    made = group(KUBERNETES, template.pod_group_for(scheduler), spec)
    made["metadata"]["namespace"] = namespace
    return made


def _unbound(left: Collection[object], keys: Collection[object]) -> str:
    return f"{len(left)} of {len(keys)} pods left"
