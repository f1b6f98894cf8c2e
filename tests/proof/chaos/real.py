"""Runs on a real API server, behind a gateway that makes the faults and with watches that record writes."""

from __future__ import annotations

import asyncio
import ssl as ssl_module
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from scheduler.daemon.settings.resolved import LeaderElection
from scheduler.sandbox.devcluster.http.faults import Faults
from scheduler.sandbox.devcluster.kinds import JsonObject
from scheduler.sandbox.devcluster.status import StatusError
from tests.proof.chaos.gateway import Call, Gateway
from tests.proof.chaos.instance import Instance
from tests.proof.chaos.journal import Journal, Written, key_of
from tests.proof.chaos.stage import KINDS, split
from tests.proof.chaos.venue import Opened, Pace, Setting
from tests.support.api_client import Answer, Api
from tests.support.apiserver import Address

_ELECTION = LeaderElection(True, 4.0, 3.0, 0.5, resource_name="chaos")
_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{_ELECTION.resource_namespace}/leases"
#: Namespaces of every cluster.
_LASTING = ("default", "kube-system", "kube-public", "kube-node-lease")


@dataclass
class _Seen:
    """The objects by the watches, and the authors of binds by the gateway."""

    journal: Journal
    objects: dict[str, dict[str, JsonObject]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    #: UID and node of every accepted bind -> the client that sent it.
    bound_by: dict[tuple[str, str], str] = field(default_factory=dict)
    holder: str = ""

    def note(self, kind: str, obj: JsonObject, *, gone: bool = False) -> None:
        """Record one write, in the order of its kind."""
        meta = obj["metadata"]
        key = key_of(obj)
        before = self.objects[kind].pop(key, None)
        if not gone:
            self.objects[kind][key] = obj
        version = int(meta["resourceVersion"])
        written = Written(version, self.journal.now_s(), kind, key, None if gone else obj, before, "")
        self.journal.add(written)
        event_type = "DELETED" if gone else "ADDED" if before is None else "MODIFIED"
        self.journal.mark(event_type, kind=kind, by="", object=obj)

    def settle(self) -> None:
        """Sort the writes of the watches, and add the authors of binds, which watches do not show."""
        self.journal.written.sort(key=lambda one: one.version)
        for index, one in enumerate(self.journal.written):
            if one.bound_node and one.obj is not None:
                by = self.bound_by.get((one.obj["metadata"]["uid"], one.bound_node), "")
                self.journal.written[index] = replace(one, by=by)


class Real:
    """The server, reached without the gateway."""

    def __init__(self, api: Api, seen: _Seen, faults: Faults) -> None:
        self._api, self._seen, self.faults = api, seen, faults

    def objects(self, kind: str) -> list[JsonObject]:
        return list(self._seen.objects.get(kind, {}).values())

    async def create(self, kind: str, obj: JsonObject) -> None:
        meta = obj["metadata"]
        _accepted(await self._api.post(_path(kind, meta.get("namespace", "")), obj))
        if kind != "Pod" and "status" in obj:
            await self.patch(kind, key_of(obj), {"status": obj["status"]}, "status")

    async def patch(self, kind: str, key: str, change: JsonObject, subresource: str | None) -> None:
        path = f"{_path(kind, *split(key))}/{subresource}" if subresource else _path(kind, *split(key))
        _accepted(await self._api.patch(path, change))

    async def delete(self, kind: str, key: str, grace_s: int) -> None:
        """Delete the object; end a namespace with its pods at once, as the next run wants it anew."""
        _accepted(await self._api.delete(_path(kind, *split(key)), {"gracePeriodSeconds": grace_s}))
        if kind == "Namespace":
            await _delete_all(self._api, "Pod", key)
            namespace = (await self._api.get(_path(kind, "", key))).body
            if namespace.get("kind") == kind:
                namespace["spec"]["finalizers"] = []
                await self._api.put(f"{_path(kind, '', key)}/finalize", namespace)

    async def bind(self, key: str, node: str) -> None:
        body = {"metadata": {"name": split(key)[1]}, "target": {"kind": "Node", "name": node}}
        _accepted(await self._api.post(f"{_path('Pod', *split(key))}/binding", body))


class RealVenue:
    """One server for many runs, emptied before each."""

    pace = Pace(trouble_s=20.0, settle_s=60.0, last_at_s=20.0, last_s=12.0, n_last=1, election=_ELECTION)

    def __init__(self, url: str, *, token: str = "", ssl: ssl_module.SSLContext | bool = True) -> None:
        self._url, self._ssl = url, ssl
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    @staticmethod
    def at(address: Address) -> RealVenue:
        """Return the venue of the server that the tests have started."""
        context = ssl_module.create_default_context(cafile=str(address.ca_file))
        return RealVenue(address.url, token=address.token, ssl=context)

    @asynccontextmanager
    async def opened(self, journal: Journal, _: Setting) -> AsyncIterator[Opened]:
        seen, faults = _Seen(journal), Faults()
        instances: dict[str, Instance] = {}

        def reach(agent: str, point: str) -> None:
            instance = instances.get(agent.rpartition("-")[0])
            if instance is not None and instance.identity == agent:
                instance.reach(point)

        def on_arrival(call: Call) -> None:
            if call.path.endswith("/binding"):
                reach(call.agent, "arrived")

        def on_answer(call: Call, code: int, body: bytes) -> None:
            if call.path.endswith("/binding") and code < 300:
                binding = msgspec.json.decode(call.body)
                seen.bound_by[binding["metadata"]["uid"], binding["target"]["name"]] = call.agent
                reach(call.agent, "written")
            elif "/leases" in call.path and call.method != "GET" and code < 300:
                seen.holder = msgspec.json.decode(body)["spec"].get("holderIdentity") or ""

        def listen(ours: Sequence[Instance]) -> None:
            instances.update((one.name, one) for one in ours)

        gateway = Gateway(
            self._url,
            faults=faults,
            headers=self._headers,
            ssl=self._ssl,
            on_arrival=on_arrival,
            on_answer=on_answer,
        )
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(Api(self._url, self._headers, ssl=self._ssl))
            server = Real(api, seen, faults)
            await _clear(api, server)
            await stack.enter_async_context(gateway.opened())
            watches = [asyncio.create_task(_follow(api, kind, seen)) for kind in KINDS]
            yield Opened(server, gateway.port, lambda: seen.holder, listen)
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
            seen.settle()


async def _follow(api: Api, kind: str, seen: _Seen) -> None:
    """Record all objects of a kind and all their changes, until cancelled."""
    found = (await api.get(_path(kind))).ok
    for obj in found["items"]:
        seen.note(kind, obj)
    async with api.watch(_path(kind), resourceVersion=found["metadata"]["resourceVersion"]) as events:
        while event := await events.next(timeout_s=600.0):
            assert event["type"] in ("ADDED", "MODIFIED", "DELETED"), event
            seen.note(kind, event["object"], gone=event["type"] == "DELETED")


async def _delete_all(api: Api, kind: str, namespace: str = "") -> None:
    for obj in (await api.get(_path(kind, namespace))).ok["items"]:
        if not obj["metadata"]["name"].startswith("system-"):
            await api.delete(_path(kind, *split(key_of(obj))), {"gracePeriodSeconds": 0})


async def _clear(api: Api, server: Real) -> None:
    for kind in ("Pod", "Node", "PodDisruptionBudget", "PriorityClass"):
        await _delete_all(api, kind)
    for namespace in (await api.get(_path("Namespace"))).ok["items"]:
        name = namespace["metadata"]["name"]
        if name not in _LASTING:
            await server.delete("Namespace", name, 0)
    await api.delete(f"{_LEASES}/{_ELECTION.resource_name}")


def _path(kind: str, namespace: str = "", name: str = "") -> str:
    inside = f"/namespaces/{namespace}" if namespace else ""
    found = KINDS[kind]
    return f"{found.path}{inside}/{found.plural}" + (f"/{name}" if name else "")


def _accepted(answer: Answer) -> Any:
    """Return the body; raise StatusError if the server refuses."""
    if answer.code >= 300:
        body = answer.body
        raise StatusError(answer.code, body.get("reason", ""), body.get("message", str(body)))
    return answer.body
