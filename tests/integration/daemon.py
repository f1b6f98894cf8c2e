"""`python -m scheduler run` as a process: started, asked over HTTP, stopped by a signal."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.waiting import until
from tests.support.ports import free_port

EXIT_TIMEOUT_S = 20.0
#: Every warning ends the daemon, but for sums beyond int64, which wrap as upstream's do.
_STRICT = ("-W", "error", "-W", "ignore:overflow encountered:RuntimeWarning")


@dataclass
class Daemon:
    """A running scheduler. `lines` is what it has written to standard error so far."""

    process: Process
    port: int
    session: aiohttp.ClientSession
    lines: list[str] = field(default_factory=list)
    #: Whether its port is HTTPS, and by which token it is asked then.
    is_secure: bool = False
    token: str = ""

    async def read(self) -> None:
        """Keeps `lines` up to date until the process ends."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line.decode().rstrip("\n"))

    async def get(self, path: str) -> tuple[int, str]:
        """Status and body of one of its endpoints; status 0 while it does not listen."""
        try:
            async with self.asked(path) as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientConnectionError:
            return 0, ""

    @asynccontextmanager
    async def asked(self, path: str, *, method: str = "GET") -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer of one of its endpoints. Raises: ClientConnectionError while it does not listen."""
        url = f"{'https' if self.is_secure else 'http'}://127.0.0.1:{self.port}{path}"
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        async with self.session.request(method, url, headers=headers, ssl=False) as answer:
            yield answer

    async def is_ready(self) -> bool:
        """Whether it says so. Fails where the process has ended."""
        assert self.process.returncode is None, self.log()
        return (await self.get("/readyz"))[0] == 200

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of all samples of this name that have these labels."""
        _, text = await self.get("/metrics")
        values = (
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )
        return sum(values, start=0.0)

    def logged(self, *words: str) -> list[str]:
        """The lines so far that hold all of the words."""
        return [line for line in self.lines if all(word in line for word in words)]

    def log(self) -> str:
        """Everything it wrote, for a failing test's message."""
        return "\n".join(self.lines)

    async def ended(self) -> int:
        """The exit code, once it has ended."""
        async with asyncio.timeout(EXIT_TIMEOUT_S):
            return await self.process.wait()

    async def stop(self) -> int:
        """The exit code after SIGTERM."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        return await self.ended()


@asynccontextmanager
async def started(
    kubeconfig: Path, *arguments: str, port: int | None = None, module: Sequence[str] = ("scheduler",)
) -> AsyncIterator[Daemon]:
    """A daemon that is not waited for; killed at the end if it still runs. `module` is what Python runs, and how."""
    chosen = free_port() if port is None else port
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *_STRICT, "-m", *module, "run"),
        *("--kubeconfig", str(kubeconfig), "--port", str(chosen), *arguments),
        stderr=PIPE,
    )
    async with attended(process, chosen, is_secure="--bind-address" in arguments) as daemon:
        yield daemon


@asynccontextmanager
async def attended(
    process: asyncio.subprocess.Process, port: int, *, is_secure: bool
) -> AsyncIterator[Daemon]:
    """The process with its log read; killed at the end if it still runs."""
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
async def running(
    kubeconfig: Path, *arguments: str, module: Sequence[str] = ("scheduler",)
) -> AsyncIterator[Daemon]:
    """A daemon that is ready. At the end it stops in good order: exit code 0, and never a traceback."""
    async with started(kubeconfig, *arguments, module=module) as daemon:
        await until(daemon.is_ready, what="readiness")
        yield daemon
        code = await daemon.stop()
        assert code == 0, daemon.log()
        assert not daemon.logged("Traceback"), daemon.log()
        assert not daemon.logged("never retrieved"), daemon.log()


async def refused(*arguments: str) -> str:
    """The one line that the command wrote before it ended with exit code 2."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scheduler", *arguments), stdout=PIPE, stderr=PIPE
    )
    async with asyncio.timeout(EXIT_TIMEOUT_S):
        output, errors = await process.communicate()
    assert (process.returncode, output) == (2, b""), errors.decode()
    (line,) = errors.decode().splitlines()
    return line


def profiles(*profiles: dict[str, Any]) -> str:
    """A configuration file of these profiles."""
    return json.dumps(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            # The Lease that the manifests grant; by default it would be kube-scheduler's.
            "leaderElection": {"resourceName": "affinity-scheduler"},
            "profiles": list(profiles),
        }
    )


def plugin_config(plugin: str, **args: Any) -> Sequence[dict[str, Any]]:
    """pluginConfig of a profile for one plugin."""
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": f"{plugin}Args"}
    return [{"name": plugin, "args": {**head, **args}}]
