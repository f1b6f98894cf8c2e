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
from scheduler.daemon.port.listener import Listener, host_of, is_loopback

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
_OWN_SITES: Final = ("same-origin", "none")

#: Returns the Authorization header to send, None for none.
Authorization = Callable[[], Awaitable[str | None]]


def foreign_origin(request: web.Request, *, is_plain_http: bool) -> str | None:
    """
    Return why the request may be a foreign page's; None if it is not. Who may ask is checked by the port.

    Plain HTTP is served on loopback alone, which pages in a browser on this machine reach too: one whose name resolves
    to loopback (DNS rebinding) has no loopback Host, and any other has not our Origin or not our fetch site.
    """
    origin, scheme = request.headers.get("Origin"), "http" if is_plain_http else "https"
    if is_plain_http and not is_loopback(host_of(request.host)):
        return "only for this machine, by the name localhost or a loopback address"
    if origin is not None and origin != f"{scheme}://{request.host}":
        return "the Origin is not this server"
    if request.headers.get("Sec-Fetch-Site", "none") not in _OWN_SITES:
        return "only for the page of this server"
    return None


@asynccontextmanager
async def page_proxy(target: str, authorization: Authorization, *, port: int) -> AsyncGenerator[int, None]:
    """
    Serve the page of `target`, such as https://127.0.0.1:40001, on 127.0.0.1, and yield the port. Raises OSError.

    The system chooses the port if `port` is 0. The target's certificate is not checked: it is self-signed, and the way
    there is a port-forward of the API server.
    """

    async def handle(request: web.Request) -> web.StreamResponse:
        if (problem := foreign_origin(request, is_plain_http=True)) is not None:
            return web.json_response({"message": problem}, status=403)
        headers = {name: request.headers[name] for name in _REQUEST_HEADERS if name in request.headers}
        if "Authorization" not in headers and (own := await authorization()):
            headers["Authorization"] = own
        body = await request.read() if request.can_read_body else None
        url = f"{target}{request.raw_path}"
        try:
            async with session.request(
                request.method, url, headers=headers, data=body, allow_redirects=False
            ) as answer:
                return await _passed_on(request, answer)
        except aiohttp.ClientError as error:
            return web.json_response({"message": f"the scheduler does not answer: {error}"}, status=502)

    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S)
    connector = aiohttp.TCPConnector(ssl=False)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
        app = web.Application()
        for path in (PAGE_PATH, f"{PAGE_PATH}/{{file:.*}}", f"{API_PREFIX}{{path:.+}}"):
            app.router.add_get(path, handle)
        app.router.add_post(f"{API_PREFIX}what-if", handle)
        listener = Listener(app)
        bound = await listener.start("127.0.0.1", port)
        try:
            yield bound
        finally:
            await listener.stop()


async def _passed_on(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """Return the target's response, piece by piece as it comes."""
    kept = {name: answer.headers[name] for name in _RESPONSE_HEADERS if name in answer.headers}
    response = web.StreamResponse(status=answer.status, headers=kept)
    await response.prepare(request)
    async for piece in answer.content.iter_any():
        await response.write(piece)
    await response.write_eof()
    return response
