"""A TCP proxy between one instance and the API server, whose connections can be frozen and broken."""

from __future__ import annotations

import asyncio


class Wire:
    """All connections of one instance."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._refusing = False
        self._ends: dict[asyncio.StreamWriter, None] = {}
        self._pumps: dict[asyncio.Task[None], None] = {}

    @property
    def port(self) -> int:
        """Return the port on which it listens."""
        assert self._listener is not None
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Start to listen."""
        self.thaw()
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    def freeze(self) -> None:
        """Hold all data back; connections stay open."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Deliver the data that was held back."""
        self._flowing.set()
        self._refusing = False

    def cut(self, *, refuse: bool = False) -> None:
        """Break every connection; with `refuse`, also break new ones."""
        self._refusing = refuse
        for end in list(self._ends):
            end.transport.abort()
        self._ends.clear()

    async def stop(self) -> None:
        """Close the listener and all connections."""
        self.cut(refuse=True)
        self.thaw()
        self._refusing = True
        if self._listener is not None:
            self._listener.close()
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        try:
            their_reader, their_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            writer.transport.abort()
            return
        self._ends |= {writer: None, their_writer: None}
        for source, sink in ((reader, their_writer), (their_reader, writer)):
            pump = asyncio.create_task(self._pump(source, sink))
            self._pumps[pump] = None
            pump.add_done_callback(self._pumps.pop)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 16):
                await self._flowing.wait()
                sink.write(data)
                await sink.drain()
        except (ConnectionError, RuntimeError):
            pass
        finally:
            sink.close()
            self._ends.pop(sink, None)
