"""
The HTTP endpoints: /metrics, /healthz, /livez, /readyz and /configz as kube-scheduler answers them; /debug/explain.

On loopback plain HTTP, elsewhere HTTPS behind a gate. Everything is answered from memory, within a few milliseconds.

Source: apiserver/pkg/server/healthz/healthz.go, cmd/kube-scheduler/app/server.go (kubernetes 1.36). Different here:
/metrics takes no DELETE.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from scheduler.errors import SettingsError
from scheduler.kube.client import KubeClient, RequestHook
from scheduler.kube.credentials import Credentials, load_credentials
from scheduler.observe.logs import Logger, quoted
from scheduler.observe.process import CONTENT_TYPE
from scheduler.serving.debugging import PATH, Debugging, Explain, is_loopback
from scheduler.serving.gate import ALWAYS_ALLOWED, AT_ONCE, Gate
from scheduler.serving.listener import Listener
from scheduler.serving.tls import FileKeeper, OwnKeeper, Pair, load_pair, server_context

#: Whether all is well with one thing; asked at every request.
Check = Callable[[], bool]

_NOTHING: Final[Mapping[str, Check]] = {}
_PING: Final[Mapping[str, Check]] = {"ping": lambda: True}
#: What a single failed check says.
_REASON_BY_CHECK: Final = {
    "sched-handler-sync": "handlers are not fully synchronized",
    "scheduling": "pods are ready to be scheduled, and nothing happens",
    "caches-fresh": "a watch has been silent for minutes",
    "shutdown": "process is shutting down",
}


@dataclass(frozen=True, slots=True)
class Listening:
    """Where metrics and health are served, and how, as the command line says."""

    #: IP address or host name.
    address: str
    #: 0 for no server at all.
    port: int
    #: None where the certificate is of our own making.
    cert_file: Path | None = None
    key_file: Path | None = None
    #: Plain HTTP for whoever reaches the address, though that is not on loopback.
    insecure_http: bool = False
    #: Paths for which nobody has to be known.
    always_allowed: tuple[str, ...] = ALWAYS_ALLOWED
    #: Whose questions the API server answers about tokens and rights; None for the process's own.
    authentication_kubeconfig: str | None = None

    @property
    def is_secure(self) -> bool:
        """Whether it is HTTPS, and whoever asks has to be known: wherever others than this machine's may ask."""
        if self.insecure_http or not self.port:
            return False
        return self.cert_file is not None or not is_loopback(self.address)


@asynccontextmanager
async def gate_for(
    listening: Listening,
    credentials: Credentials | None,
    environ: Mapping[str, str],
    *,
    log: Logger,
    on_request: RequestHook,
) -> AsyncIterator[Gate | None]:
    """
    The gate that the port needs, with connections of its own; None where it needs none.

    `credentials` are the process's own; where they are None, the environment has to say.

    Raises:
        SettingsError: if there is no way to reach the API server.
    """
    if not listening.is_secure:
        yield None
        return
    if credentials is None or listening.authentication_kubeconfig is not None:
        credentials = await load_credentials(
            kubeconfig=listening.authentication_kubeconfig, master=None, environ=environ
        )
    async with KubeClient(credentials, max_connections=2 * AT_ONCE, on_request=on_request) as client:
        yield Gate(client, always_allowed=listening.always_allowed, log=log)


class Probes:
    """
    The server of the endpoints; nothing is served before `start` and after `stop`.

    Args:
        listening: where and how.
        gate: judges who may ask; needed where `listening` is secure.
        log: told how it is served.
        render: the body of /metrics.
        configz: the JSON body of /configz.
        ready: what /readyz checks, by name, in order.
        live: what /livez and /healthz check besides that the process answers, likewise.
        explain: answers /debug/explain, which is not there without it, nor where anybody from anywhere may ask.
        knows_all: whether it can be answered yet.
    """

    def __init__(
        self,
        listening: Listening,
        *,
        gate: Gate | None = None,
        log: Logger,
        render: Callable[[], bytes],
        configz: Callable[[], str],
        ready: Mapping[str, Check],
        live: Mapping[str, Check] = _NOTHING,
        explain: Explain | None = None,
        knows_all: Check = lambda: True,
    ) -> None:
        if listening.is_secure and gate is None:
            raise ValueError("a port that leaves the pod needs a gate")
        self._listening = listening
        self._log = log
        app = application(render=render, configz=configz, live=live, ready=ready)
        is_open = not listening.is_secure
        if explain is not None and not (is_open and not is_loopback(listening.address)):
            debugging = Debugging(explain, is_open=is_open, now_s=time.monotonic, knows_all=knows_all)
            app.router.add_get(PATH, debugging.handle)
        self._tls = server_context() if listening.is_secure else None
        if listening.is_secure and gate is not None:
            app.middlewares.insert(0, gate.middleware())
        self._listener = Listener(app, tls=self._tls)
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """
        The endpoints are served, unless the port is 0.

        Raises:
            SettingsError: if the port is in use or not ours to take, the address is not this machine's, or there is
                no certificate.
        """
        listening = self._listening
        if not listening.port:
            return
        keeper = self._keeper()
        if keeper is not None:
            keeper.load()
        try:
            await self._listener.start(listening.address, listening.port)
        except OSError as error:
            raise self._explained(error) from error
        if keeper is not None:
            self._keeping = asyncio.create_task(keeper.run(), name="certificate")
        elif listening.insecure_http and not is_loopback(listening.address):
            self._log.info(
                0,
                "Metrics are served over plain HTTP to whoever asks: --insecure-http",
                address=listening.address,
            )

    async def stop(self) -> None:
        """Nothing is served; answers under way had their time. Harmless if nothing was served."""
        await self._listener.stop()
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])

    def serve(self, pair: Pair) -> None:
        """New connections get this pair. Raises ssl.SSLError if it is none."""
        if self._tls is not None:
            load_pair(self._tls, pair)

    def _keeper(self) -> FileKeeper | OwnKeeper | None:
        cert, key = self._listening.cert_file, self._listening.key_file
        if self._tls is None:
            return None
        if cert is not None and key is not None:
            return FileKeeper(cert, key, self, log=self._log)
        return OwnKeeper(self, log=self._log)

    def _explained(self, error: OSError) -> SettingsError:
        address, port = self._listening.address, self._listening.port
        # From Python 3.13 on asyncio gives no number where no address of a name could be bound.
        if isinstance(error, socket.gaierror) or error.errno in (errno.EADDRNOTAVAIL, None):
            return SettingsError("--bind-address", "", address, "an address of this machine")
        match error.errno:
            case errno.EADDRINUSE:
                return SettingsError("--port", "", f"{port} in use", "a free port")
            case errno.EACCES | errno.EPERM:
                return SettingsError("--port", "", f"{port} forbidden", "a port this user may open")
        found = f"{address} port {port}: {error.strerror or error}"
        return SettingsError("--bind-address", "", found, "an address and port to listen on")


def application(
    *,
    render: Callable[[], bytes],
    configz: Callable[[], str],
    ready: Mapping[str, Check],
    live: Mapping[str, Check] = _NOTHING,
) -> web.Application:
    """The endpoints as an aiohttp application; arguments as those of `Probes`."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=render(), headers={"Content-Type": CONTENT_TYPE})

    async def configuration(_: web.Request) -> web.Response:
        return web.Response(text=configz(), content_type="application/json")

    app = web.Application(middlewares=[_not_found_as_go])
    app.on_response_prepare.append(_untold)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/configz", configuration)
    alive = {**_PING, **live}
    for name, checks in (("healthz", alive), ("livez", alive), ("readyz", ready)):
        health = _Health(name, checks)
        app.router.add_get(f"/{name}", health.all)
        for check in checks:
            app.router.add_get(f"/{name}/{check}", health.one(check))
    return app


class _Health:
    """One health endpoint: all of its checks, or one."""

    def __init__(self, name: str, checks: Mapping[str, Check]) -> None:
        self._name = name
        self._checks = checks

    async def all(self, request: web.Request) -> web.Response:
        excluded = set(request.query.getall("exclude", []))
        lines: list[str] = []
        well = True
        for check, is_well in self._checks.items():
            if check in excluded:
                excluded.remove(check)
                lines.append(f"[+]{check} excluded: ok\n")
            elif is_well():
                lines.append(f"[+]{check} ok\n")
            else:
                well = False
                lines.append(f"[-]{check} failed: reason withheld\n")
        if excluded:
            names = ",".join(map(quoted, sorted(excluded)))
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}\n")
        if not well:
            return _plain("".join(lines) + f"{self._name} check failed\n", status=500)
        if "verbose" in request.query:
            return _plain("".join(lines) + f"{self._name} check passed\n")
        return _plain("ok")

    def one(self, check: str) -> Handler:
        is_well, reason = self._checks[check], _REASON_BY_CHECK.get(check, "failed")

        async def answer(_: web.Request) -> web.Response:
            return _plain("ok") if is_well() else _plain(f"internal server error: {reason}\n", status=500)

        return answer


@web.middleware
async def _not_found_as_go(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return _plain("404 page not found\n", status=404)


async def _untold(_: web.Request, response: web.StreamResponse) -> None:
    """What serves, and in which version, is nobody's business."""
    response.headers.popall("Server", None)


def _plain(text: str, *, status: int = 200) -> web.Response:
    return web.Response(
        text=text, status=status, charset="utf-8", headers={"X-Content-Type-Options": "nosniff"}
    )
