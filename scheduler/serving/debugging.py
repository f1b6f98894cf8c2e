"""
/debug/explain: what the scheduler says of its pending pods, to those alone who are on this machine or are let in.

    GET /debug/explain                          the last reasons of the pods that were tried last
    GET /debug/explain?namespace=NS&pod=NAME    one pending pod explained as of now

Answers hold up the scheduler for as long as they take, so that they get a tenth of its time and no more.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

#: JSON about the pod of a namespace and name, about all where both are empty; None where there is no such pod.
Explain = Callable[[str, str], bytes | None]

PATH: Final = "/debug/explain"
#: Longest name or namespace of an object.
_NAME_LIMIT: Final = 253
#: After an answer nobody gets another for so many times as long as it took.
_REST: Final = 9


class Debugging:
    """
    Args:
        explain: makes the answers.
        is_open: whether nobody is asked who they are; then the request must be to this machine by a name of its own,
            since a page that a browser here has loaded reaches loopback too, under the page's name.
        now_s: a monotonic clock.
        knows_all: whether the cluster is known; until then an answer would be about a part of it.
    """

    def __init__(
        self,
        explain: Explain,
        *,
        is_open: bool,
        now_s: Callable[[], float],
        knows_all: Callable[[], bool] = lambda: True,
    ) -> None:
        self._explain, self._knows_all = explain, knows_all
        self._is_open = is_open
        self._now_s = now_s
        self._rests_until_s = -math.inf

    async def handle(self, request: web.Request) -> web.Response:
        """The answer, or why there is none: 400, 403, 404, 429 or 503 and a line of text."""
        if self._is_open and not is_loopback(_host(request.host)):
            return _said(403, "only for this machine, by the name localhost or a loopback address")
        namespace, pod = request.query.get("namespace", ""), request.query.get("pod", "")
        if bool(namespace) != bool(pod) or max(len(namespace), len(pod)) > _NAME_LIMIT:
            return _said(400, "expected ?namespace=NAMESPACE&pod=NAME, or neither of them")
        if not self._knows_all():
            response = _said(503, "nodes, namespaces and pods are still being listed, please try again later")
            response.headers["Retry-After"] = "1"
            return response
        started_s = self._now_s()
        if started_s < self._rests_until_s:
            response = _said(429, "another question was just answered, please try again later")
            response.headers["Retry-After"] = str(math.ceil(self._rests_until_s - started_s))
            return response
        body = self._explain(namespace, pod)
        answered_s = self._now_s()
        self._rests_until_s = answered_s + _REST * (answered_s - started_s)
        if body is None:
            return _said(404, "this scheduler has no such pending pod")
        return web.Response(
            body=body, content_type="application/json", headers={"X-Content-Type-Options": "nosniff"}
        )


def is_loopback(address: str) -> bool:
    """Whether nobody but this machine's processes reaches the address; a name that could be anything does not count."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _host(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _said(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers={"X-Content-Type-Options": "nosniff"})
