"""
The page's data as JSON. Every object has an apiVersion and a kind; their fields are described where they are made.

    GET  /api/v1/now                                       now.Now
    GET  /api/v1/stream                                    events `now` and `decisions` (decisions.Decisions)
    GET  /api/v1/rules                                     survey.Rules
    GET  /api/v1/rules/{id}?groupBy=LABEL                  domains.DomainMap
    GET  /api/v1/rules/{id}/cell?domain=VALUE              domains.Cell
    GET  /api/v1/node-labels                               domains.NodeLabels
    GET  /api/v1/weights                                   what_if.Weights
    GET  /api/v1/devices?search=TEXT                       devices.DeviceOverview
    GET  /api/v1/devices/pool?driver=&pool=                devices.DevicePool
    GET  /api/v1/pending?namespace=&name=&label=           pending.Pending
    GET  /api/v1/groups                                    groups.Groups
    GET  /api/v1/room?hierarchy=&namespace=&name=&within=  machine_room.MachineRoom
    GET  /api/v1/nodes?search=TEXT                         nodes.NodeUses
    GET  /api/v1/decisions?after=N&limit=N                 decisions.Decisions
    GET  /api/v1/pods/{namespace}/{name}?changes=true      explain.formats.explanation.Explanation, as `explain -o json`
    POST /api/v1/what-if                                   what_if.WhatIfRequest -> WhatIf; writes nothing

Errors are {"message": text}. A name of a pod is left out where its namespace's pods may not be listed; numbers stay.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import msgspec
from aiohttp import web

from scheduler.daemon.metrics.logs import quoted
from scheduler.daemon.port.delegated_auth import Rejection
from scheduler.errors import SettingsError
from scheduler.tools.page.access import PageAccess, everything
from scheduler.tools.page.data import (
    BusyError,
    PageSource,
    error_answer,
    found_answer,
    json_answer,
    json_body,
)
from scheduler.tools.page.decisions import MAX_DECISIONS
from scheduler.tools.page.files import PageFiles
from scheduler.tools.page.machine_room import RoomQuestion
from scheduler.tools.page.pending import Search, Visible
from scheduler.tools.page.stream import PageStream
from scheduler.tools.page.what_if import WhatIfRequest

#: How old an answer may be that viewers share, and the number of such answers, up to 1 MB each.
_SHARED_S: Final = 1.5
_MAX_SHARED: Final = 16
_MAX_QUESTION_BYTES: Final = 128 << 10
_NAME_LIMIT: Final = 253


_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_ViewerHandler = Callable[[web.Request, Visible], Awaitable[web.StreamResponse]]


class PageApi:
    """The handlers of the page's data."""

    def __init__(self, source: PageSource, access: PageAccess) -> None:
        self._source, self._access = source, access
        self._stream = PageStream(source, access)
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
            ("stream", self._stream.answer, ()),
            ("rules", self._rules, ()),
            ("rules/{id}", self._domain_map, ("groupBy",)),
            ("rules/{id}/cell", self._for_viewer(self._cell), ("domain",)),
            ("node-labels", self._node_labels, ()),
            ("weights", self._weights, ()),
            ("devices", self._devices, ("search",)),
            ("devices/pool", self._for_viewer(self._device_pool), ("driver", "pool")),
            ("pending", self._for_viewer(self._pending), ("namespace", "name", "label")),
            ("groups", self._for_viewer(self._groups), ()),
            ("room", self._for_viewer(self._room), RoomQuestion._fields),
            ("nodes", self._nodes, ("search",)),
            ("decisions", self._for_viewer(self._decisions), ("after", "limit")),
            ("pods/{namespace}/{name}", self._explanation, ("changes",)),
        ):
            app.router.add_get(f"/api/v1/{path}", self._checked(answer, parameters), allow_head=False)
        app.router.add_post("/api/v1/what-if", self._checked(self._what_if, ()))
        app.on_shutdown.append(self._stream.end_all)

    def _checked(self, answer: _Handler, parameters: Collection[str]) -> _Handler:
        """Return the handler behind the checks of the request, with errors as JSON. `parameters`: of its query."""

        async def checked(request: web.Request) -> web.StreamResponse:
            if (problem := self._access.problem(request)) is not None:
                return error_answer(403, problem)
            if (problem := _parameter_problem(request, parameters)) is not None:
                return error_answer(400, problem)
            if not self._source.is_synced:
                return error_answer(503, "nodes, namespaces and pods are still being listed", retry_after_s=1)
            try:
                return await answer(request)
            except BusyError as error:
                return error_answer(429, str(error), retry_after_s=error.retry_after_s)

        return checked

    def _for_viewer(self, answer: _ViewerHandler) -> _Handler:
        """Return the handler that says what the user may see, or that rejects the user."""

        async def seen(request: web.Request) -> web.StreamResponse:
            may_see = await self._visible(request)
            return may_see.response() if isinstance(may_see, Rejection) else await answer(request, may_see)

        return seen

    async def _now(self, _: web.Request) -> web.Response:
        return json_answer(self._source.now())

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
            return json_body(body)
        answer = await ask()
        if answer is None:
            return found_answer(None, what)
        body = msgspec.json.encode(answer)
        self._shared[key] = (now_s, body)
        self._shared.move_to_end(key)
        if len(self._shared) > _MAX_SHARED:
            self._shared.popitem(last=False)
        return json_body(body)

    async def _cell(self, request: web.Request, may_see: Visible) -> web.Response:
        domain = request.query.get("domain", "")
        return found_answer(await self._source.cell(request.match_info["id"], domain, may_see), "domain")

    async def _node_labels(self, _: web.Request) -> web.Response:
        return json_answer(self._source.node_labels())

    async def _weights(self, _: web.Request) -> web.Response:
        return json_answer(self._source.weights())

    async def _devices(self, request: web.Request) -> web.Response:
        search = request.query.get("search", "")
        return await self._share(f"devices/{search}", lambda: self._source.devices(search), "devices")

    async def _device_pool(self, request: web.Request, may_see: Visible) -> web.Response:
        driver, pool = request.query.get("driver", ""), request.query.get("pool", "")
        return found_answer(await self._source.device_pool(driver, pool, may_see), "pool")

    async def _pending(self, request: web.Request, may_see: Visible) -> web.Response:
        query = request.query
        search = Search(query.get("namespace", ""), query.get("name", ""), query.get("label", ""))
        if search.label.startswith("="):
            return error_answer(400, f"label: found {quoted(search.label)}, expected KEY or KEY=VALUE")
        if search == Search() and may_see is everything:
            return await self._share("pending", lambda: self._source.pending(search, everything), "pods")
        return json_answer(await self._source.pending(search, may_see))

    async def _groups(self, _: web.Request, may_see: Visible) -> web.Response:
        return json_answer(await self._source.groups(may_see))

    async def _room(self, request: web.Request, may_see: Visible) -> web.Response:
        question = RoomQuestion(*(request.query.get(name, "") for name in RoomQuestion._fields))
        if may_see is everything:
            return await self._share(f"{question}", lambda: self._source.room(question, everything), "room")
        return json_answer(await self._source.room(question, may_see))

    async def _nodes(self, request: web.Request) -> web.Response:
        search = request.query.get("search", "")
        return await self._share(f"nodes/{search}", lambda: self._source.nodes(search), "nodes")

    async def _decisions(self, request: web.Request, may_see: Visible) -> web.Response:
        after, limit = request.query.get("after", "0"), request.query.get("limit", "100")
        if not (after.isdecimal() and limit.isdecimal() and after.isascii() and limit.isascii()):
            return error_answer(400, "after and limit: expected numbers")
        return json_answer(self._source.decisions(int(after), may_see, min(int(limit), MAX_DECISIONS)))

    async def _explanation(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        may_see = await self._visible(request, namespace)
        if isinstance(may_see, Rejection):
            return may_see.response()
        if not may_see(namespace):
            return error_answer(403, f"you may not list the pods of namespace {namespace}")
        if (changes := request.query.get("changes", "false")) not in ("true", "false"):
            return error_answer(400, f"changes: found {quoted(changes)}, expected true or false")
        tries_changes = changes == "true"
        found = await self._source.explanation(namespace, name, may_see, tries_changes=tries_changes)
        return found_answer(found, "pod")

    async def _what_if(self, request: web.Request) -> web.Response:
        # A simple request of a foreign form has another type, and a browser asks before it sends this one.
        if request.content_type != "application/json":
            return error_answer(415, "expected application/json")
        if (request.content_length or 0) > _MAX_QUESTION_BYTES:
            return error_answer(413, f"expected at most {_MAX_QUESTION_BYTES} bytes")
        try:
            what_if = msgspec.json.decode(await request.read(), type=WhatIfRequest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return error_answer(400, str(error))
        wanted = what_if.like.namespace if what_if.like is not None else ""
        may_see = await self._visible(request, wanted)
        if isinstance(may_see, Rejection):
            return may_see.response()
        if wanted and not may_see(wanted):
            return error_answer(403, f"you may not list the pods of namespace {wanted}")
        try:
            return found_answer(await self._source.what_if(what_if, may_see), "pod")
        except SettingsError as error:
            return error_answer(400, str(error))

    async def _visible(self, request: web.Request, first: str = "") -> Visible | Rejection:
        """Return what the user may see; the namespace that the request is about is asked about first."""
        return await self._access.visible(request, self._source.namespaces, first=first)


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
