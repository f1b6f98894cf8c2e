"""The API server behind the listener: authentication, faults, and the handler of every path."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

import msgspec
from aiohttp import web

from scheduler.sandbox.devcluster import status
from scheduler.sandbox.devcluster.access.authentication import User
from scheduler.sandbox.devcluster.access.reviews import REVIEWS, answer_review, review_at
from scheduler.sandbox.devcluster.http import discovery, openapi
from scheduler.sandbox.devcluster.http.authorization import Authorizer
from scheduler.sandbox.devcluster.http.faults import FAULTS_PATH, Effect, Fault, Faults
from scheduler.sandbox.devcluster.http.handlers import Call, Handlers, status_response
from scheduler.sandbox.devcluster.http.negotiation import answer_form, decoded_object
from scheduler.sandbox.devcluster.http.routes import Target, is_watch, target_of, verb_of
from scheduler.sandbox.devcluster.http.watches import Watch
from scheduler.sandbox.devcluster.kinds import JsonObject
from scheduler.sandbox.devcluster.status import StatusError
from scheduler.sandbox.devcluster.storage.store import ObjectStore

#: Limit on the size of a body, as upstream's.
MAX_BODY_BYTES: Final = 3 * 1024 * 1024

_NO_METHOD: Final = "the server does not allow this method on the requested resource"
_HEALTH_PATHS: Final = frozenset({"/healthz", "/livez", "/readyz"})
_LOG: Final = logging.getLogger(__name__)

#: The User-Agent of the request that is being answered; empty for writes from within the process.
user_agent: Final[ContextVar[str]] = ContextVar("user_agent", default="")
#: Called with User-Agent, method and path of every request for a resource, before any fault applies.
Arrival = Callable[[str, str, str], None]
_Answering = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class ApiServer:
    """Answers requests from one store."""

    def __init__(
        self,
        store: ObjectStore,
        faults: Faults,
        *,
        token: str | None,
        bookmark_interval_s: float,
    ) -> None:
        self.arrivals: Final[list[Arrival]] = []
        self.authorizer: Final = Authorizer(store, token)
        self._store = store
        self._faults = faults
        self._handlers = Handlers(store, self.authorizer.authenticator)
        self._bookmark_interval_s = bookmark_interval_s
        #: The handlers of open watches.
        self._watches: set[asyncio.Task[Any] | None] = set()

    def end_watches(self) -> None:
        """End every open watch; aiohttp would wait for them, and they last half an hour."""
        for watch in filter(None, list(self._watches)):
            watch.cancel()

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer any request. A bug in the server is answered with a Status 500."""
        try:
            return await self._dispatch(request)
        except StatusError as error:
            return status_response(error)
        except web.HTTPRequestEntityTooLarge:
            return status_response(
                status.refused(413, f"Request entity too large: limit is {MAX_BODY_BYTES}")
            )
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - reported to the client as upstream does, and logged whole
            _LOG.exception("request failed: %s %s", request.method, request.path)
            return status_response(status.internal(f"{type(error).__name__}: {error}"))

    async def _dispatch(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path in _HEALTH_PATHS:
            return web.Response(text="ok")
        user = self.authorizer.authenticator.user_of(request.headers)
        if path == FAULTS_PATH:
            self.authorizer.check_path(user, request.method, path)
            return await self._manage_faults(request)
        target = target_of(request.rel_url.raw_path, self._store.kinds.at)
        if target is None:
            self.authorizer.check_path(user, request.method, path)
            return await self._with_faults(request, "get", "", partial(self._without_resource, user))
        verb = verb_of(request.method, target, watch=is_watch(request.query))
        if verb is None:
            raise status.refused(405, _NO_METHOD)
        self.authorizer.check_resource(user, verb, target, request.query.get("fieldSelector", ""))
        user_agent.set(request.headers.get("User-Agent", ""))
        for listener in self.arrivals:
            listener(user_agent.get(), request.method, path)
        answer = partial(self._watch, target) if verb == "watch" else partial(self._handle, target, verb)
        return await self._with_faults(request, verb, target.kind.qualified, answer)

    async def _handle(self, target: Target, verb: str, request: web.BaseRequest) -> web.StreamResponse:
        body, content_type = await request.read(), request.headers.get("Content-Type", "")
        form = answer_form(request.headers.get("Accept", ""), request.query.get("includeObject", ""))
        call = Call(target, request.query, body, content_type, form, verb)
        return await self._handlers.handle(call)

    async def _watch(self, target: Target, request: web.BaseRequest) -> web.StreamResponse:
        watch = Watch(self._store, self._faults, target, request, self._bookmark_interval_s)
        task = asyncio.current_task()
        self._watches.add(task)
        try:
            return await watch.serve()
        finally:
            self._watches.discard(task)

    async def _with_faults(
        self, request: web.BaseRequest, verb: str, kind: str, answer: _Answering
    ) -> web.StreamResponse:
        """Return the response, or the result of the oldest fault for this request."""
        fault = self._faults.for_request(request.method.lower(), verb, kind, request.path)
        if fault is None:
            return await answer(request)
        if fault.action is Effect.DELAY:
            await asyncio.sleep(fault.delay_s)
            return await answer(request)
        if fault.action in (Effect.LOSE_ANSWER, Effect.RESPOND_AFTER):
            # The write must take effect even if the client gives up while it waits.
            await asyncio.shield(asyncio.ensure_future(answer(request)))
        if fault.action in (Effect.RESPOND, Effect.RESPOND_AFTER):
            told = status.refused(fault.code, "a fault was asked for", retry_after_s=fault.retry_after_s)
            return status_response(told)
        await asyncio.sleep(fault.delay_s)
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("a fault dropped the connection")

    async def _manage_faults(self, request: web.BaseRequest) -> web.StreamResponse:
        """Add faults, or clear them, at a path that is clearly not Kubernetes'."""
        if request.method == "DELETE":
            self._faults.clear()
            return web.Response(status=204)
        try:
            self._faults.add(*msgspec.json.decode(await request.read(), type=list[Fault]))
        except (msgspec.DecodeError, re.error) as error:
            raise status.bad_request(f"faults: {error}") from error
        return web.Response(status=204)

    async def _without_resource(self, user: User, request: web.BaseRequest) -> web.StreamResponse:
        """Answer access reviews, discovery, OpenAPI and the version."""
        path = request.path.rstrip("/")
        if request.method == "POST" and (kind := review_at(path)) is not None:
            review = decoded_object(await request.read(), request.headers.get("Content-Type", ""), kind.kind)
            authenticator = self.authorizer.authenticator
            answer = answer_review(kind, review, caller=user, authenticator=authenticator, store=self._store)
            return web.json_response(answer, status=201)
        if path == "/openapi/v2":
            return web.Response(body=openapi.V2_DOCUMENT, headers={"Content-Type": openapi.V2_CONTENT_TYPE})
        body = self._document(path)
        if body is None:
            if self._document("/".join(path.split("/")[: 3 if path.startswith("/api/") else 4])):
                raise status.refused(404, "the server could not find the requested resource")
            return web.Response(status=404, text="404 page not found\n")
        if request.method not in ("GET", "HEAD"):
            raise status.refused(405, _NO_METHOD)
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    def _document(self, path: str) -> JsonObject | None:
        """Return the discovery or OpenAPI document at a path; None if there is none."""
        kinds = self._store.kinds.all()
        served = (*kinds, *REVIEWS)
        match path.strip("/").split("/"):
            case ["version"]:
                return discovery.version(self._store.minor)
            case ["api"]:
                return discovery.api_versions()
            case ["apis"]:
                return discovery.api_group_list(served)
            case ["api", version]:
                return discovery.api_resource_list("", version, served)
            case ["apis", group, version]:
                return discovery.api_resource_list(group, version, served)
            case ["openapi", "v3"]:
                return openapi.index(kinds)
            case ["openapi", "v3", *rest]:
                return openapi.document("/".join(rest), kinds)
            case _:
                return None
