"""Helpers of the harness tests: a harness observed in the background, and a proxy that can cut connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Self

from turnlog.harness import Ask, Batch, ConversationEvent, Delivery, Harness, Note
from turnlog.receipts import Receipt, canonical

SECONDS = 60.0


class Driven:
    """A started harness with an open thread, observed until the block ends; ``until`` waits for what is seen.

    The block begins after the first look, as a driver sends nothing before; without ``look`` at once.
    """

    def __init__(self, harness: Harness, *, observe: bool = True, look: bool = True, stop: bool = True) -> None:
        self.harness = harness
        self.thread = ""
        self.batches: list[Batch] = []
        self.ended = False
        self._observe = observe
        self._look = look
        self._stop = stop
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            await self.harness.start()
            self.thread = await self.harness.open_thread()
        except BaseException:
            await self.harness.stop()
            raise
        if self._observe:
            self._task = asyncio.create_task(self._run())
            if self._look:
                await self.until(lambda: bool(self.batches) or self.ended)
        return self

    async def __aexit__(self, *_: object) -> None:
        await (self.harness.stop() if self._stop else self.harness.detach())
        if self._task is not None:
            async with asyncio.timeout(SECONDS):
                await self._task

    async def _run(self) -> None:
        try:
            async for batch in self.harness.observe():
                async with self._changed:
                    self.batches.append(batch)
                    self._changed.notify_all()
        finally:
            async with self._changed:
                self.ended = True
                self._changed.notify_all()

    async def until(self, found: Callable[[], bool], seconds: float = SECONDS) -> None:
        async with self._changed:
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait_for(found)
            except TimeoutError:
                raise AssertionError(f"not seen within {seconds} s; seen: {self.batches}") from None

    async def send(self, text: str, **more: Any) -> str:
        request = self.harness.new_request_id()
        assert await self.harness.send(request, text, **more) == request
        return request

    async def turn(self, text: str, seconds: float = SECONDS) -> str:
        """Send and wait for the completion."""
        request = await self.send(text)
        await self.until(lambda: self.completion(request) is not None, seconds)
        return request

    # --- what was seen ----------------------------------------------------------------------------------------------

    @property
    def receipts(self) -> list[Receipt]:
        return [receipt for batch in self.batches for receipt in batch.receipts]

    @property
    def events(self) -> list[ConversationEvent]:
        return [event for batch in self.batches for event in batch.events]

    @property
    def notes(self) -> list[Note]:
        return [note for batch in self.batches for note in batch.notes]

    @property
    def asks(self) -> list[Ask]:
        return [ask for batch in self.batches for ask in batch.asks]

    @property
    def settled(self) -> list[tuple[str, str]]:
        return [pair for batch in self.batches for pair in batch.settled]

    @property
    def stalled(self) -> list[str]:
        return [name for batch in self.batches for name in batch.stalled]

    def payloads(self, kind: str, turn: str | None = None, thread: str | None = None) -> list[Any]:
        """Return distinct payloads, as intake would keep them."""
        found: dict[str, Any] = {}
        for receipt in self.receipts:
            wanted = receipt.kind == kind and receipt.thread == (thread or self.thread)
            if wanted and (turn is None or receipt.turn == turn):
                found.setdefault(receipt.turn + canonical(receipt.payload), receipt.payload)
        return list(found.values())

    def completion(self, turn: str) -> Any:
        found = self.payloads("completed", turn)
        assert len(found) < 2, found
        return found[0] if found else None

    def event_types(self, turn: str) -> list[str]:
        return [event.type for event in self.events if event.turn_id == turn]

    def text_of(self, turn: str) -> str:
        """Return the streamed text of a turn."""
        return "".join(
            event.content or "" for event in self.events if (event.type, event.turn_id) == ("text_delta", turn)
        )


async def until(found: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Wait for something outside of this process, looking often."""
    async with asyncio.timeout(seconds):
        while not found():  # noqa: ASYNC110 - nothing tells us
            await asyncio.sleep(0.01)


async def idle(harness: Harness) -> None:
    """Wait until nothing works: a program may tell how a turn ended just before it calls itself idle."""
    async with asyncio.timeout(SECONDS):
        while await harness.busy():  # noqa: ASYNC110 - nothing tells us
            await asyncio.sleep(0.01)


async def delivered(harness: Harness, request: str) -> None:
    """Wait until the program shows a request: it may acknowledge one before it has it."""
    async with asyncio.timeout(SECONDS):
        while await harness.lookup(request) is not Delivery.FOUND:  # noqa: ASYNC110 - nothing tells us
            await asyncio.sleep(0.01)


def keys(batch: Batch) -> list[tuple[str, str, str, str]]:
    """Return the identity of a batch's receipts, to compare two readings of the same history."""
    return sorted((r.thread, r.turn, r.kind, canonical(r.payload)) for r in batch.receipts)


def tokens(payload: Any) -> dict[str, Any]:
    """Return the tokens of a usage payload."""
    found: dict[str, Any] = payload["message"]["tokens"]
    return found


class Proxy:
    """A TCP proxy on 127.0.0.1 that can cut all connections, or swallow the answer to the next matching request."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._swallow: bytes | None = None
        self.swallowed = asyncio.Event()
        self.seen: list[bytes] = []
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def cut(self) -> None:
        """End every open connection at once."""
        for writer in list(self._writers):
            writer.transport.abort()

    def swallow(self, start: bytes) -> None:
        """Let the next request whose first line starts so arrive, and drop the connection instead of the answer."""
        self._swallow = start

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, back_writer}
        swallow = asyncio.Event()

        async def forward() -> None:
            while data := await reader.read(65536):
                self.seen.append(data.split(b"\r\n", 1)[0])
                if self._swallow is not None and data.startswith(self._swallow):
                    self._swallow = None
                    swallow.set()
                back_writer.write(data)
                await back_writer.drain()

        async def back() -> None:
            while data := await back_reader.read(65536):
                if swallow.is_set():
                    writer.transport.abort()
                    self.swallowed.set()
                    return
                writer.write(data)
                await writer.drain()

        halves = [asyncio.create_task(forward()), asyncio.create_task(back())]
        try:
            await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for half in halves:
                half.cancel()
            await asyncio.wait(halves)
            for half in halves:
                with contextlib.suppress(asyncio.CancelledError, OSError):
                    half.result()
            for end in (writer, back_writer):
                self._writers.discard(end)
                end.transport.abort()
