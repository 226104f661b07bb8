"""The network between a client and a server, which can be cut, halted or made deaf: a port, forwarded to a socket."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

BLOCK: Final = 65_536


class Wire:
    """The way of one machine to the server, as a context manager; its methods are called from any thread."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self._refusing = False

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def url(self, database: str) -> str:
        return f"postgresql://owner@127.0.0.1:{self.port}/{database}?sslmode=disable&connect_timeout=2"

    def cut(self) -> None:
        """Break every connection and let no new one through."""
        self._call(self._cut)

    def halt(self) -> None:
        """Forward nothing; connections stay as they are."""
        self._call(self._up.clear)
        self._call(self._down.clear)

    def deafen(self) -> None:
        """Forward what the client says and nothing that the server answers: what it acknowledges is not heard."""
        self._call(self._down.clear)

    def mend(self) -> None:
        """Forward everything again, to new connections too."""
        self._call(self._mend)

    def _call(self, action: object) -> None:
        assert callable(action)
        self._loop.call_soon_threadsafe(action)

    def _cut(self) -> None:
        self._refusing = True
        for writer in self._writers:
            writer.transport.abort()

    def _mend(self) -> None:
        self._refusing = False
        self._up.set()
        self._down.set()

    async def _serve(self) -> None:
        self._mend()
        self._server = await asyncio.start_server(self._joined, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        self._cut()
        self._up.set()
        self._down.set()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with suppress(OSError, asyncio.CancelledError):
            if not self._refusing:
                far_reader, far_writer = await asyncio.open_unix_connection(str(self.target))
                self._writers.add(far_writer)
                try:
                    await asyncio.gather(
                        self._pump(reader, far_writer, self._up), self._pump(far_reader, writer, self._down)
                    )
                finally:
                    self._writers.discard(far_writer)
                    far_writer.transport.abort()
        self._writers.discard(writer)
        writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        while data := await reader.read(BLOCK):
            await gate.wait()
            writer.write(data)
            await writer.drain()
        writer.transport.abort()  # as good as both ways closed: libpq never closes only one
        raise ConnectionResetError
