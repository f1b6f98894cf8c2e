"""
How a request for the page's data is answered: checked, asked of the page, and sent as JSON.

Every viewer sees the same, so that viewers share answers.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from scheduler.daemon.metrics.logs import quoted
from scheduler.errors import SettingsError
from scheduler.tools.page.files import SECURITY_HEADERS
from scheduler.tools.page.proxy import foreign_origin
from scheduler.tools.page.what_if_service import BusyError

#: How old an answer may be that viewers share, and the number of such answers, up to 1 MB each.
_SHARED_S: Final = 1.5
_MAX_SHARED: Final = 16
_NAME_LIMIT: Final = 253

#: The parts of a path and the parameters, '' for each that is not given.
Asked = Mapping[str, str]


class Answers:
    """Makes handlers of requests. `is_plain_http`: clients are not authenticated; `is_synced`: all is listed."""

    def __init__(self, *, is_plain_http: bool, is_synced: Callable[[], bool]) -> None:
        self._is_plain_http, self._is_synced = is_plain_http, is_synced
        #: The last answers by path and query, and when they were made.
        self._shared: OrderedDict[str, tuple[float, bytes]] = OrderedDict()

    def checked(self, handler: Handler, parameters: Sequence[str] = ()) -> Handler:
        """Return a handler that checks the request, and answers errors as JSON. `parameters`: allowed in the query."""

        async def handle(request: web.Request) -> web.StreamResponse:
            if (problem := foreign_origin(request, is_plain_http=self._is_plain_http)) is not None:
                return error_answer(403, problem)
            if (problem := _parameter_problem(request, parameters)) is not None:
                return error_answer(400, problem)
            if not self._is_synced():
                return error_answer(503, "nodes, namespaces and pods are still being listed", retry_after_s=1)
            try:
                return await handler(request)
            except SettingsError as error:
                return error_answer(400, str(error))
            except BusyError as error:
                return error_answer(429, str(error), retry_after_s=error.retry_after_s)

        return handle

    def of(
        self,
        ask: Callable[[Asked], Awaitable[object | None]],
        parameters: Sequence[str] = (),
        what: str = "",
        *,
        is_shared: bool = True,
    ) -> Handler:
        """Return a handler that answers with the result of `ask`; None becomes 404, "there is no such `what`"."""

        async def handle(request: web.Request) -> web.StreamResponse:
            key, now_s = request.path_qs, asyncio.get_running_loop().time()
            made_s, body = self._shared.get(key, (-_SHARED_S, b""))
            if now_s - made_s < _SHARED_S:
                return _json(body)
            query = {name: request.query.get(name, "") for name in parameters}
            answer = await ask({**query, **request.match_info})
            if answer is None or not is_shared:
                return found_answer(answer, what)
            body = msgspec.json.encode(answer)
            self._shared[key] = (now_s, body)
            self._shared.move_to_end(key)
            if len(self._shared) > _MAX_SHARED:
                self._shared.popitem(last=False)
            return _json(body)

        return self.checked(handle, parameters)


def found_answer(data: object | None, what: str) -> web.Response:
    """Return the object as JSON; 404 if it is None."""
    return error_answer(404, f"there is no such {what}") if data is None else _json(msgspec.json.encode(data))


def error_answer(status: int, message: str, *, retry_after_s: int | None = None) -> web.Response:
    """Return the error."""
    response = _json(msgspec.json.encode({"message": message}), status)
    if retry_after_s is not None:
        response.headers["Retry-After"] = str(retry_after_s)
    return response


def _json(body: bytes, status: int = 200) -> web.Response:
    headers = {**SECURITY_HEADERS, "Cache-Control": "no-store"}
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def _parameter_problem(request: web.Request, known: Sequence[str]) -> str | None:
    """Return what is wrong with the names or the length of the request's parameters, None if nothing."""
    for name in request.query:
        if name not in known:
            return (
                f"found the parameter {quoted(name[:_NAME_LIMIT])}, expected {' or '.join(known) or 'none'}"
            )
        if len(request.query.getall(name)) > 1:
            return f"found the parameter {name} more than once, expected it once"
    if max(map(len, (*request.match_info.values(), *request.query.values())), default=0) > _NAME_LIMIT:
        return f"expected parameters of at most {_NAME_LIMIT} characters"
    return None
