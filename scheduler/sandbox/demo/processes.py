"""The demo's processes: the embedded cluster, and commands of the product."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Final

from scheduler.sandbox.demo.api import ApiSession, RequestError, server_in
from scheduler.sandbox.demo.pod_watch import StoryFailed

KUBECONFIG: Final = "kubeconfig"
_START_S: Final = 30.0
_STOP_S: Final = 10.0
_POLL_S: Final = 0.05
_LOG_TAIL: Final = 5
_HOST: Final = "127.0.0.1"


class Child:
    """One running process; its output goes to `log`."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self._name = name
        self._process = process
        self._log = log
        #: Its address, of one that serves.
        self.url = ""

    async def run(self) -> None:
        """Wait for the process. Raises: StoryFailed once it has ended."""
        code = await self._process.wait()
        tail = self._log.read_text(errors="replace").splitlines()[-_LOG_TAIL:]
        raise StoryFailed("\n    ".join([f"{self._name} ended with {code}; its last lines:", *tail]))

    async def ready(self, is_ready: Callable[[], Awaitable[bool]]) -> None:
        """Wait until `is_ready`. Raises StoryFailed if the process ends before, or takes too long."""
        ends_s = time.monotonic() + _START_S
        while not await is_ready():
            if self._process.returncode is not None:
                await self.run()
            if time.monotonic() > ends_s:
                raise StoryFailed(f"{self._name} is not ready after {_START_S:.0f} s")
            await asyncio.sleep(_POLL_S)

    async def stop(self) -> None:
        """Ask the process to end, and kill it if it takes too long."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@contextlib.asynccontextmanager
async def process_of(name: str, arguments: list[str], logs: Path) -> AsyncGenerator[Child, None]:
    """Run a command of this program as a separate process, until the block ends or raises."""
    log = logs / f"{name}.log"
    with log.open("wb") as out:
        # Its own session: Ctrl-C in the terminal reaches the demo alone, which ends its children in order.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "scheduler",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    child = Child(name, process, log)
    try:
        yield child
    finally:
        # Shielded: a second Ctrl-C must not leave a process behind.
        await asyncio.shield(child.stop())


@contextlib.asynccontextmanager
async def served(name: str, arguments: list[str], logs: Path, api: ApiSession) -> AsyncGenerator[Child, None]:
    """Run a command that serves its readiness on a port, which `Child.url` names, and wait until it is ready."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port = probe.getsockname()[1]
    on = ["--kubeconfig", str(logs / KUBECONFIG), "--port", str(port)]
    async with process_of(name, [*arguments, *on], logs) as child:
        child.url = f"http://{_HOST}:{port}"

        async def is_ready() -> bool:
            try:
                await api.text(f"{child.url}/readyz")
            except RequestError:
                return False
            return True

        await child.ready(is_ready)
        yield child


async def output_of(arguments: list[str]) -> list[str]:
    """Return the lines of a command of this program. Raises StoryFailed unless it has an answer."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scheduler", *arguments), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    # 1 is a negative answer.
    if process.returncode not in (0, 1):
        raise StoryFailed(f"{arguments[0]} ended with {process.returncode}")
    return out.decode().splitlines()


async def server_address(folder: Path, child: Child) -> str:
    """Wait for the kubeconfig that the cluster writes once it listens, and return the address in it."""
    found: list[str] = []

    async def is_written() -> bool:
        # The file exists before it has its text.
        with contextlib.suppress(OSError, TypeError):
            found.append(server_in(folder / KUBECONFIG))
        return bool(found)

    await child.ready(is_written)
    return found[0]
