"""An HTTP proxy before any API server, with the same faults as the embedded cluster."""

from __future__ import annotations

import asyncio
import ssl as ssl_module
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL

from scheduler.sandbox.devcluster import status
from scheduler.sandbox.devcluster.http.faults import Effect, Fault, Faults
from scheduler.sandbox.devcluster.http.routes import is_watch, target_of, verb_of
from scheduler.sandbox.devcluster.kinds import ServedKinds
from scheduler.sandbox.devcluster.status import StatusError

#: Longest line of a watch, and longest body, in bytes.
_LIMIT_BYTES = 8 << 20
_PASSED_ON = ("Content-Type", "Retry-After")
_KINDS = ServedKinds()


@dataclass(frozen=True, slots=True)
class Call:
    """One request through the gateway."""

    agent: str
    method: str
    path: str
    body: bytes


class Gateway:
    """
    Use `opened`.

    Args:
        headers: added to every request.
        agent: maps the User-Agent of a request.
        on_arrival: called with every request before it is sent to the server.
        on_answer: called with the server's response before it is sent to the client.
    """

    def __init__(
        self,
        upstream: str,
        *,
        faults: Faults,
        headers: Mapping[str, str] | None = None,
        ssl: ssl_module.SSLContext | bool = True,
        agent: Callable[[str], str] = str,
        on_arrival: Callable[[Call], None] = lambda _: None,
        on_answer: Callable[[Call, int, bytes], None] = lambda *_: None,
    ) -> None:
        self._upstream, self._headers, self._ssl = upstream, dict(headers or {}), ssl
        self._faults, self._agent, self._on_arrival, self._on_answer = faults, agent, on_arrival, on_answer
        self._session: aiohttp.ClientSession | None = None
        self.port = 0

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Gateway]:
        """Listen on `port` for the duration of the block."""
        app = web.Application(client_max_size=_LIMIT_BYTES)
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        connector = aiohttp.TCPConnector(ssl=self._ssl, limit=0)
        async with aiohttp.ClientSession(
            connector=connector, auto_decompress=False, read_bufsize=_LIMIT_BYTES
        ) as session:
            self._session = session
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]
            try:
                yield self
            finally:
                await runner.cleanup()
                await connector.close(abort_ssl=True)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        target = target_of(request.rel_url.raw_path, _KINDS.at)
        watch = is_watch(request.query)
        verb = (verb_of(request.method, target, watch=watch) if target else None) or request.method.lower()
        kind = target.kind.qualified if target else ""
        agent = self._agent(request.headers.get("User-Agent", ""))
        call = Call(agent, request.method, request.path, await request.read())
        self._on_arrival(call)
        fault = self._faults.for_request(request.method.lower(), verb, kind, request.path)
        match fault.action if fault else None:
            case Effect.RESPOND if fault:
                return _refusal(fault)
            case Effect.DELAY if fault:
                await asyncio.sleep(fault.delay_s)
            case Effect.LOSE_ANSWER | Effect.RESPOND_AFTER if fault:
                await asyncio.shield(asyncio.ensure_future(self._passed_on(request, call)))
                if fault.action is Effect.RESPOND_AFTER:
                    return _refusal(fault)
                await asyncio.sleep(fault.delay_s)
                raise _dropped(request)
            case Effect.DROP:
                raise _dropped(request)
        if verb == "watch":
            return await self._stream(request, call, kind)
        return await self._passed_on(request, call)

    def _asked(self, request: web.Request, call: Call) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        assert self._session is not None
        kept = {name: request.headers[name] for name in ("Accept", "Content-Type") if name in request.headers}
        headers = {"Accept-Encoding": "identity", **kept, **self._headers, "User-Agent": call.agent}
        url = URL(self._upstream + request.rel_url.raw_path_qs, encoded=True)
        timeout = aiohttp.ClientTimeout(total=None)
        return self._session.request(
            call.method, url, data=call.body or None, headers=headers, timeout=timeout, allow_redirects=False
        )

    async def _passed_on(self, request: web.Request, call: Call) -> web.Response:
        async with self._asked(request, call) as answer:
            body = await answer.read()
            self._on_answer(call, answer.status, body)
            headers = {name: answer.headers[name] for name in _PASSED_ON if name in answer.headers}
            return web.Response(status=answer.status, body=body, headers=headers)

    async def _stream(self, request: web.Request, call: Call, kind: str) -> web.StreamResponse:
        async with self._asked(request, call) as answer:
            if answer.status != 200:
                return web.Response(
                    status=answer.status, body=await answer.read(), content_type="application/json"
                )
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            await _Stream(self._faults, kind, call.path, request, response).follow(answer.content)
            return response


class _Stream:
    """One open watch: passes lines on, unless a fault stops them."""

    def __init__(
        self, faults: Faults, kind: str, path: str, request: web.Request, response: web.StreamResponse
    ) -> None:
        self._faults, self._kind, self._path = faults, kind, path
        self._request, self._response = request, response
        self._woken = asyncio.Event()
        self._n_sent = 0
        self._fault: Fault | None = None

    async def follow(self, source: aiohttp.StreamReader) -> None:
        """Pass lines on until either side or a fault ends the watch."""
        self._faults.streams[self._woken.set] = None
        reading = asyncio.ensure_future(source.readline())
        waking = asyncio.ensure_future(self._woken.wait())
        try:
            while True:
                await asyncio.wait((reading, waking), return_when=asyncio.FIRST_COMPLETED)
                line = b""
                if reading.done():
                    if not (line := reading.result()):
                        return
                    reading = asyncio.ensure_future(source.readline())
                elif waking.done():
                    self._woken.clear()
                    waking = asyncio.ensure_future(self._woken.wait())
                if await self._is_broken(line):
                    return
                if line:
                    await self._response.write(line)
                    self._n_sent += 1
        finally:
            self._faults.streams.pop(self._woken.set, None)
            for task in (reading, waking):
                task.cancel()
            await asyncio.gather(reading, waking, return_exceptions=True)

    async def _is_broken(self, line: bytes) -> bool:
        """Apply the fault that is due; return whether it ends the stream."""
        self._fault = self._fault or self._faults.for_stream(self._kind, self._path)
        if self._fault is None or self._n_sent < self._fault.after_events:
            return False
        fault, self._fault = self._fault, None
        match fault.action:
            case Effect.STALL_STREAM:
                await asyncio.sleep(fault.delay_s)
                return False
            case Effect.REPEAT_EVENT:
                await self._response.write(line)
                return False
            case Effect.EXPIRE_STREAM:
                expired = status.expired("too old resource version: a fault was asked for")
                error = {"type": "ERROR", "object": expired.to_object()}
                await self._response.write(msgspec.json.encode(error) + b"\n")
            case Effect.CUT_STREAM:
                await self._response.write(line[: len(line) // 2] or b'{"type":"MODI')
                if self._request.transport is not None:
                    self._request.transport.close()
        return True


def _refusal(fault: Fault) -> web.Response:
    details = {"retryAfterSeconds": fault.retry_after_s} if fault.retry_after_s else {}
    headers = {"Retry-After": str(fault.retry_after_s)} if fault.retry_after_s else {}
    reasons = {410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
    error = StatusError(
        fault.code, reasons.get(fault.code, "Timeout"), "a fault was asked for", details=details
    )
    body = msgspec.json.encode(error.to_object())
    return web.Response(status=fault.code, body=body, headers=headers, content_type="application/json")


def _dropped(request: web.Request) -> ConnectionResetError:
    if request.transport is not None:
        request.transport.abort()
    return ConnectionResetError("a fault dropped the connection")
