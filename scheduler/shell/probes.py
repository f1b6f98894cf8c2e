"""
The HTTP endpoints: /metrics, /healthz, /livez, /readyz and /configz, as kube-scheduler answers them.

Plain HTTP, and open to whoever reaches the address. Everything is answered from memory, within a few milliseconds.

Source: apiserver/pkg/server/healthz/healthz.go, cmd/kube-scheduler/app/server.go (kubernetes 1.36). Different here:
/metrics takes no DELETE.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from scheduler.errors import SettingsError
from scheduler.observe.logs import quoted
from scheduler.observe.metrics import CONTENT_TYPE

#: Whether all is well with one thing; asked at every request.
Check = Callable[[], bool]

#: How long answers under way may take when the server stops, as upstream's.
_DRAIN_S: Final = 5.0
#: Connections kept open without a request: a scraper comes every 10 to 60 s.
_KEEP_ALIVE_S: Final = 75.0

_NOTHING: Final[Mapping[str, Check]] = {}
_PING: Final[Mapping[str, Check]] = {"ping": lambda: True}
#: What a single failed check says.
_REASON_BY_CHECK: Final = {
    "sched-handler-sync": "handlers are not fully synchronized",
    "scheduling": "pods are ready to be scheduled, and nothing happens",
    "caches-fresh": "a watch has been silent for minutes",
    "shutdown": "process is shutting down",
}


class Probes:
    """
    The server of the endpoints; nothing is served before `start` and after `stop`.

    Args:
        address: IP address or host name to listen on.
        port: 0 for no server at all.
        render: the body of /metrics.
        configz: the JSON body of /configz.
        ready: what /readyz checks, by name, in order.
        live: what /livez and /healthz check besides that the process answers, likewise.
    """

    def __init__(
        self,
        *,
        address: str,
        port: int,
        render: Callable[[], bytes],
        configz: Callable[[], str],
        ready: Mapping[str, Check],
        live: Mapping[str, Check] = _NOTHING,
    ) -> None:
        self._address = address
        self._port = port
        self._runner = web.AppRunner(
            application(render=render, configz=configz, live=live, ready=ready),
            access_log=None,
            keepalive_timeout=_KEEP_ALIVE_S,
            shutdown_timeout=_DRAIN_S,
        )

    async def start(self) -> None:
        """
        The endpoints are served, unless the port is 0.

        Raises:
            SettingsError: if the port is in use or not ours to take, or the address is not this machine's.
        """
        if not self._port:
            return
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._address, self._port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise self._explained(error) from error

    async def stop(self) -> None:
        """Nothing is served; answers under way had their time. Harmless if nothing was served."""
        await self._runner.cleanup()

    def _explained(self, error: OSError) -> SettingsError:
        # From Python 3.13 on asyncio gives no number where no address of a name could be bound.
        if isinstance(error, socket.gaierror) or error.errno in (errno.EADDRNOTAVAIL, None):
            return SettingsError("--bind-address", "", self._address, "an address of this machine")
        match error.errno:
            case errno.EADDRINUSE:
                return SettingsError("--port", "", f"{self._port} in use", "a free port")
            case errno.EACCES | errno.EPERM:
                return SettingsError("--port", "", f"{self._port} forbidden", "a port this user may open")
        found = f"{self._address} port {self._port}: {error.strerror or error}"
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
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/configz", configuration)
    alive = {**_PING, **live}
    for name, checks in (("healthz", alive), ("livez", alive), ("readyz", ready)):
        health = _Health(name, checks)
        app.router.add_get(f"/{name}", health.all)
        app.router.add_get(f"/{name}/{{check}}", health.one)
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

    async def one(self, request: web.Request) -> web.Response:
        check = request.match_info["check"]
        is_well = self._checks.get(check)
        if is_well is None:
            raise web.HTTPNotFound
        if is_well():
            return _plain("ok")
        return _plain(f"internal server error: {_REASON_BY_CHECK.get(check, 'failed')}\n", status=500)


@web.middleware
async def _not_found_as_go(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return _plain("404 page not found\n", status=404)


def _plain(text: str, *, status: int = 200) -> web.Response:
    return web.Response(
        text=text, status=status, charset="utf-8", headers={"X-Content-Type-Options": "nosniff"}
    )
