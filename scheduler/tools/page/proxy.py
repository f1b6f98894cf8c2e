"""
A proxy on loopback between a browser and the page of a scheduler that authenticates its clients.

It adds the token of the user's kubeconfig, so that the browser needs none. Like the page on loopback it answers only
requests with a loopback Host and its own Origin; it passes on the page and its data, and nothing else of the port.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from aiohttp import web

from scheduler.daemon.port.delegated_auth import API_PREFIX, PAGE_PATH
from scheduler.daemon.port.listener import Listener
from scheduler.tools.page.access import foreign_origin

#: Headers that are passed on; others belong to one connection, or name the browser's side.
_REQUEST_HEADERS: Final = ("Accept", "Accept-Encoding", "Content-Type", "If-None-Match", "Authorization")
_RESPONSE_HEADERS: Final = (
    "Cache-Control",
    "Content-Encoding",
    "Content-Security-Policy",
    "Content-Type",
    "Cross-Origin-Opener-Policy",
    "Cross-Origin-Resource-Policy",
    "ETag",
    "Location",
    "Referrer-Policy",
    "Retry-After",
    "Vary",
    "X-Content-Type-Options",
)
_CONNECT_TIMEOUT_S: Final = 10.0

#: Returns the Authorization header to send, None for none.
Authorization = Callable[[], Awaitable[str | None]]


class PageProxy:
    """Passes requests on to `target`, such as https://127.0.0.1:40001."""

    def __init__(self, target: str, authorization: Authorization, session: aiohttp.ClientSession) -> None:
        self._target, self._authorization, self._session = target, authorization, session

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Return the target's response, piece by piece as it comes."""
        if (problem := foreign_origin(request, is_plain_http=True)) is not None:
            return web.json_response({"message": problem}, status=403)
        headers = {name: request.headers[name] for name in _REQUEST_HEADERS if name in request.headers}
        if "Authorization" not in headers and (own := await self._authorization()):
            headers["Authorization"] = own
        body = await request.read() if request.can_read_body else None
        url = f"{self._target}{request.raw_path}"
        try:
            async with self._session.request(
                request.method, url, headers=headers, data=body, allow_redirects=False
            ) as answer:
                return await self._passed_on(request, answer)
        except aiohttp.ClientError as error:
            return web.json_response({"message": f"the scheduler does not answer: {error}"}, status=502)

    async def _passed_on(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        kept = {name: answer.headers[name] for name in _RESPONSE_HEADERS if name in answer.headers}
        response = web.StreamResponse(status=answer.status, headers=kept)
        await response.prepare(request)
        async for piece in answer.content.iter_any():
            await response.write(piece)
        await response.write_eof()
        return response


@asynccontextmanager
async def page_proxy(target: str, authorization: Authorization, *, port: int) -> AsyncGenerator[int, None]:
    """
    Serve the target's page on 127.0.0.1 and yield the port, which the system chooses if `port` is 0. Raises OSError.

    The target's certificate is not checked: it is self-signed, and the way there is a port-forward of the API server.
    """
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S)
    connector = aiohttp.TCPConnector(ssl=False)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
        app = web.Application()
        proxy = PageProxy(target, authorization, session)
        app.router.add_get(PAGE_PATH, proxy.handle)
        app.router.add_get(f"{PAGE_PATH}/{{file:.*}}", proxy.handle)
        app.router.add_get(f"{API_PREFIX}{{path:.+}}", proxy.handle)
        app.router.add_post(f"{API_PREFIX}what-if", proxy.handle)
        listener = Listener(app)
        bound = await listener.start("127.0.0.1", port)
        try:
            yield bound
        finally:
            await listener.stop()
