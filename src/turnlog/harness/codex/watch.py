"""The observation loop of one conversation on one engine: hear, say; look again where hearing was not enough."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Final

from turnlog.errors import TurnlogError, UnavailableError
from turnlog.harness import Batch, HarnessConfig, Note
from turnlog.harness.codex import history
from turnlog.harness.codex.asks import Asks
from turnlog.harness.codex.connection import Arrived, Ended, Garbled, Signal
from turnlog.harness.codex.decode import member, text_of
from turnlog.harness.codex.engine import Engine
from turnlog.harness.codex.farewell import farewell
from turnlog.harness.codex.observer import Look, Observer
from turnlog.harness.codex.requests import Requests
from turnlog.harness.codex.strange import Strangers
from turnlog.harness.codex.structured import Schemas
from turnlog.harness.codex.threads import Opened
from turnlog.wire.jsonrpc import Notification, Request

DEBOUNCE: Final = 0.01
"""Seconds to gather further messages before saying anything."""

GRACE: Final = 1.0
"""Seconds of idleness before a turn without an end is looked up: Codex reports idle *before* the end of the turn."""

SAFETY: Final = 30.0
"""Seconds without a word, while a turn of ours is open, after which Codex is asked whether it still works."""

CHILDREN: Final = 200
"""Subagents whose history is read at most."""


class Watch:
    """Observes one open conversation."""

    def __init__(
        self, engine: Engine, opened: Opened, config: HarnessConfig, requests: Requests, schemas: Schemas
    ) -> None:
        self._engine = engine
        self._connection = engine.connection
        self._thread = opened.thread
        self._fresh = opened.fresh
        self._model = opened.model or config.model
        self._requests = requests
        self._schemas = schemas
        self._strangers = Strangers(opened.thread)
        self._observer = Observer(opened.thread, requests, schemas, self._strangers)
        self.asks = Asks(self._connection, config.permissions)
        self._idle_since: float | None = None
        self._lost_line = False
        self._stalled: set[str] = set()
        self._closed = False
        self._telling = False

    def telling(self) -> bool:
        """Tell whether something was heard that whoever asks for the batches has not taken yet."""
        return self._telling or self._connection.heard()

    def closed(self) -> bool:
        """Tell whether ``close`` was called."""
        return self._closed

    async def close(self) -> None:
        """End the observation; nothing more is said."""
        self._closed = True
        self._connection.tell("")
        await asyncio.sleep(0)

    async def recover(self) -> Batch:
        """Read the whole history once, with a fresh memory (6.6)."""
        look = Look()
        observer = Observer(self._thread, self._requests, self._schemas, self._strangers)
        await self._recall(observer, look)
        return look.batch()

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield what is seen until the engine is gone or ``close`` is called."""
        first = Look()
        if not self._fresh:
            try:
                await self._recall(self._observer, first)
            except UnavailableError:
                if self._connection.ended is None:
                    raise
        # The first look is told even when it saw nothing: whoever waits for it may send now.
        yield first.batch()
        while not self.closed():
            self._telling = False  # asked for the next batch: the last one was taken
            came = await self._connection.wait(self._due())
            self._telling = came
            if came:
                await asyncio.sleep(DEBOUNCE)
            look = Look()
            ended: Ended | None = None
            for signal in self._connection.take():
                self._observer.settle(look)
                ended = self._hear(signal, look) or ended
            self._observer.settle(look)
            if self.closed():
                return
            if ended is None:
                await self._look_again(look, quiet=not came)
            batch = look.batch()
            if batch != Batch():
                yield batch
            if ended is not None:
                await self._engine.reap()
                yield farewell(
                    ended,
                    self._strangers,
                    self._observer.narrator,
                    waiting=self._requests.waiting(),
                    exit_code=self._engine.exit_code(),
                    last_words=self._engine.last_words(),
                    model=self._model,
                )
                return

    def _hear(self, signal: Signal, look: Look) -> Ended | None:
        if isinstance(signal, Ended):
            return signal
        if isinstance(signal, Garbled):
            look.notes += self._strangers.unreadable(signal.problem)
            self._lost_line = True
        elif isinstance(signal, Arrived):
            message = signal.message
            if isinstance(message, Request):
                if not self.asks.hear(message, look):
                    look.notes += self._strangers.message(message)
                return None
            look.notes += self._strangers.message(message)
            if isinstance(message, Notification):
                self._notified(message, look)
        return None

    def _notified(self, message: Notification, look: Look) -> None:
        method, params = message.method, message.params
        thread = text_of(params, "threadId")
        if method == "serverRequest/resolved":
            self.asks.resolved(params, look)
            return
        if method == "thread/status/changed" and thread == self._thread:
            working = member(params, "status").get("type") == "active"
            self._idle_since = None if working else time.monotonic()
            return
        if method == "turn/started" and thread == self._thread:
            self._idle_since = None
        elif method == "item/started":
            self.asks.note(member(params, "item"))
        elif method == "turn/completed" and thread is not None:
            self.asks.turn_ended(thread, text_of(member(params, "turn"), "id") or "", look)
        self._observer.hear(method, params, look)

    # --- looking again ----------------------------------------------------------------------------------------------

    def _due(self) -> float | None:
        """Return the seconds until a look is due without any signal; None: when something happens."""
        if not self._open():
            return None
        if self._idle_since is not None:
            return max(0.0, self._idle_since + GRACE - time.monotonic())
        return GRACE if self._lost_line else SAFETY

    def _open(self) -> list[str]:
        """Return turns of ours that may still end. One that was only promised has not begun, so it cannot be idle."""
        requests = self._requests
        return [turn for turn in requests.waiting() if turn not in self._stalled and requests.seen(turn)]

    async def _look_again(self, look: Look, *, quiet: bool) -> None:
        """Read the newest turns when an end may have been missed; say which turns will have none."""
        waiting = self._open()
        idle = self._idle_since is not None and time.monotonic() >= self._idle_since + GRACE
        if not waiting or not (idle or quiet):
            return
        try:
            if not idle:
                idle = await self._is_idle()
            self._lost_line = False
            if not idle:
                return
            async for turn in history.turns(self._connection, self._thread, newest=history.NEWEST):
                if turn.id in waiting:
                    self._observer.recall(self._thread, turn, look, idle=True)
        except TurnlogError:
            self._idle_since = time.monotonic() if self._idle_since is not None else None
            return  # the next look tries again
        for name in waiting:
            if (self._thread, name) in self._observer.completed:
                self._requests.end(name)
                continue
            self._stalled.add(name)
            # Whoever waits may know the request or the turn that it began.
            look.stalled += [self._requests.began[name], name]
            look.notes.append(Note(f"idle:{self._thread}:{name}", self._thread, name, {"status": "idle"}))

    async def _is_idle(self) -> bool:
        answer = await self._connection.read("thread/read", {"threadId": self._thread})
        status = member(member(answer, "thread"), "status").get("type")
        return status in ("idle", "systemError", "notLoaded")

    async def _recall(self, observer: Observer, look: Look) -> None:
        """Read a conversation and, one after the other, the subagents that its turns name."""
        async for turn in history.turns(self._connection, self._thread):
            observer.recall(self._thread, turn, look)
        read = {self._thread}
        for child in look.children:  # grows while it is read
            if child.thread in read or len(read) > CHILDREN:
                continue
            read.add(child.thread)
            try:
                async for turn in history.turns(self._connection, child.thread):
                    observer.recall(child.thread, turn, look)
            except TurnlogError:
                continue  # its file is gone, or cannot be read now
