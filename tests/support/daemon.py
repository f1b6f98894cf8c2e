"""Runs `python -m scheduler run` as a process, requests its endpoints, and stops it by a signal."""

import asyncio
import json
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.support.forking import Forked, forked
from tests.support.ports import free_port
from tests.support.waiting import TIMEOUT_S, until


@dataclass
class Daemon:
    """A running scheduler. `lines` has its standard error so far."""

    process: Process | Forked
    port: int
    session: aiohttp.ClientSession
    lines: list[str] = field(default_factory=list)
    #: True if its port is HTTPS, and the token that is sent then.
    is_secure: bool = False
    token: str = ""

    async def read(self) -> None:
        """Append to `lines` until the process ends."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line.decode().rstrip("\n"))

    async def get(self, path: str) -> tuple[int, str]:
        """Return status and body of an endpoint; status 0 while the port is closed."""
        try:
            async with self.requested(path) as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientConnectionError:
            return 0, ""

    @asynccontextmanager
    async def requested(self, path: str, *, method: str = "GET") -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the response of an endpoint. Raises: ClientConnectionError while the port is closed."""
        url = f"{'https' if self.is_secure else 'http'}://127.0.0.1:{self.port}{path}"
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        async with self.session.request(method, url, headers=headers, ssl=False) as answer:
            yield answer

    async def is_ready(self) -> bool:
        """Return True if /readyz passes. Fails if the process has ended."""
        assert self.process.returncode is None, self.log()
        return (await self.get("/readyz"))[0] == 200

    async def metric(self, name: str, **labels: str) -> float:
        """Return the sum of all samples of this name with these labels."""
        return sum_of_samples((await self.get("/metrics"))[1], name, **labels)

    def logged(self, *words: str) -> list[str]:
        """Return the lines so far that contain all of the words."""
        return [line for line in self.lines if all(word in line for word in words)]

    async def says(self, *words: str) -> list[str]:
        """Wait for a line that contains all of the words, and return those that do."""

        async def lines() -> list[str]:
            return self.logged(*words)

        return await until(lines, what=f"a line with {words}")

    def log(self) -> str:
        """Return all its output, for the message of a failing test."""
        return "\n".join(self.lines)

    async def ended(self) -> int:
        """Wait for its end and return the exit code."""
        async with asyncio.timeout(TIMEOUT_S):
            return await self.process.wait()

    async def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        return await self.ended()


def sum_of_samples(text: str, name: str, **labels: str) -> float:
    values = (
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )
    return sum(values, start=0.0)


@asynccontextmanager
async def started(
    kubeconfig: Path,
    *arguments: str,
    port: int | None = None,
    module: Sequence[str] = ("scheduler",),
    command: str = "run",
) -> AsyncIterator[Daemon]:
    """Start a daemon and kill it at the end if it still runs. `module` is a module and its first arguments."""
    chosen = free_port() if port is None else port
    process = await forked(
        *(*module, command, "--kubeconfig", str(kubeconfig), "--port", str(chosen)), *arguments
    )
    async with attended(process, chosen, is_secure="--bind-address" in arguments) as daemon:
        yield daemon


@asynccontextmanager
async def attended(process: Process | Forked, port: int, *, is_secure: bool) -> AsyncIterator[Daemon]:
    """Read the process's log, and kill it at the end if it still runs."""
    async with aiohttp.ClientSession() as session:
        daemon = Daemon(process, port, session, is_secure=is_secure)
        reading = asyncio.create_task(daemon.read())
        try:
            yield daemon
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await reading


@asynccontextmanager
async def running(kubeconfig: Path, *arguments: str, **how: Any) -> AsyncIterator[Daemon]:
    """Start a daemon as `started` does and wait until it is ready. At the end it must stop orderly."""
    async with started(kubeconfig, *arguments, **how) as daemon, orderly(daemon):
        yield daemon


@asynccontextmanager
async def orderly(daemon: Daemon) -> AsyncIterator[None]:
    """Wait until the daemon is ready. At the end it must stop with exit code 0 and no traceback."""
    await until(daemon.is_ready, what="readiness")
    yield
    assert await daemon.stop() == 0, daemon.log()
    assert not daemon.logged("Traceback"), daemon.log()
    assert not daemon.logged("never retrieved"), daemon.log()


async def refused(*arguments: str) -> str:
    """Return the one line that the command prints before exit code 2."""
    process = await forked("scheduler", *arguments)
    async with asyncio.timeout(TIMEOUT_S):
        output, errors = await process.communicate()
    assert (process.returncode, output) == (2, b""), errors.decode()
    (line,) = errors.decode().splitlines()
    return line


def profiles(*profiles: dict[str, Any]) -> str:
    """Return a configuration file with these profiles."""
    return json.dumps(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            # The Lease in the manifests' role; the default is kube-scheduler's.
            "leaderElection": {"resourceName": "affinity-scheduler"},
            "profiles": list(profiles),
        }
    )


def plugin_config(plugin: str, **args: Any) -> Sequence[dict[str, Any]]:
    """Return a profile's pluginConfig for one plugin."""
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": f"{plugin}Args"}
    return [{"name": plugin, "args": {**head, **args}}]
