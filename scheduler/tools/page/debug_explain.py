"""
/debug/explain: explanations of pending pods.

    GET /debug/explain                          the last failed attempts
    GET /debug/explain?namespace=NS&pod=NAME    an explanation of one pending pod

On plain HTTP only loopback clients are answered. Answers block the scheduling loop, so they get at most a tenth of its
time.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from scheduler.daemon.port.listener import host_of, is_loopback

#: Returns JSON about the pod of this namespace and name, or about all pods if both are ''; None without such a pod.
Explain = Callable[[str, str], Awaitable[bytes | None]]

PATH: Final = "/debug/explain"
#: Longest name or namespace of an object.
_NAME_LIMIT: Final = 253
#: After an answer, requests get 429 for this multiple of the time that it took.
_PAUSE_FACTOR: Final = 9


class DebugExplain:
    """
    The handler of /debug/explain.

    `is_plain_http`: clients are not authenticated. Then the Host header has to be a loopback name: a page in a browser
    on this machine reaches loopback too, but sends its own host name. `is_synced` returns True once all pods and nodes
    are listed; before that an answer would be incomplete.
    """

    def __init__(
        self,
        explain: Explain,
        *,
        is_plain_http: bool,
        now_s: Callable[[], float],
        is_synced: Callable[[], bool],
    ) -> None:
        self._explain, self._is_synced = explain, is_synced
        self._is_plain_http = is_plain_http
        self._now_s = now_s
        self._paused_until_s = -math.inf
        self._is_answering = False

    async def handle(self, request: web.Request) -> web.Response:
        """Return the explanation, or 400, 403, 404, 429 or 503 with a line of text."""
        if self._is_plain_http and not is_loopback(host_of(request.host)):
            return _text(403, "only for this machine, by the name localhost or a loopback address")
        namespace, pod = request.query.get("namespace", ""), request.query.get("pod", "")
        if bool(namespace) != bool(pod) or max(len(namespace), len(pod)) > _NAME_LIMIT:
            return _text(400, "expected ?namespace=NAMESPACE&pod=NAME, or neither of them")
        if not self._is_synced():
            response = _text(503, "nodes, namespaces and pods are still being listed, please try again later")
            response.headers["Retry-After"] = "1"
            return response
        started_s = self._now_s()
        if self._is_answering or started_s < self._paused_until_s:
            response = _text(429, "another question was just answered, please try again later")
            response.headers["Retry-After"] = str(math.ceil(max(1.0, self._paused_until_s - started_s)))
            return response
        self._is_answering = True
        try:
            body = await self._explain(namespace, pod)
        finally:
            self._is_answering = False
            answered_s = self._now_s()
            self._paused_until_s = answered_s + _PAUSE_FACTOR * (answered_s - started_s)
        if body is None:
            return _text(404, "this scheduler has no such pending pod")
        return web.Response(
            body=body, content_type="application/json", headers={"X-Content-Type-Options": "nosniff"}
        )


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers={"X-Content-Type-Options": "nosniff"})
