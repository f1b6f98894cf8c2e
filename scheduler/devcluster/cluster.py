"""The listener: one aiohttp server on the loopback interface that answers as an API server does."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from aiohttp import web

from scheduler.devcluster import status
from scheduler.devcluster.access.identities import User
from scheduler.devcluster.access.reviews import answered, review_at
from scheduler.devcluster.admission.shapes import check_request
from scheduler.devcluster.bootstrap import populate
from scheduler.devcluster.controllers.kubelet_loop import KubeletSettings
from scheduler.devcluster.controllers.loop import run_controllers
from scheduler.devcluster.http import discovery, openapi
from scheduler.devcluster.http.authorization import Guard
from scheduler.devcluster.http.faults import FAULTS_PATH, Action, Fault, Faults
from scheduler.devcluster.http.handlers import Handlers, read_call, status_response
from scheduler.devcluster.http.negotiation import decoded_object, wanted_form
from scheduler.devcluster.http.routes import is_watch, target_of, verb_of
from scheduler.devcluster.http.watches import BOOKMARK_INTERVAL_S, Scope, Watch
from scheduler.devcluster.kinds import JsonObject
from scheduler.devcluster.status import StatusError
from scheduler.devcluster.storage.lists import parse_options
from scheduler.devcluster.storage.store import HISTORY_CAPACITY, Store
from scheduler.devcluster.storage.write_log import WriteLog, caller
from scheduler.devcluster.webhooks.dispatch import Admission

#: The largest body that is read, as upstream has it.
MAX_BODY_BYTES: Final = 3 * 1024 * 1024

_HEALTH_PATHS: Final = frozenset({"/healthz", "/livez", "/readyz"})
_SHUTDOWN_S: Final = 2.0
#: Connections that may wait to be accepted.
_BACKLOG: Final = 128
_LOG: Final = logging.getLogger(__name__)

Controllers = Callable[[Store], Awaitable[None]]
#: Told (User-Agent, method, path) of every request that names a resource, before any fault meets it.
Arrival = Callable[[str, str, str], None]


class DevCluster:
    """
    An API server on 127.0.0.1 with everything in memory.

    Use as an async context manager, or call `start` and `stop`. Objects can be read and written in-process
    through `store`, from the same event loop; webhooks are asked about pods from elsewhere, and from controllers.
    """

    def __init__(
        self,
        *,
        nodes: int = 0,
        zones: int = 1,
        port: int = 0,
        host: str = "127.0.0.1",
        token: str | None = None,
        bookmark_interval_s: float = BOOKMARK_INTERVAL_S,
        history_capacity: int = HISTORY_CAPACITY,
        write_log: bool = False,
        controllers: bool = False,
        kubelet: KubeletSettings | None = None,
    ) -> None:
        """
        The cluster has its nodes and namespaces, and is not yet listening.

        Args:
            nodes: how many ready-made nodes there are.
            zones: over how many zones they are dealt out.
            port: 0 takes a free one.
            host: the address to listen on.
            token: requests must carry it as a bearer token; None lets everybody in; "" makes a random one.
            bookmark_interval_s: seconds between the bookmarks of a watch.
            history_capacity: past changes of each kind that watches can still resume from.
            write_log: every accepted write is recorded in `writes`.
            controllers: the workload controllers and the kubelet stand-in run while the server does.
            kubelet: how the stand-in behaves, where it runs; None is the usual.
        """
        self.store: Final = Store(capacity=history_capacity)
        self.faults: Final = Faults()
        self.token: Final = secrets.token_urlsafe(32) if token == "" else token
        self.writes: Final = WriteLog(self.store) if write_log else None
        self.arrivals: Final[list[Arrival]] = []
        self._admission = Admission(self.store)
        self._guard = Guard(self.store, self.token)
        self.judgements: Final = self._guard.judgements
        self._handlers = Handlers(self.store, self._admission, self._guard.identities)
        self._host = host
        self._port = port
        self._bookmark_interval_s = bookmark_interval_s
        self._wants_controllers = controllers
        self._kubelet = kubelet or KubeletSettings()
        self._runner: web.ServerRunner | None = None
        self._listening: asyncio.Server | None = None
        self._controllers: asyncio.Task[None] | None = None
        #: The handlers of open watches.
        self._watches: set[asyncio.Task[Any]] = set()
        populate(self.store, nodes=nodes, zones=zones)

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """The server listens. Raises: OSError where the port is taken."""
        # A handler ends with its client's connection, so an idle watch does not outlive its reader.
        loop = asyncio.get_running_loop()
        requests = partial(web.BaseRequest, loop=loop, client_max_size=MAX_BODY_BYTES)
        server = web.Server(self._serve, request_factory=requests, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_S)
        await self._runner.setup()
        try:
            self._listening = await loop.create_server(server, self._host, self._port, backlog=_BACKLOG)
        except OSError:
            await self._runner.cleanup()
            self._runner = None
            raise
        self._port = self._listening.sockets[0].getsockname()[1]
        if self._wants_controllers:
            self._controllers = asyncio.create_task(
                run_controllers(self.store, self._kubelet, self._admission), name="devcluster-controllers"
            )
            self._controllers.add_done_callback(_report_death)

    async def stop(self) -> None:
        """The server is closed, open watches with it."""
        if self._controllers is not None:
            self._controllers.cancel()
            await asyncio.gather(self._controllers, return_exceptions=True)
            self._controllers = None
        if self._runner is not None:
            await self._stop_listening()
            # Watches last half an hour, and aiohttp would wait for them.
            for watch in list(self._watches):
                watch.cancel()
            await self._runner.cleanup()
            self._runner = None
        await self._admission.close()

    async def _stop_listening(self) -> None:
        """Nobody comes in any more, and who was just let in is known to aiohttp, which closes it."""
        if self._listening is None:
            return
        # A connection is accepted in one turn of the loop and made in the next; with the server closed between them
        # Python 3.11 fails an assertion and leaves it open.
        for each in self._listening.sockets:
            asyncio.get_running_loop().remove_reader(each.fileno())
        await asyncio.sleep(0)
        self._listening.close()
        self._listening = None

    async def __aenter__(self) -> "DevCluster":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- how to reach it -------------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The port it listens on; the one asked for until it is started."""
        return self._port

    @property
    def url(self) -> str:
        """The server's address, without a trailing slash."""
        return f"http://{self._host}:{self._port}"

    @property
    def headers(self) -> dict[str, str]:
        """The headers that let a request in."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def token_of(self, namespace: str, account: str) -> str:
        """A token of a ServiceAccount, good for an hour. Raises: StatusError 404."""
        token: str = self._guard.identities.issue(namespace, account, {})["status"]["token"]
        return token

    def kubeconfig(self) -> JsonObject:
        """A kubeconfig whose only context is this cluster."""
        user: JsonObject = {"token": self.token} if self.token else {}
        context = {"cluster": "devcluster", "user": "devcluster", "namespace": "default"}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "devcluster", "cluster": {"server": self.url}}],
            "users": [{"name": "devcluster", "user": user}],
            "contexts": [{"name": "devcluster", "context": context}],
            "current-context": "devcluster",
        }

    def write_kubeconfig(self, path: Path) -> None:
        """The kubeconfig is at `path`, readable by its owner alone. Raises: OSError."""
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text(yaml.safe_dump(self.kubeconfig(), sort_keys=False))

    # -- requests --------------------------------------------------------------------------------------------

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Every request: authentication, faults, then the path's own meaning. A bug here is a 500 Status."""
        await _invite_body(request)
        try:
            return await self._dispatch(request)
        except StatusError as error:
            return status_response(error)
        except web.HTTPRequestEntityTooLarge:
            return status_response(status.too_large_body(MAX_BODY_BYTES))
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - reported to the client as upstream does, and logged whole
            _LOG.exception("request failed: %s %s", request.method, request.path)
            return status_response(status.internal(f"{type(error).__name__}: {error}"))

    async def _dispatch(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path in _HEALTH_PATHS:
            return web.Response(text="ok")
        user = self._guard.identities.caller(request.headers)
        if path == FAULTS_PATH:
            self._guard.check_path(user, request.method, path)
            return await self._administer(request)
        target = target_of(request.rel_url.raw_path)
        if target is None:
            self._guard.check_path(user, request.method, path)
            return await self._with_faults(request, "get", "", partial(self._undirected, user))
        watch = is_watch(path, request.query)
        verb = verb_of(request.method, target, watch=watch)
        if verb is None:
            raise status.method_not_allowed()
        self._guard.check_resource(user, verb, target)

        caller.set(request.headers.get("User-Agent", ""))
        for arrived in self.arrivals:
            arrived(caller.get(), request.method, path)

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            if verb == "watch":
                options = parse_options(target.kind, request.query, watch=True, name=target.name)
                wanted = wanted_form(
                    request.headers.get("Accept", ""), request.query.get("includeObject", "")
                )
                scope = Scope(target.kind, target.namespace, path, options, wanted)
                return await self._watch(request, scope)
            body = await request.read()
            return await self._handlers.handle(
                read_call(verb, target, query=request.query, headers=request.headers, body=body)
            )

        return await self._with_faults(request, verb, target.kind.qualified, answer)

    async def _watch(self, request: web.BaseRequest, scope: Scope) -> web.StreamResponse:
        """The watch is over; `stop` can end it."""
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("a handler runs in a task")
        self._watches.add(task)
        try:
            return await Watch(self.store, self.faults, scope, self._bookmark_interval_s).serve(request)
        finally:
            self._watches.discard(task)

    async def _with_faults(
        self,
        request: web.BaseRequest,
        verb: str,
        kind: str,
        answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """The answer, or what a rule makes of it."""
        fault = self.faults.for_request(request.method.lower(), verb, kind, request.path)
        if fault is None:
            return await answer(request)
        if fault.action is Action.RESPOND:
            return status_response(_answered(fault))
        if fault.action is Action.DELAY:
            await asyncio.sleep(fault.delay_s)
            return await answer(request)
        if fault.action is Action.LOSE_ANSWER:
            # The write must take effect even if the client gives up while it waits.
            await asyncio.shield(asyncio.ensure_future(answer(request)))
            await asyncio.sleep(fault.delay_s)
        if fault.action is Action.RESPOND_AFTER:
            await asyncio.shield(asyncio.ensure_future(answer(request)))
            return status_response(_answered(fault))
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("a fault dropped the connection")

    async def _undirected(self, user: User, request: web.BaseRequest) -> web.StreamResponse:
        """Paths that name no stored resource: access reviews, discovery, OpenAPI and the version."""
        path = request.path.rstrip("/")
        if request.method == "POST" and (kind := review_at(path)) is not None:
            content_type = request.headers.get("Content-Type", "")
            review = decoded_object(await request.read(), content_type, kind.kind)
            check_request(kind.kind, review)
            answer = answered(kind, review, caller=user, identities=self._guard.identities, store=self.store)
            return web.json_response(answer, status=201)
        if path == "/openapi/v2":
            return web.Response(body=openapi.V2_DOCUMENT, headers={"Content-Type": openapi.V2_CONTENT_TYPE})
        body = self._document(path, request)
        if body is None:
            if self._document("/".join(path.split("/")[: 3 if path.startswith("/api/") else 4]), request):
                raise status.no_such_path()
            return web.Response(status=404, text="404 page not found\n")
        if request.method not in ("GET", "HEAD"):
            raise status.method_not_allowed()
        content_type = "application/json"
        if body.get("kind") == "APIGroupDiscoveryList":
            version = body["apiVersion"].partition("/")[2]
            content_type += f";g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
        return web.Response(body=msgspec.json.encode(body), headers={"Content-Type": content_type})

    def _document(self, path: str, request: web.BaseRequest) -> JsonObject | None:
        match path.strip("/").split("/"):
            case ["version"]:
                return discovery.version()
            case ["api" | "apis" as root]:
                version = _aggregated_version(request.headers.get("Accept", ""))
                if version is not None:
                    return discovery.aggregated(core=root == "api", api=version)
                return discovery.api_versions(request.host) if root == "api" else discovery.api_group_list()
            case ["api", version]:
                return discovery.api_resource_list("", version)
            case ["apis", group]:
                return discovery.api_group(group)
            case ["apis", group, version]:
                return discovery.api_resource_list(group, version)
            case ["openapi", "v3"]:
                return openapi.index()
            case ["openapi", "v3", *rest]:
                return openapi.document("/".join(rest))
            case _:
                return None

    # -- administration --------------------------------------------------------------------------------------

    async def _administer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Faults are shown, added or cleared: not Kubernetes', and at a path that says so."""
        match request.method:
            case "GET":
                return web.Response(
                    body=msgspec.json.encode(self.faults.pending()), content_type="application/json"
                )
            case "DELETE":
                self.faults.clear()
                return web.Response(status=204)
            case "POST":
                try:
                    added = msgspec.json.decode(await request.read(), type=list[Fault])
                    self.faults.add(*added)
                except (msgspec.DecodeError, ValueError) as error:
                    raise status.bad_request(f"faults: {error}") from error
                return web.Response(status=204)
            case _:
                raise status.method_not_allowed()


async def _invite_body(request: web.BaseRequest) -> None:
    """
    A client that asks before it sends a body is told to go on.

    Raises: HTTPExpectationFailed where it expects anything else. Source: Go's net/http/server.go.
    """
    expected = request.headers.get("Expect", "").lower()
    if expected not in ("", "100-continue"):
        raise web.HTTPExpectationFailed
    if expected and request.version >= (1, 1):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")


def _report_death(controllers: asyncio.Task[None]) -> None:
    """The controllers end by cancellation alone; anything else is a bug, and the log says which."""
    if not controllers.cancelled() and (error := controllers.exception()) is not None:
        _LOG.error("the controllers ended: %s", error, exc_info=error)


def _aggregated_version(accept: str) -> str | None:
    """The first version of aggregated discovery that a client takes, or None where it wants the plain documents."""
    for offer in accept.split(","):
        parameters = [part.strip() for part in offer.split(";")]
        if "as=APIGroupDiscoveryList" in parameters and parameters[0] == "application/json":
            for part in parameters:
                if part.startswith("v=") and part[2:] in discovery.AGGREGATED_VERSIONS:
                    return part[2:]
        elif parameters[0] in ("application/json", "*/*"):
            return None
    return None


_REASONS: Final[Mapping[int, str]] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def _answered(fault: Fault) -> StatusError:
    details: dict[str, Any] = {"retryAfterSeconds": fault.retry_after_s} if fault.retry_after_s else {}
    headers = {"Retry-After": str(fault.retry_after_s)} if fault.retry_after_s else {}
    reason = _REASONS.get(fault.code, "")
    return StatusError(fault.code, reason, "a fault was asked for", details=details, headers=headers)
