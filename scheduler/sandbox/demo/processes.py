"""The demo's processes: the embedded cluster, and commands of the product."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import aiohttp

from scheduler.sandbox.demo.waiting import StoryFailed, until

KUBECONFIG: Final = "kubeconfig"
_STOP_S: Final = 10.0
_LOG_TAIL: Final = 5
_HOST: Final = "127.0.0.1"
_COMMAND: Final = (sys.executable, "-m", "scheduler")


@contextlib.asynccontextmanager
async def process_of(name: str, arguments: list[str], logs: Path) -> AsyncGenerator[None, None]:
    """Run a command of this program beside the block; raise StoryFailed in it once the process ends by itself."""
    log = logs / f"{name}.log"
    with log.open("wb") as out:
        # Its own session: Ctrl-C in the terminal reaches the demo alone, which ends its children in order.
        process = await asyncio.create_subprocess_exec(
            *_COMMAND, *arguments, stdin=DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(_ended(name, process, log), name=name)
            yield
            watching.cancel()
    finally:
        # Shielded: a second Ctrl-C must not leave a process behind.
        await asyncio.shield(_stop(process))


@contextlib.asynccontextmanager
async def served(name: str, arguments: list[str], logs: Path) -> AsyncGenerator[str, None]:
    """Run a command that serves its readiness beside the block, which gets the address and begins when it is ready."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port = probe.getsockname()[1]
    url = f"http://{_HOST}:{port}"

    async def is_ready() -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            return bool(await text_of(f"{url}/readyz"))
        return False

    on = ["--kubeconfig", str(logs / KUBECONFIG), "--port", str(port)]
    async with process_of(name, [*arguments, *on], logs):
        await until(is_ready, lambda: f"{name} is not ready")
        yield url


async def text_of(url: str) -> str:
    """Return what is served at an address: metrics, readiness. Raises: aiohttp.ClientError."""
    async with aiohttp.request("GET", url, raise_for_status=True) as answer:
        return await answer.text()


async def output_of(arguments: list[str]) -> list[str]:
    """Return the lines of a command of this program. Raises StoryFailed unless it has an answer."""
    process = await asyncio.create_subprocess_exec(*_COMMAND, *arguments, stdout=PIPE)
    out, _ = await process.communicate()
    # 1 is a negative answer.
    if process.returncode not in (0, 1):
        raise StoryFailed(f"{arguments[0]} ended with {process.returncode}")
    return out.decode().splitlines()


async def _ended(name: str, process: Process, log: Path) -> None:
    """Raise StoryFailed with the end of the log, once the process has ended."""
    code = await process.wait()
    raise StoryFailed("\n    ".join([f"{name} ended with {code}; its last lines:", *_tail(log)]))


def _tail(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()[-_LOG_TAIL:]


async def _stop(process: Process) -> None:
    """Ask the process to end, and kill it if it takes too long."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
