"""One JSON-RPC conversation over a pipe: requests with deadlines, and everything else in the order it came.

What a request of ours came to: an answer; RpcError, a RefusedError (certainly not done); UncertainError (it may have
been: no answer before the deadline, or the program ended). An answer that comes too late still reaches ``on_reply``.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from turnlog.clock import now_ms
from turnlog.errors import RefusedError, UnavailableError, UncertainError
from turnlog.harness.codex.pipe import Pipe
from turnlog.redact import sanitise, strip_terminal
from turnlog.wire import jsonrpc
from turnlog.wire.jsonl import JsonlDecoder, JsonLine, JsonlProblem
from turnlog.wire.jsonrpc import Failure, Message, Notification, Request, RequestId, Response

DEADLINE: Final = 10.0
"""Seconds for one request (appendix F)."""

QUEUED_LIMIT: Final = 128 << 20
"""Bytes of unread messages after which reading pauses, unless an answer of ours may be behind them."""

_READ: Final = 1 << 18
_LATE: Final = 1000
_ANSWERED_ID: Final = re.compile(r'\s*\{\s*"id"\s*:\s*(\d{1,15})\s*,\s*"(?:result|error)"')


class Arrived(msgspec.Struct, frozen=True):
    """A message of the program; ``seq`` counts everything it said."""

    message: Message
    seq: int
    size: int = 0


class Garbled(msgspec.Struct, frozen=True):
    """A line that could not be read."""

    problem: JsonlProblem


class Told(msgspec.Struct, frozen=True):
    """Something about a request of ours was decided outside the stream."""

    request: str


class Ended(msgspec.Struct, frozen=True):
    """The program said its last word. Instants are unix ms, the duration is measured, not computed from them."""

    error_class: str
    message: str | None
    started_at: int
    ended_at: int
    duration_ms: int
    last_event: str | None
    last_seq: int


Signal = Arrived | Garbled | Told | Ended


class RpcError(RefusedError):
    """The program refused a request. ``detail`` is its own words, sanitised."""

    def __init__(self, method: str, failure: Failure) -> None:
        self.number = failure.code
        self.detail = words(failure.message)
        self.data = failure.data
        super().__init__(f"Codex: {method}: {self.detail}")


class Connection:
    """A connection to one running program. ``tap`` sees each message before it is queued, in order."""

    def __init__(self, pipe: Pipe, tap: Callable[[Message, int], None] | None = None) -> None:
        self._pipe = pipe
        self.tap = tap
        self.seq = 0
        self.ended: Ended | None = None
        self._next_id = 0
        self._pending: dict[RequestId, tuple[str, asyncio.Future[Any], Callable[[Any], None] | None]] = {}
        self._late: dict[RequestId, Callable[[Any], None]] = {}
        self._queue: deque[Signal] = deque()
        self._queued = 0
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._last_event: str | None = None
        self._started_at = now_ms()
        self._started = asyncio.get_running_loop().time()
        self._reader = asyncio.create_task(self._read())

    # --- asking -----------------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        deadline: float = DEADLINE,
        on_reply: Callable[[Any], None] | None = None,
    ) -> Any:
        """Send a request and return its result. ``on_reply`` is called when the answer is read, in stream order.

        Raises RpcError, RefusedError when nothing was sent, UncertainError.
        """
        if self.ended is not None:
            raise RefusedError(f"Codex: {method}: the app-server is gone; nothing was sent")
        self._next_id += 1
        identifier = self._next_id
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[identifier] = (method, future, on_reply)
        self._room.set()
        try:
            self._pipe.write(jsonrpc.encode_request(identifier, method, params))
            async with asyncio.timeout(deadline):
                return await future
        except TimeoutError as error:
            raise UncertainError(f"Codex: {method}: no answer within {deadline:g} s") from error
        finally:
            del self._pending[identifier]
            if future.cancelled() and on_reply is not None and len(self._late) < _LATE:
                self._late[identifier] = on_reply

    async def read(self, method: str, params: dict[str, Any], *, deadline: float = DEADLINE) -> dict[str, Any]:
        """Send a request that changes nothing; returns an object. Raises RpcError, UnavailableError."""
        try:
            result = await self.request(method, params, deadline=deadline)
        except UncertainError as error:
            raise UnavailableError(error.message) from error
        if not isinstance(result, dict):
            raise UnavailableError(f"Codex: {method}: the answer is no object")
        return result

    def notify(self, method: str) -> None:
        """Send a notification. Raises RefusedError."""
        self._pipe.write(jsonrpc.encode_notification(method))

    def respond(self, identifier: RequestId, result: Any) -> None:
        """Answer a request of the program. Raises RefusedError when it is gone."""
        self._pipe.write(jsonrpc.encode_response(identifier, result))

    def reject(self, identifier: RequestId, message: str) -> None:
        """Refuse a request of the program."""
        with contextlib.suppress(RefusedError):
            self._pipe.write(jsonrpc.encode_failure(identifier, jsonrpc.METHOD_NOT_FOUND, message))

    # --- listening --------------------------------------------------------------------------------------------------

    def tell(self, request: str) -> None:
        """Queue a word about a request of ours."""
        self._put(Told(request))

    async def wait(self, seconds: float | None) -> bool:
        """Wait until something is queued; False when nothing came in time."""
        try:
            async with asyncio.timeout(seconds):
                await self._filled.wait()
        except TimeoutError:
            return False
        return True

    def heard(self) -> bool:
        """Tell whether something is queued."""
        return self._filled.is_set()

    def take(self) -> list[Signal]:
        """Return what is queued."""
        taken = list(self._queue)
        self._queue.clear()
        self._filled.clear()
        self._queued = 0
        self._room.set()
        return taken

    async def close(self) -> None:
        """Stop listening. The program is ended elsewhere."""
        self._reader.cancel()
        await asyncio.wait([self._reader])
        if self.ended is None:
            self._end("closed", None)  # nobody may wait for an answer any more

    async def _read(self) -> None:
        decoder = JsonlDecoder()
        error_class, why = "stream_eof", None
        try:
            while data := await self._pipe.reader.read(_READ):
                for line in decoder.feed(data):
                    self._line(line)
                while self._queued > QUEUED_LIMIT and not self._pending:
                    self._room.clear()
                    await self._room.wait()
            for line in decoder.end():
                self._line(line)
        except OSError as error:
            error_class, why = "read_error", str(error)
        self._end(error_class, why)

    def _end(self, error_class: str, why: str | None) -> None:
        duration = round((asyncio.get_running_loop().time() - self._started) * 1000)
        self.ended = Ended(error_class, why, self._started_at, now_ms(), duration, self._last_event, self.seq)
        for method, future, _ in self._pending.values():
            if not future.done():
                future.set_exception(UncertainError(f"Codex: {method}: the app-server ended before it answered"))
        self._late.clear()
        self._put(self.ended)

    def _put(self, signal: Signal) -> None:
        self._queue.append(signal)
        self._filled.set()

    def _line(self, line: JsonLine | JsonlProblem) -> None:
        self.seq += 1
        if isinstance(line, JsonlProblem):
            self._put(Garbled(line))
            # The answer to a request of ours may have been the line that is too long.
            found = _ANSWERED_ID.match(line.head)
            if found and (waiting := self._pending.get(int(found[1]))) and not waiting[1].done():
                waiting[1].set_exception(UncertainError(f"Codex: {waiting[0]}: the answer cannot be read: {line.kind}"))
            return
        message = jsonrpc.read(line.value)
        if isinstance(message, Response | Failure):
            self._answer(message)
            return
        if isinstance(message, Notification | Request):
            self._last_event = message.method
        if self.tap is not None:
            self.tap(message, self.seq)
        self._queued += line.size
        self._put(Arrived(message, self.seq, line.size))

    def _answer(self, message: Response | Failure) -> None:
        if message.id is None:
            self._put(Arrived(message, self.seq))
            return
        late = self._late.pop(message.id, None)
        if message.id in self._pending:
            method, future, on_reply = self._pending[message.id]
            if future.done():
                return
            if isinstance(message, Failure):
                future.set_exception(RpcError(method, message))
                return
            if on_reply is not None:
                on_reply(message.result)
            future.set_result(message.result)
        elif late is not None and isinstance(message, Response):
            late(message.result)


def words(text: str) -> str:
    """Return a foreign text as one line that may be stored and shown."""
    return strip_terminal(sanitise(" ".join(text.split())))[:2000]
