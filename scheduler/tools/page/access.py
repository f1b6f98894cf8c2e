"""Whether a request for the page's data comes from a page of ours. Who may ask is checked by the port."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from scheduler.daemon.port.listener import host_of, is_loopback

_OWN_SITES: Final = ("same-origin", "none")


def foreign_origin(request: web.Request, *, is_plain_http: bool) -> str | None:
    """
    Return why the request may be a foreign page's; None if it is not.

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
