"""An HTTP server that answers each request with the next step of a script and records the requests."""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import Credentials, Endpoint
from scheduler.daemon.kube.login import Identity
from tests.support.waiting import TIMEOUT_S


@dataclass(frozen=True)
class Received:
    method: str
    path: str
    query: dict[str, str]
    body: bytes
    headers: dict[str, str]


@dataclass
class Script:
    """`answers` are used in order; when none is left, requests hang until the server stops."""

    answers: deque[Any]
    url: str = ""
    received: list[Received] = field(default_factory=list)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    more: asyncio.Event = field(default_factory=asyncio.Event)

    async def until_received(self, n_requests):
        async with asyncio.timeout(TIMEOUT_S):
            while len(self.received) < n_requests:
                self.more.clear()
                await self.more.wait()

    async def answer(self, request):
        self.received.append(
            Received(
                request.method, request.path, dict(request.query), await request.read(), dict(request.headers)
            )
        )
        self.more.set()
        if not self.answers:
            await self.stopping.wait()
            return web.Response(status=503)
        return await self.answers.popleft()(request, self)


def reply(body=b"{}", *, status=200, headers=None):
    async def answer(_request, _script):
        return web.Response(body=body, status=status, headers=headers, content_type="application/json")

    return answer


def lost():
    """Abort the connection instead of answering."""

    async def answer(request, _script):
        request.transport.abort()
        return web.Response()

    return answer


def silence():
    """Do not answer until the server stops."""

    async def answer(_request, script):
        await script.stopping.wait()
        return web.Response(status=503)

    return answer


def held(release, answer):
    """Give the answer after the event."""

    async def give(request, script):
        await release.wait()
        return await answer(request, script)

    return give


def stream(*lines, then="end", end=b"\n"):
    """Send these lines of a watch, then end it normally, abort it, or keep it open and silent."""

    async def answer(request, script):
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for text in lines:
            await response.write(text + end)
        if then == "cut":
            request.transport.abort()
        elif then == "silent":
            await script.stopping.wait()
        return response

    return answer


@asynccontextmanager
async def answering(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Yield the address of a server that answers every request in this way."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = TestServer(app, scheme="https" if tls else "http")
    await server.start_server(ssl=tls)
    try:
        yield str(server.make_url("")).rstrip("/")
    finally:
        await server.close()


@asynccontextmanager
async def scripted(*answers):
    script = Script(deque(answers))
    async with answering(script.answer) as script.url:
        try:
            yield script
        finally:
            script.stopping.set()


def anonymous(url):
    return Credentials(Endpoint(url), Identity())


@asynccontextmanager
async def client_of(script, **options):
    async with KubeClient(anonymous(script.url), **options) as client:
        yield client


class FakeSleep:
    """A sleep that takes no time and records the seconds."""

    def __init__(self):
        self.slept_s = []

    async def __call__(self, seconds):
        self.slept_s.append(seconds)
        await asyncio.sleep(0)
