"""The files of the page, served from memory with a strict content security policy."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from aiohttp import web

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


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    compressed: bytes
    content_type: str
    etag: str


class PageFiles:
    """The handlers of the page's files, which are read once."""

    def __init__(self) -> None:
        self._files = dict(_read(resources.files("scheduler.tools.page") / "ui", ""))

    async def lead(self, _: web.Request) -> web.Response:
        """Lead from / to the page."""
        raise web.HTTPFound(f"{PAGE_PATH}/")

    async def index(self, request: web.Request) -> web.Response:
        """Return the page; its files are relative to /ui/, so that it works behind a prefix too."""
        if request.path == PAGE_PATH:
            raise web.HTTPPermanentRedirect("ui/")
        return self._response(request, self._files[_INDEX])

    async def file(self, request: web.Request) -> web.Response:
        """Return a file of the page, or 404."""
        found = self._files.get(request.match_info["name"])
        if found is None:
            raise web.HTTPNotFound
        return self._response(request, found)

    def _response(self, request: web.Request, file: _File) -> web.Response:
        headers = {
            **SECURITY_HEADERS,
            "ETag": file.etag,
            "Cache-Control": "no-cache",
            "Vary": "Accept-Encoding",
        }
        if request.headers.get("If-None-Match") == file.etag:
            return web.Response(status=304, headers=headers)
        body = file.body
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            body, headers["Content-Encoding"] = file.compressed, "gzip"
        return web.Response(body=body, content_type=file.content_type, charset="utf-8", headers=headers)


def _read(folder: Traversable, prefix: str) -> list[tuple[str, _File]]:
    """Return the files of the folder and its folders by path; only those of a type that the page uses."""
    found: list[tuple[str, _File]] = []
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        content_type = _TYPES.get(name[name.rfind(".") :])
        if entry.is_dir():
            found += _read(entry, f"{name}/")
        elif content_type is not None:
            body = entry.read_bytes()
            digest = hashlib.blake2b(body, digest_size=12).hexdigest()
            found.append((name, _File(body, gzip.compress(body, mtime=0), content_type, f'"{digest}"')))
    return found
