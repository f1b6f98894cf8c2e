"""The files of the page, served from memory with a strict content security policy."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from scheduler.daemon.port.delegated_auth import PAGE_PATH

_INDEX: Final = "index.html"
_TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
#: No inline script or style, nothing from elsewhere, no form, no frame around it.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def file_handlers() -> Iterator[tuple[str, Handler]]:
    """
    Yield path and handler of each file of the page, and of the redirects to its index. Files are read once, here.

    Files are relative to /ui/, so that the page works behind a prefix too.
    """
    for name, body in _read(resources.files("scheduler.tools.page") / "ui", ""):
        handler = _handler(body, _TYPES[name[name.rfind(".") :]])
        yield f"{PAGE_PATH}/{name}", handler
        if name == _INDEX:
            yield f"{PAGE_PATH}/", handler
    yield PAGE_PATH, _to("ui/")
    yield "/", _to(f"{PAGE_PATH}/")


def _handler(body: bytes, content_type: str) -> Handler:
    etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = {**SECURITY_HEADERS, "ETag": etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    compressed = gzip.compress(body, mtime=0)

    async def answer(request: web.Request) -> web.Response:
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers=headers)
        if "gzip" not in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=body, content_type=content_type, charset="utf-8", headers=headers)
        packed = {**headers, "Content-Encoding": "gzip"}
        return web.Response(body=compressed, content_type=content_type, charset="utf-8", headers=packed)

    return answer


def _to(location: str) -> Handler:
    async def redirect(_: web.Request) -> web.Response:
        raise web.HTTPFound(location)

    return redirect


def _read(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each file in the folder and its subfolders that has one of `_TYPES`."""
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            yield from _read(entry, f"{name}/")
        elif name[name.rfind(".") :] in _TYPES:
            yield name, entry.read_bytes()
