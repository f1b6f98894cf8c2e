"""
The page's data as JSON. Every object has an apiVersion and a kind; their fields are described where they are made.

    GET  /api/v1/now                                       overview.now.Now
    GET  /api/v1/stream                                    events `now` and `decisions` (overview.decisions.Decisions)
    GET  /api/v1/rules                                     overview.survey.Rules
    GET  /api/v1/rules/{id}?groupBy=LABEL                  overview.domains.DomainMap
    GET  /api/v1/rules/{id}/cell?domain=VALUE              overview.domains.Cell
    GET  /api/v1/node-labels                               overview.domains.NodeLabels
    GET  /api/v1/weights                                   overview.what_if.Weights
    GET  /api/v1/devices?search=TEXT                       overview.devices.DeviceOverview
    GET  /api/v1/devices/pool?driver=&pool=                overview.devices.DevicePool
    GET  /api/v1/pending?namespace=&name=&label=           overview.pending.Pending
    GET  /api/v1/groups                                    overview.groups.Groups
    GET  /api/v1/room?hierarchy=&namespace=&name=&within=  overview.machine_room.MachineRoom
    GET  /api/v1/nodes?search=TEXT                         overview.nodes.NodeUses
    GET  /api/v1/decisions?after=N&limit=N                 overview.decisions.Decisions
    GET  /api/v1/pods/{namespace}/{name}?changes=true      explain.explanation.Explanation, as `explain -o json`
    POST /api/v1/what-if                                   overview.what_if.WhatIfRequest -> WhatIf; writes nothing

Errors are {"message": text}. A name of a pod is left out where its namespace's pods may not be listed; numbers stay.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from typing import Final, Protocol

import msgspec
from aiohttp import web

from scheduler.errors import SchedulerError, SettingsError
from scheduler.formats.explanation import Explanation
from scheduler.observe.logs import quoted
from scheduler.overview.decisions import MAX_DECISIONS, Decisions
from scheduler.overview.devices import DeviceOverview, DevicePool
from scheduler.overview.domains import Cell, DomainMap, NodeLabels
from scheduler.overview.groups import Groups
from scheduler.overview.machine_room import MachineRoom, RoomQuestion
from scheduler.overview.nodes import NodeUses
from scheduler.overview.now import Now
from scheduler.overview.pending import Pending, Search, Visible
from scheduler.overview.survey import Rules
from scheduler.overview.what_if import Weights, WhatIf, WhatIfRequest
from scheduler.serving.delegated_auth import Rejection
from scheduler.serving.page_access import PageAccess, everything
from scheduler.serving.page_files import SECURITY_HEADERS, PageFiles

#: Time between two messages of a stream.
TICK_S: Final = 0.5
#: Open streams. The port has 64 connections, and probes need some.
MAX_VIEWERS: Final = 32
#: A stream ends after this and the page asks again, so that a viewer who has lost the right is refused.
_STREAM_S: Final = 300.0
#: A viewer that takes nothing for this long is let go.
_STALLED_S: Final = 30.0
_DECISIONS_PER_TICK: Final = 20
#: How old an answer may be that viewers share, and the number of such answers, up to 1 MB each.
_SHARED_S: Final = 1.5
_MAX_SHARED: Final = 16
_MAX_QUESTION_BYTES: Final = 128 << 10
_NAME_LIMIT: Final = 253


class BusyError(SchedulerError):
    """Too many questions are waiting; ask again after `retry_after_s`."""

    def __init__(self, retry_after_s: int) -> None:
        self.retry_after_s = retry_after_s
        super().__init__("other questions are being answered, please try again later")


class PageSource(Protocol):
    """The data of the page. `Visible` tells of which namespaces pods may be named."""

    @property
    def is_synced(self) -> bool:
        """Whether all objects are listed."""

    @property
    def newest_decision(self) -> int:
        """The number of the newest attempt."""

    def now(self) -> Now:
        """Return the state of the scheduler."""

    def decisions(self, after: int, may_see: Visible, most: int) -> Decisions:
        """Return at most `most` attempts after the one of that number."""

    def namespaces(self) -> set[str]:
        """Return the namespaces of remembered attempts and pending pods."""

    async def rules(self) -> Rules:
        """Return all rules."""

    async def domain_map(self, identifier: str, group_by: str) -> DomainMap | None:
        """Return the domains of a rule, None if there is no such rule."""

    async def cell(self, identifier: str, domain: str, may_see: Visible) -> Cell | None:
        """Return the pods of a domain, None if there is no such rule or domain."""

    def node_labels(self) -> NodeLabels:
        """Return the label keys of nodes."""

    def weights(self) -> Weights:
        """Return the weights of scoring plugins."""

    async def devices(self, search: str) -> DeviceOverview:
        """Return the devices by driver, and the pools that the search finds."""

    async def device_pool(self, driver: str, pool: str, may_see: Visible) -> DevicePool | None:
        """Return the devices of a pool and the pods that have them, None if there is no such pool."""

    async def pending(self, search: Search, may_see: Visible) -> Pending:
        """Return the pending pods."""

    async def groups(self, may_see: Visible) -> Groups:
        """Return the groups with pending members."""

    async def room(self, question: RoomQuestion, may_see: Visible) -> MachineRoom:
        """Return the machine room, and the holes that groups wait for."""

    async def nodes(self, search: str) -> NodeUses:
        """Return how full the nodes are that the search finds."""

    async def explanation(
        self, namespace: str, name: str, may_see: Visible, *, tries_changes: bool
    ) -> Explanation | None:
        """Return the explanation of a pod, None if there is no such pod. Raises BusyError."""

    async def what_if(self, request: WhatIfRequest, may_see: Visible) -> WhatIf | None:
        """Return the answer, None if its pod is unknown. Raises SettingsError, BusyError."""


_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PageApi:
    """The handlers of the page's data."""

    def __init__(self, source: PageSource, access: PageAccess) -> None:
        self._source, self._access = source, access
        self._n_viewers = 0
        self._stopping = asyncio.Event()
        #: The last `Now` and its message, which all viewers share.
        self._now_message: tuple[Now, bytes] | None = None
        #: The last decisions for viewers who may see all, by the number that they have seen.
        self._decisions_message: tuple[int, int, bytes] = (-1, -1, b"")
        #: Answers that are equal for all viewers, and when they were made.
        self._shared: OrderedDict[str, tuple[float, bytes]] = OrderedDict()

    def add_to(self, app: web.Application) -> None:
        """Add the routes of the page and of its data."""
        files = PageFiles()
        app.router.add_get("/ui", files.index)
        app.router.add_get("/ui/", files.index)
        app.router.add_get("/ui/{name:.+}", files.file)
        for path, answer, parameters in (
            ("now", self._now, ()),
            ("stream", self._stream, ()),
            ("rules", self._rules, ()),
            ("rules/{id}", self._domain_map, ("groupBy",)),
            ("rules/{id}/cell", self._cell, ("domain",)),
            ("node-labels", self._node_labels, ()),
            ("weights", self._weights, ()),
            ("devices", self._devices, ("search",)),
            ("devices/pool", self._device_pool, ("driver", "pool")),
            ("pending", self._pending, ("namespace", "name", "label")),
            ("groups", self._groups, ()),
            ("room", self._room, RoomQuestion._fields),
            ("nodes", self._nodes, ("search",)),
            ("decisions", self._decisions, ("after", "limit")),
            ("pods/{namespace}/{name}", self._explanation, ("changes",)),
        ):
            app.router.add_get(f"/api/v1/{path}", self._checked(answer, parameters), allow_head=False)
        app.router.add_post("/api/v1/what-if", self._checked(self._what_if, ()))
        app.on_shutdown.append(self._end_streams)

    def _checked(self, answer: _Handler, parameters: Collection[str]) -> _Handler:
        """Return the handler behind the checks of the request, with errors as JSON. `parameters`: of its query."""

        async def checked(request: web.Request) -> web.StreamResponse:
            if (problem := self._access.problem(request)) is not None:
                return _error(403, problem)
            if (problem := _parameter_problem(request, parameters)) is not None:
                return _error(400, problem)
            if not self._source.is_synced:
                return _error(503, "nodes, namespaces and pods are still being listed", retry_after_s=1)
            try:
                return await answer(request)
            except BusyError as error:
                return _error(429, str(error), retry_after_s=error.retry_after_s)

        return checked

    async def _now(self, _: web.Request) -> web.Response:
        return _json(self._source.now())

    async def _rules(self, _: web.Request) -> web.Response:
        return await self._share("rules", self._source.rules, "rules")

    async def _domain_map(self, request: web.Request) -> web.Response:
        identifier, group_by = request.match_info["id"], request.query.get("groupBy", "")
        key = f"rules/{identifier}/{group_by}"
        return await self._share(key, lambda: self._source.domain_map(identifier, group_by), "rule")

    async def _share(self, key: str, ask: Callable[[], Awaitable[object | None]], what: str) -> web.Response:
        """Return the answer; one of the last `_SHARED_S` serves all viewers."""
        now_s = asyncio.get_running_loop().time()
        made_s, body = self._shared.get(key, (-_SHARED_S, b""))
        if now_s - made_s < _SHARED_S:
            return _json_body(body)
        answer = await ask()
        if answer is None:
            return _found(None, what)
        body = msgspec.json.encode(answer)
        self._shared[key] = (now_s, body)
        self._shared.move_to_end(key)
        if len(self._shared) > _MAX_SHARED:
            self._shared.popitem(last=False)
        return _json_body(body)

    async def _cell(self, request: web.Request) -> web.Response:
        may_see = await self._visible(request)
        if isinstance(may_see, Rejection):
            return may_see.response()
        domain = request.query.get("domain", "")
        return _found(await self._source.cell(request.match_info["id"], domain, may_see), "domain")

    async def _node_labels(self, _: web.Request) -> web.Response:
        return _json(self._source.node_labels())

    async def _weights(self, _: web.Request) -> web.Response:
        return _json(self._source.weights())

    async def _devices(self, request: web.Request) -> web.Response:
        search = request.query.get("search", "")
        return await self._share(f"devices/{search}", lambda: self._source.devices(search), "devices")

    async def _device_pool(self, request: web.Request) -> web.Response:
        may_see = await self._visible(request)
        if isinstance(may_see, Rejection):
            return may_see.response()
        driver, pool = request.query.get("driver", ""), request.query.get("pool", "")
        return _found(await self._source.device_pool(driver, pool, may_see), "pool")

    async def _pending(self, request: web.Request) -> web.Response:
        may_see = await self._visible(request)
        if isinstance(may_see, Rejection):
            return may_see.response()
        query = request.query
        search = Search(query.get("namespace", ""), query.get("name", ""), query.get("label", ""))
        if search.label.startswith("="):
            return _error(400, f"label: found {quoted(search.label)}, expected KEY or KEY=VALUE")
        if search == Search() and may_see is everything:
            return await self._share("pending", lambda: self._source.pending(search, everything), "pods")
        return _json(await self._source.pending(search, may_see))

    async def _groups(self, request: web.Request) -> web.Response:
        may_see = await self._visible(request)
        return (
            may_see.response()
            if isinstance(may_see, Rejection)
            else _json(await self._source.groups(may_see))
        )

    async def _room(self, request: web.Request) -> web.Response:
        may_see = await self._visible(request)
        if isinstance(may_see, Rejection):
            return may_see.response()
        question = RoomQuestion(*(request.query.get(name, "") for name in RoomQuestion._fields))
        if may_see is everything:
            return await self._share(f"{question}", lambda: self._source.room(question, everything), "room")
        return _json(await self._source.room(question, may_see))

    async def _nodes(self, request: web.Request) -> web.Response:
        search = request.query.get("search", "")
        return await self._share(f"nodes/{search}", lambda: self._source.nodes(search), "nodes")

    async def _decisions(self, request: web.Request) -> web.Response:
        may_see = await self._visible(request)
        if isinstance(may_see, Rejection):
            return may_see.response()
        after, limit = request.query.get("after", "0"), request.query.get("limit", "100")
        if not (after.isdecimal() and limit.isdecimal() and after.isascii() and limit.isascii()):
            return _error(400, "after and limit: expected numbers")
        return _json(self._source.decisions(int(after), may_see, min(int(limit), MAX_DECISIONS)))

    async def _explanation(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        may_see = await self._visible(request, namespace)
        if isinstance(may_see, Rejection):
            return may_see.response()
        if not may_see(namespace):
            return _error(403, f"you may not list the pods of namespace {namespace}")
        if (changes := request.query.get("changes", "false")) not in ("true", "false"):
            return _error(400, f"changes: found {quoted(changes)}, expected true or false")
        tries_changes = changes == "true"
        found = await self._source.explanation(namespace, name, may_see, tries_changes=tries_changes)
        return _found(found, "pod")

    async def _what_if(self, request: web.Request) -> web.Response:
        # A simple request of a foreign form has another type, and a browser asks before it sends this one.
        if request.content_type != "application/json":
            return _error(415, "expected application/json")
        if (request.content_length or 0) > _MAX_QUESTION_BYTES:
            return _error(413, f"expected at most {_MAX_QUESTION_BYTES} bytes")
        try:
            what_if = msgspec.json.decode(await request.read(), type=WhatIfRequest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _error(400, str(error))
        wanted = what_if.like.namespace if what_if.like is not None else ""
        may_see = await self._visible(request, wanted)
        if isinstance(may_see, Rejection):
            return may_see.response()
        if wanted and not may_see(wanted):
            return _error(403, f"you may not list the pods of namespace {wanted}")
        try:
            return _found(await self._source.what_if(what_if, may_see), "pod")
        except SettingsError as error:
            return _error(400, str(error))

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if self._n_viewers >= MAX_VIEWERS:
            return _error(503, f"{MAX_VIEWERS} viewers are connected already", retry_after_s=10)
        headers = {**SECURITY_HEADERS, "Cache-Control": "no-store", "Content-Type": "text/event-stream"}
        response = web.StreamResponse(headers=headers)
        self._n_viewers += 1
        try:
            await response.prepare(request)
            async with asyncio.timeout(_STREAM_S):
                await self._send_until_stopped(request, response)
        except (TimeoutError, ConnectionError):
            pass  # the page connects again
        finally:
            self._n_viewers -= 1
        return response

    async def _send_until_stopped(self, request: web.Request, response: web.StreamResponse) -> None:
        """
        Send the newest state at every tick; a viewer that does not read gets fewer ticks, never a longer queue.

        The buffer of a viewer is bounded by the one of its connection, 64 KB and one message.
        """
        shown = self._source.newest_decision
        while not self._stopping.is_set():
            message = self._message()
            if self._source.newest_decision > shown:
                may_see = await self._visible(request)
                if isinstance(may_see, Rejection):
                    return
                shown, event = self._decisions_since(shown, may_see)
                message += event
            async with asyncio.timeout(_STALLED_S):
                await response.write(message)
            try:
                async with asyncio.timeout(TICK_S):
                    await self._stopping.wait()
            except TimeoutError:
                continue

    def _decisions_since(self, shown: int, may_see: Visible) -> tuple[int, bytes]:
        """Return the number of the newest decision, and the event of those after `shown`."""
        since, newest, event = self._decisions_message
        if may_see is everything and (since, newest) == (shown, self._source.newest_decision):
            return newest, event
        decisions = self._source.decisions(shown, may_see, _DECISIONS_PER_TICK)
        event = _event("decisions", decisions)
        if may_see is everything:
            self._decisions_message = (shown, decisions.newest, event)
        return decisions.newest, event

    def _message(self) -> bytes:
        now = self._source.now()
        if self._now_message is None or self._now_message[0] is not now:
            self._now_message = (now, _event("now", now))
        return self._now_message[1]

    async def _visible(self, request: web.Request, first: str = "") -> Visible | Rejection:
        """Return what the user may see; the namespace that the request is about is asked about first."""
        return await self._access.visible(request, self._source.namespaces, first=first)

    async def _end_streams(self, _: web.Application) -> None:
        self._stopping.set()


def _parameter_problem(request: web.Request, known: Collection[str]) -> str | None:
    """Return what is wrong with the names or the length of the request's parameters, None if nothing."""
    for name in request.query:
        if name not in known:
            return (
                f"found the parameter {quoted(name[:_NAME_LIMIT])}, expected {' or '.join(known) or 'none'}"
            )
        if len(request.query.getall(name)) > 1:
            return f"found the parameter {name} more than once, expected it once"
    if max(map(len, (*request.match_info.values(), *request.query.values())), default=0) > _NAME_LIMIT:
        return f"expected parameters of at most {_NAME_LIMIT} characters"
    return None


def _event(name: str, data: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))


def _json(data: object, *, status: int = 200) -> web.Response:
    return _json_body(msgspec.json.encode(data), status=status)


def _json_body(body: bytes, *, status: int = 200) -> web.Response:
    headers = {**SECURITY_HEADERS, "Cache-Control": "no-store"}
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def _found(data: object | None, what: str) -> web.Response:
    return _error(404, f"there is no such {what}") if data is None else _json(data)


def _error(status: int, message: str, *, retry_after_s: int | None = None) -> web.Response:
    response = _json({"message": message}, status=status)
    if retry_after_s is not None:
        response.headers["Retry-After"] = str(retry_after_s)
    return response
