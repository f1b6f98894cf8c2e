"""
The life of a daemon, which `run`, `enforce`, `shadow` and `webhook` fill with work of their own.

    start   credentials -> one request as a check -> port -> log line -> tasks, of which the election is one
    work    until a signal comes, the Lease is lost, or nothing is left to do
    stop    the work finishes what is in flight (bounded) -> tasks are cancelled -> Lease released -> port closed
"""

from __future__ import annotations

import asyncio
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from scheduler.daemon.loop.connection import Connection, ConnectionOptions, connect, with_semantics
from scheduler.daemon.loop.leader_election import LeaderElector
from scheduler.daemon.loop.upkeep import disable_full_collections
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.metrics.process import ControllerMetrics, ProcessMetrics
from scheduler.daemon.port.delegated_auth import DelegatedAuth
from scheduler.daemon.port.status_server import ServingOptions, StatusServer
from scheduler.errors import LeadershipLost

#: Between two questions for the version of a server that does not answer.
_ANSWER_PERIOD_S: Final = 2.0


async def serve(
    options: ConnectionOptions,
    environ: Mapping[str, str],
    metrics: ControllerMetrics,
    new_daemon: Callable[[Connection], Daemon],
    *,
    is_rate_limited: bool = False,
    max_connections: int = 100,
) -> int:
    """Run the daemon until SIGTERM or SIGINT, and return the exit code. For arguments and errors see `connect`."""
    disable_full_collections()
    async with connect(
        options, environ, metrics, is_rate_limited=is_rate_limited, max_connections=max_connections
    ) as connection:
        if connection.semantics is None:
            waiting = _ServerWait(options, metrics, connection)
            await run_until_signal(waiting)
            connection = waiting.connection
            if connection.semantics is None:
                return 0
        return await run_until_signal(new_daemon(connection))


async def run_until_signal(daemon: Daemon) -> int:
    """Run until SIGTERM or SIGINT and return the exit code; a second signal ends the process at once."""
    on_termination(daemon.stop)
    return await daemon.run()


def on_termination(stop: Callable[[], None]) -> None:
    """Call `stop` at the first SIGTERM or SIGINT; the second one ends the process at once, with exit code 1."""
    is_stopping = False

    def handle() -> None:
        nonlocal is_stopping
        if is_stopping:
            os._exit(1)
        is_stopping = True
        stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle)


class Daemon(ABC):
    """One running process: its port, its tasks, its leadership and its end."""

    def __init__(
        self,
        serving: ServingOptions,
        metrics: ProcessMetrics,
        log: Logger,
        auth: DelegatedAuth | None,
        elector: LeaderElector | None = None,
    ) -> None:
        self._log, self._elector = log, elector
        self._new_port = partial(StatusServer, serving, auth=auth, log=log, render=metrics.render)
        #: Set by `stop`.
        self._stopped = asyncio.Event()
        #: Cancelled once the work has ended.
        self._tasks: list[asyncio.Task[None]] = []
        self._group = asyncio.TaskGroup()

    @abstractmethod
    def _new_server(self) -> StatusServer:
        """Return the port with the checks of /readyz and /livez, by `_new_port`."""

    @abstractmethod
    async def _begin(self) -> None:
        """Do what may raise SettingsError, which is then the only line; then log the start."""

    @abstractmethod
    async def _work(self) -> None:
        """Work until `stop` is called, then finish what is in flight."""

    def _on_elected(self) -> None:  # noqa: B027 - optional: a leader may have nothing to begin
        """Begin what only the leader does."""

    def _handover(self) -> str:
        """Return what a successor needs to know; see `leader_election.with_handover`."""
        return ""

    def start(self, name: str, task: Coroutine[Any, Any, None]) -> None:
        """Run the task until the work has ended; an exception in it ends the process."""
        self._tasks.append(self._group.create_task(task, name=name))

    def stop(self) -> None:
        """Begin nothing new; `run` returns once the work has ended, within about 20 s."""
        self._stopped.set()

    async def run(self) -> int:
        """Work until `stop` is called or the Lease is lost, and return the exit code."""
        is_lost = False
        server = self._new_server()
        await server.start()
        try:
            await self._begin()
            async with self._group:
                if self._elector is not None:
                    self.start("leader election", self._elector.run(self._on_elected))
                await self._work()
                for task in self._tasks:
                    task.cancel()
                if self._elector is not None:
                    await self._elector.release(self._handover())
        except* LeadershipLost as lost:
            self._log.error("Leaderelection lost", err=str(lost.exceptions[0]))
            is_lost = True
        finally:
            await server.stop()
        if not self._is_running():
            self._log.info(0, "Requested to terminate, exiting")
            return 0
        return int(is_lost)

    def _is_running(self) -> bool:
        return not self._stopped.is_set()

    def _leads(self) -> bool:
        return self._elector is None or self._elector.is_leader


class _ServerWait(Daemon):
    """Waits, alive and not ready, until the API server says its version, without which nothing can be decoded."""

    def __init__(
        self, options: ConnectionOptions, metrics: ControllerMetrics, connection: Connection
    ) -> None:
        super().__init__(options.serving, metrics, connection.log, connection.auth)
        self._options, self._metrics = options, metrics
        #: With semantics once the server has answered.
        self.connection = connection

    def _new_server(self) -> StatusServer:
        ready = {"sched-handler-sync": lambda: False, "shutdown": self._is_running}
        return self._new_port(configz=lambda: "{}", ready=ready)

    async def _begin(self) -> None:
        """Log nothing: the first request already did."""

    async def _work(self) -> None:
        while self._is_running() and self.connection.semantics is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), _ANSWER_PERIOD_S)
            if self._is_running():
                self.connection = await with_semantics(self.connection, self._options.settings, self._metrics)
