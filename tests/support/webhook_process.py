"""`python -m scheduler webhook` as a process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.daemon import Daemon, attended, orderly
from tests.support.forking import forked
from tests.support.ports import free_port

#: Every warning is an error, but for connections that clients keep open: at the end they are not waited for.
STRICT = ("-W", "error", "-W", "ignore:unclosed:ResourceWarning")


@asynccontextmanager
async def webhook(*arguments: str) -> AsyncIterator[tuple[Daemon, int]]:
    """Start a webhook and wait until it is ready. Yield it and its HTTPS port; at the end it must stop orderly."""
    async with started(*arguments) as (daemon, https), orderly(daemon):
        yield daemon, https


@asynccontextmanager
async def started(*arguments: str, port: int | None = None) -> AsyncIterator[tuple[Daemon, int]]:
    """Start a webhook without waiting for readiness. It is killed at the end."""
    health, https = port or free_port(), free_port()
    process = await forked(
        *("scheduler", "webhook", "--port", str(health), "--webhook-port", str(https), "-v=4", *arguments),
        options=STRICT,
    )
    is_secure = "--bind-address" in arguments
    async with attended(process, health, is_secure=is_secure) as daemon:
        yield daemon, https
