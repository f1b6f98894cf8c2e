"""
The HTTP endpoints /metrics, /healthz, /livez, /readyz, /configz, /statusz and /flagz as kube-scheduler's, and the
routes that a command adds, such as the page.

Plain HTTP on loopback, unless a flag asks for HTTPS; elsewhere HTTPS with authentication. Every response is computed
from memory in a few ms.

Source: apiserver/pkg/server/healthz/healthz.go, cmd/kube-scheduler/app/server.go (kubernetes 1.36). Difference:
/metrics takes no DELETE.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from scheduler.daemon.kube.client import KubeClient, RequestHook
from scheduler.daemon.kube.credentials import Credentials, load_credentials
from scheduler.daemon.metrics.logs import Logger, quoted
from scheduler.daemon.metrics.process import CONTENT_TYPE
from scheduler.daemon.port.delegated_auth import ALWAYS_ALLOWED, MAX_CONCURRENT, DelegatedAuth
from scheduler.daemon.port.listener import Listener, is_loopback
from scheduler.daemon.port.serving_certificate import FileCertificate, SelfSignedCertificate
from scheduler.daemon.port.tls import KeyPair, TlsLimits, load_pair, server_context
from scheduler.daemon.port.zpages import ZPages
from scheduler.errors import SettingsError

#: Returns True if the check passes; called at every request.
Check = Callable[[], bool]

_NO_CHECKS: Final[Mapping[str, Check]] = {}
#: Response of a single failed check.
_REASON_BY_CHECK: Final = {
    "sched-handler-sync": "handlers are not fully synchronized",
    "scheduling": "pods are ready to be scheduled, and nothing happens",
    "caches-fresh": "a watch has been silent for minutes",
    "shutdown": "process is shutting down",
}


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """Address, port and TLS of the endpoints, from the flags."""

    #: IP address or host name.
    address: str
    #: 0 for no server.
    port: int
    #: None for a self-signed certificate.
    cert_file: Path | None = None
    key_file: Path | None = None
    #: Plain HTTP without authentication, on any address.
    insecure_http: bool = False
    #: Paths that need no authentication.
    always_allowed: tuple[str, ...] = ALWAYS_ALLOWED
    #: Credentials for TokenReviews and for SubjectAccessReviews; None for the process's own.
    authentication_kubeconfig: str | None = None
    authorization_kubeconfig: str | None = None
    #: True for HTTPS on loopback too.
    asks_for_https: bool = False
    tls: TlsLimits = field(default_factory=TlsLimits)
    #: The flag that sets the port, for messages.
    port_flag: str = "--port"

    @property
    def is_secure(self) -> bool:
        """True for HTTPS with authentication: always on an address that other machines may reach."""
        if self.insecure_http or not self.port:
            return False
        return self.asks_for_https or self.cert_file is not None or not is_loopback(self.address)


class Routes:
    """Routes beside the endpoints, for authenticated clients, or on plain HTTP on loopback; this base has none."""

    #: The paths to list at /statusz, that of a page for people first.
    paths: ClassVar[Sequence[str]] = ()

    def add_to(self, app: web.Application, auth: DelegatedAuth | None) -> None:
        """Add the routes; `auth` is None on plain HTTP, where every client is on this machine."""


_NO_ROUTES: Final = Routes()


@asynccontextmanager
async def open_auth(
    options: ServingOptions,
    credentials: Credentials | None,
    environ: Mapping[str, str],
    *,
    log: Logger,
    on_request: RequestHook,
) -> AsyncIterator[DelegatedAuth | None]:
    """
    Yield the authentication that the port needs, with connections of its own; None if the port needs none.

    `credentials` are the process's own; None to load them from the environment. Raises SettingsError
    if there are no usable ones.
    """
    if not options.is_secure:
        yield None
        return
    clients: list[KubeClient] = []
    async with AsyncExitStack() as stack:
        for kubeconfig in (options.authentication_kubeconfig, options.authorization_kubeconfig):
            found = credentials
            if found is None or kubeconfig is not None:
                found = await load_credentials(kubeconfig=kubeconfig, master=None, environ=environ)
            client = KubeClient(found, max_connections=2 * MAX_CONCURRENT, on_request=on_request)
            clients.append(await stack.enter_async_context(client))
        tokens, rights = clients
        yield DelegatedAuth(tokens, rights, always_allowed=options.always_allowed, log=log)


class StatusServer:
    """
    Serves the endpoints between `start` and `stop`.

    `auth` authenticates clients; required if `options.is_secure`. `render` returns the body of /metrics, `configz` the
    JSON of /configz. `ready` and `live` are the checks of /readyz, and of /livez and /healthz besides `ping`. Without
    `zpages`, /statusz and /flagz are not served.
    """

    def __init__(
        self,
        options: ServingOptions,
        *,
        auth: DelegatedAuth | None = None,
        log: Logger,
        render: Callable[[], bytes],
        configz: Callable[[], str],
        ready: Mapping[str, Check],
        live: Mapping[str, Check] = _NO_CHECKS,
        routes: Routes = _NO_ROUTES,
        zpages: ZPages | None = None,
    ) -> None:
        if options.is_secure and auth is None:
            raise ValueError("a port that is reachable from outside needs authentication")
        self._options = options
        self._log = log
        app = new_application(render=render, configz=configz, live=live, ready=ready)
        self._paths: Sequence[str] = ()
        if options.is_secure or is_loopback(options.address):
            routes.add_to(app, auth if options.is_secure else None)
            self._paths = routes.paths
        if zpages is not None:
            zpages = replace(zpages, further_paths=tuple(self._paths))
            app.router.add_get("/statusz", zpages.statusz)
            app.router.add_get("/flagz", zpages.flagz)
        self._tls = server_context(options.tls) if options.is_secure else None
        if options.is_secure and auth is not None:
            app.middlewares.insert(0, auth.middleware())
        self._listener = Listener(app, tls=self._tls)
        self._renewal: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve the endpoints, unless the port is 0. Raises SettingsError if port, address or certificate fail."""
        options = self._options
        if not options.port:
            return
        certificate = self._certificate()
        if certificate is not None:
            certificate.load()
        try:
            await self._listener.start(options.address, options.port)
        except OSError as error:
            raise self._settings_error(error) from error
        if self._paths:
            scheme, host = "https" if options.is_secure else "http", _host(options.address)
            url = f"{scheme}://{host}:{options.port}{self._paths[0]}"
            self._log.info(0, "Serving the page", url=url)
        if certificate is not None:
            self._renewal = asyncio.create_task(certificate.run(), name="certificate")
        elif options.insecure_http and not is_loopback(options.address):
            text = "Metrics are served over plain HTTP without authentication: --insecure-http"
            self._log.info(0, text, address=options.address)

    async def stop(self) -> None:
        """Stop serving once responses in progress are sent, or after a deadline. Harmless if not started."""
        await self._listener.stop()
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait([self._renewal])

    def serve(self, pair: KeyPair) -> None:
        """Use this pair for new connections. Raises ssl.SSLError if it is invalid."""
        if self._tls is not None:
            load_pair(self._tls, pair)

    def _certificate(self) -> FileCertificate | SelfSignedCertificate | None:
        cert, key = self._options.cert_file, self._options.key_file
        if self._tls is None:
            return None
        if cert is not None and key is not None:
            return FileCertificate(cert, key, self, log=self._log)
        return SelfSignedCertificate(self, log=self._log)

    def _settings_error(self, error: OSError) -> SettingsError:
        address, port = self._options.address, self._options.port
        # From Python 3.13 on, asyncio sets no errno if no address of a name could be bound.
        if isinstance(error, socket.gaierror) or error.errno in (errno.EADDRNOTAVAIL, None):
            return SettingsError("--bind-address", "", address, "an address of this machine")
        flag = self._options.port_flag
        match error.errno:
            case errno.EADDRINUSE:
                return SettingsError(flag, "", f"{port} in use", "a free port")
            case errno.EACCES | errno.EPERM:
                return SettingsError(flag, "", f"{port} forbidden", "a port this user may open")
        found = f"{address} port {port}: {error.strerror or error}"
        return SettingsError("--bind-address", "", found, "an address and port to listen on")


def new_application(
    *,
    render: Callable[[], bytes],
    configz: Callable[[], str],
    ready: Mapping[str, Check],
    live: Mapping[str, Check] = _NO_CHECKS,
) -> web.Application:
    """Return the endpoints as an aiohttp application; for the arguments see `StatusServer`."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=render(), headers={"Content-Type": CONTENT_TYPE})

    async def configuration(_: web.Request) -> web.Response:
        return web.Response(body=configz().encode(), content_type="application/json")

    app = web.Application(middlewares=[_not_found_as_go])
    app.on_response_prepare.append(_without_server_header)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/configz", configuration)
    live_checks = {"ping": lambda: True, **live}
    for name, checks in (("healthz", live_checks), ("livez", live_checks), ("readyz", ready)):
        app.router.add_get(f"/{name}", _all_checks(name, checks))
        for check, passes in checks.items():
            app.router.add_get(f"/{name}/{check}", _one_check(check, passes))
    return app


def _all_checks(name: str, checks: Mapping[str, Check]) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        excluded = set(request.query.getall("exclude", []))
        lines: list[str] = []
        passed = True
        for check, passes in checks.items():
            if check in excluded:
                excluded.remove(check)
                lines.append(f"[+]{check} excluded: ok\n")
            elif passes():
                lines.append(f"[+]{check} ok\n")
            else:
                passed = False
                lines.append(f"[-]{check} failed: reason withheld\n")
        if excluded:
            names = ",".join(map(quoted, sorted(excluded)))
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}\n")
        if passed and "verbose" not in request.query:
            return _plain("ok")
        ended = "passed" if passed else "failed"
        return _plain("".join(lines) + f"{name} check {ended}\n", status=200 if passed else 500)

    return answer


def _one_check(check: str, passes: Check) -> Handler:
    reason = _REASON_BY_CHECK.get(check, "failed")

    async def answer(_: web.Request) -> web.Response:
        return _plain("ok") if passes() else _plain(f"internal server error: {reason}\n", status=500)

    return answer


@web.middleware
async def _not_found_as_go(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return _plain("404 page not found\n", status=404)


def _host(address: str) -> str:
    """Return the host of an URL that reaches a listener at this address from the same machine."""
    host = "localhost" if address in ("", "0.0.0.0", "::") else address  # noqa: S104 - a comparison
    return f"[{host}]" if ":" in host else host


async def _without_server_header(_: web.Request, response: web.StreamResponse) -> None:
    """Remove the header that names the server and its version."""
    response.headers.popall("Server", None)


def _plain(text: str, *, status: int = 200) -> web.Response:
    return web.Response(
        text=text, status=status, charset="utf-8", headers={"X-Content-Type-Options": "nosniff"}
    )
