"""The life of a daemon: the order of its start and stop, and its exit code."""

from __future__ import annotations

import asyncio
import io

import pytest

from scheduler.daemon.loop.connection import NO_PORT
from scheduler.daemon.loop.daemon import Daemon
from scheduler.daemon.metrics.logs import configure
from scheduler.daemon.metrics.process import ProcessMetrics
from scheduler.daemon.port.status_server import StatusServer
from scheduler.errors import LeadershipLost, SettingsError

REFUSED = SettingsError("--webhook-port", "", "80", "a port this user may open")


class _Server(StatusServer):
    def __init__(self, daemon: _Daemon) -> None:
        super().__init__(NO_PORT, log=daemon.log, render=bytes, configz=str, ready={})
        self._story = daemon.story

    async def start(self) -> None:
        self._story.append("port opens")

    async def stop(self) -> None:
        self._story.append("port closes")


class _Daemon(Daemon):
    """Tells its story. `refused` is raised at its start, `lost` by a task; without `waits` it finds nothing to do."""

    def __init__(
        self, *, refused: Exception | None = None, lost: Exception | None = None, waits: bool = True
    ) -> None:
        self.written = io.StringIO()
        self.log = configure(verbosity=0, form="text", stream=self.written)
        super().__init__(NO_PORT, ProcessMetrics(version="test"), self.log, None)
        self.story: list[str] = []
        self._refused, self._lost, self._waits = refused, lost, waits

    def _new_server(self) -> StatusServer:
        return _Server(self)

    async def _begin(self) -> None:
        if self._refused is not None:
            raise self._refused
        self.story.append("begins")

    async def _work(self) -> None:
        self.start("task", self._run())
        if self._waits:
            await self._stopped.wait()
        await asyncio.sleep(0)
        self.story.append("work ends")

    async def _run(self) -> None:
        if self._lost is not None:
            raise self._lost
        try:
            await asyncio.Event().wait()
        finally:
            self.story.append("task ends")


WHOLE = ["port opens", "begins", "work ends", "task ends", "port closes"]


async def test_it_stops_in_the_reverse_order_of_its_start() -> None:
    daemon = _Daemon()
    running = asyncio.create_task(daemon.run())
    await asyncio.sleep(0)
    daemon.stop()
    assert (await running, daemon.story) == (0, WHOLE)
    assert "Requested to terminate, exiting" in daemon.written.getvalue()


async def test_it_ends_by_itself_with_nothing_left_to_do() -> None:
    daemon = _Daemon(waits=False)
    assert (await daemon.run(), daemon.story) == (0, WHOLE)
    assert daemon.written.getvalue() == ""


async def test_a_lost_lease_ends_it_with_code_1() -> None:
    daemon = _Daemon(lost=LeadershipLost("another instance holds the Lease"))
    assert (await daemon.run(), daemon.story) == (1, ["port opens", "begins", "port closes"])
    assert "Leaderelection lost" in daemon.written.getvalue()


@pytest.mark.parametrize(
    ("refused", "lost"),
    [
        pytest.param(REFUSED, None, id="what may be refused is the error itself, which the command prints"),
        pytest.param(None, ExceptionGroup("tasks", [ZeroDivisionError()]), id="a bug in a task ends it"),
    ],
)
async def test_errors_pass_and_the_port_is_closed(refused: Exception | None, lost: Exception | None) -> None:
    daemon = _Daemon(refused=refused, lost=lost)
    with pytest.raises((SettingsError, ExceptionGroup)) as caught:
        await daemon.run()
    assert isinstance(caught.value, ExceptionGroup if refused is None else SettingsError)
    assert daemon.story[-1] == "port closes"
