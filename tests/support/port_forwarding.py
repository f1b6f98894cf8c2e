"""
A proxy of an API server that adds `kubectl port-forward`, which the embedded cluster lacks: it runs no containers.

kubectl opens a websocket with the subprotocol SPDY/3.1+portforward.k8s.io, whose messages are the bytes of a SPDY
connection. On it each forwarded connection has two streams: the one for errors is opened first, the one for data
second. Headers are not read: their compression refers to a dictionary, and the port is known here.

Source: apimachinery/pkg/util/httpstream/spdy, kubelet/pkg/cri/streaming/portforward (kubernetes 1.36); SPDY protocol
draft 3.1.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from tests.support.ports import free_port

_PROTOCOL = "SPDY/3.1+portforward.k8s.io"
_SYN_STREAM, _SYN_REPLY, _PING = 1, 2, 6
_CONTROL, _VERSION, _FIN = 0x8000, 3, 1
_CHUNK = 16 << 10
#: Headers of a request that the API server gets.
_SENT_ON = ("Accept", "Content-Type")
#: Headers that belong to one connection, or to a body as it was sent.
_HOP_BY_HOP = ("connection", "content-encoding", "content-length", "transfer-encoding")


@dataclass
class _Tunnel:
    """One SPDY connection; `target` is the port to which its data streams lead."""

    socket: web.WebSocketResponse
    target: int
    buffer: bytes = b""
    n_streams: int = 0
    writers: dict[int, asyncio.StreamWriter] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    #: All header blocks of a connection are one compressed stream.
    headers: zlib._Compress = field(default_factory=zlib.compressobj)

    async def run(self) -> None:
        async for message in self.socket:
            self.buffer += message.data
            while len(self.buffer) >= 8 + (length := int.from_bytes(self.buffer[5:8])):
                frame, self.buffer = self.buffer[: 8 + length], self.buffer[8 + length :]
                await self._on_frame(frame[:4], frame[4], frame[8:])
        for task in self.tasks:
            task.cancel()
        for writer in self.writers.values():
            writer.close()

    async def _on_frame(self, begin: bytes, flags: int, payload: bytes) -> None:
        version, kind = struct.unpack(">HH", begin)
        if not version & _CONTROL:
            if (writer := self.writers.get(int.from_bytes(begin))) is not None:
                writer.write(payload)
                if flags & _FIN:
                    writer.write_eof()
        elif kind == _SYN_STREAM:
            await self._open(int.from_bytes(payload[:4]))
        elif kind == _PING:
            await self._control(_PING, payload)

    async def _open(self, stream: int) -> None:
        none = self.headers.compress(bytes(4)) + self.headers.flush(zlib.Z_SYNC_FLUSH)
        await self._control(_SYN_REPLY, stream.to_bytes(4) + none)
        self.n_streams += 1
        if self.n_streams % 2 == 0:
            reader, self.writers[stream] = await asyncio.open_connection("127.0.0.1", self.target)
            self.tasks.append(asyncio.create_task(self._send(stream, reader)))

    async def _send(self, stream: int, reader: asyncio.StreamReader) -> None:
        while piece := await reader.read(_CHUNK):
            await self.socket.send_bytes(stream.to_bytes(4) + b"\0" + len(piece).to_bytes(3) + piece)
        await self.socket.send_bytes(stream.to_bytes(4) + bytes([_FIN]) + bytes(3))

    async def _control(self, kind: int, payload: bytes) -> None:
        begin = struct.pack(">HH", _CONTROL | _VERSION, kind)
        await self.socket.send_bytes(begin + b"\0" + len(payload).to_bytes(3) + payload)


@asynccontextmanager
async def port_forwarding(
    api: str, target: int, log: Callable[[], str] = str, tokens: Mapping[str, str] | None = None
) -> AsyncGenerator[str, None]:
    """
    Yield the address of a proxy of the API server, where every pod's ports lead to the port `target` here.

    `log` returns the log of every container, whose last lines the proxy answers as a kubelet would. A request in the
    name of another user (`--as`) is sent with that user's token of `tokens`.
    """

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/portforward"):
            socket = web.WebSocketResponse(protocols=(_PROTOCOL,))
            await socket.prepare(request)
            await _Tunnel(socket, target).run()
            return socket
        if request.path.endswith("/log"):
            lines = log().splitlines()[-int(request.query.get("tailLines", 1_000_000)) :]
            return web.Response(text="\n".join(lines)[: int(request.query.get("limitBytes", 1 << 30))])
        url = f"{api}{request.raw_path}"
        sent = {name: request.headers[name] for name in _SENT_ON if name in request.headers}
        if (user := request.headers.get("Impersonate-User")) is not None:
            sent["Authorization"] = f"Bearer {(tokens or {})[user]}"
        async with session.request(request.method, url, headers=sent, data=await request.read()) as answer:
            kept = {key: value for key, value in answer.headers.items() if key.lower() not in _HOP_BY_HOP}
            # In pieces, since a watch does not end.
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            with suppress(ConnectionResetError):  # the client has left
                async for piece in answer.content.iter_any():
                    await response.write(piece)
            return response

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application, shutdown_timeout=1.0)
    async with aiohttp.ClientSession() as session:
        await runner.setup()
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            await runner.cleanup()
