"""An HTTP proxy that knows CONNECT alone: every tunnel leads to one server, whatever name it asks for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class ConnectProxy:
    """`asked` are the request lines of the tunnels, `credentials` what was sent with each."""

    target: tuple[str, int]
    url: str = ""
    asked: list[str] = field(default_factory=list)
    credentials: list[str] = field(default_factory=list)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.asked.append(head[0])
        named = [line.partition(": ") for line in head[1:]]
        self.credentials += [value for name, _, value in named if name.lower() == "proxy-authorization"]
        if not head[0].startswith("CONNECT "):
            writer.write(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        there, back = await asyncio.open_connection(*self.target)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_pump(reader, back), _pump(there, writer))


async def _pump(source: asyncio.StreamReader, drain: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65536):
            drain.write(data)
            await drain.drain()
    except ConnectionError:
        return
    finally:
        drain.close()


@asynccontextmanager
async def connect_proxy(host: str, port: int) -> AsyncIterator[ConnectProxy]:
    """Yield a proxy on a port of its own, whose tunnels lead to this server."""
    proxy = ConnectProxy((host, port))
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield proxy
