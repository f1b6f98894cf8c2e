"""`python -m scheduler webhook` as a process."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from tests.support.daemon import Daemon
from tests.support.ports import free_port
from tests.support.waiting import until

#: Every warning is an error, but for connections that clients keep open: at the end they are not waited for.
_STRICT = ("-W", "error", "-W", "ignore:unclosed:ResourceWarning")


@asynccontextmanager
async def webhook(*arguments: str) -> AsyncIterator[tuple[Daemon, int]]:
    """Start a webhook and wait until it is ready. Yield it and its HTTPS port; at the end it has to exit with 0."""
    health, https = free_port(), free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *_STRICT, "-m", "scheduler", "webhook"),
        *("--port", str(health), "--webhook-port", str(https), "-v=4", *arguments),
        stderr=PIPE,
    )
    async with aiohttp.ClientSession() as session:
        daemon = Daemon(process, health, session, is_secure="--bind-address" in arguments)
        reading = asyncio.create_task(daemon.read())
        try:
            await until(daemon.is_ready, what="readiness")
            yield daemon, https
            assert await daemon.stop() == 0, daemon.log()
            assert not daemon.logged("Traceback"), daemon.log()
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await reading
