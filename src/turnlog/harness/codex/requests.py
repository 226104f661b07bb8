"""Which request of ours began which turn: kept in the order of the stream, because only that order tells it (6.3).

``turn/start`` while a turn runs begins nothing: its answer names the running turn. So an answer that names a turn which
was seen *before* our request was sent means that we only joined it. The same is decided from the user message that
carries our request id, when the answer never came.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Any, Final

from turnlog.harness.codex.decode import children_of, client_of, member, text_of, turn_named
from turnlog.wire.jsonrpc import Message, Notification, Request

_ITEMS: Final = ("item/started", "item/completed")

BEGINNING: Final = 5.0
"""Seconds that a subagent may take to begin, from when it was named: one that never does is not waited for longer."""


class Requests:
    """Requests of ours and the turns of their conversation, as far as this engine told.

    ``own``: every request id of ours. ``sent``: those of this object, with the place in the stream where they left.
    ``began``: turn → request. ``joined``: request → turn. ``open``: the turn that runs now. ``others``: conversations
    of subagents that began.
    """

    def __init__(self, own: Collection[str] = ()) -> None:
        self.thread = ""
        self.own = set(own)
        self.sent: dict[str, int] = {}
        self.began: dict[str, str] = {}
        self.joined: dict[str, str] = {}
        self.open: str | None = None
        self.started: set[str] = set()
        self.ended: set[str] = set()
        self.others: set[str] = set()
        self._open_elsewhere: set[tuple[str, str]] = set()
        self._named: dict[str, float] = {}
        self._first_seen: dict[str, int] = {}
        self._decided: list[str] = []
        self._changed = asyncio.Event()

    # --- what is said -----------------------------------------------------------------------------------------------

    def restart(self, thread: str) -> None:
        """Begin with a new engine: nothing runs in it yet."""
        self.thread = thread
        self.open = None
        self._open_elsewhere.clear()
        self._named.clear()
        for request in [name for name in self.sent if self.unplaced(name)]:
            del self.sent[request]  # the engine that might have told is gone; the history tells
        self.started.clear()
        self._first_seen.clear()
        self._wake()

    def tap(self, message: Message, seq: int) -> None:
        """Take a message of the program, in order."""
        if not isinstance(message, Notification | Request):
            return
        params = message.params
        thread = text_of(params, "threadId")
        turn = turn_named(message.method, params)
        if thread is None or turn is None:
            return
        self._hear_of_others(message.method, thread, turn, params)
        if thread != self.thread:
            return
        if message.method == "thread/tokenUsage/updated":
            return  # also repeated for a turn of the past when a conversation is resumed
        self._first_seen.setdefault(turn, seq)
        if message.method == "turn/started":
            self.started.add(turn)
            self.open = turn
            self._wake()
        elif message.method == "turn/completed":
            self.ended.add(turn)
            if self.open == turn:
                self.open = None
            self._wake()
        elif message.method in _ITEMS:
            request = client_of(member(params, "item"))
            if request in self.sent and request not in self.joined and self.began.get(turn) != request:
                self.decide(request, turn)

    def _hear_of_others(self, method: str, thread: str, turn: str, params: dict[str, Any]) -> None:
        """Note subagents that are opened, begin and end."""
        if method in _ITEMS:
            for child in children_of(thread, turn, member(params, "item")):
                if child.thread not in self.others:
                    self._named.setdefault(child.thread, time.monotonic())
        if thread != self.thread and method == "turn/started":
            self.others.add(thread)
            self._named.pop(thread, None)
            self._open_elsewhere.add((thread, turn))
        elif method == "turn/completed":
            self._open_elsewhere.discard((thread, turn))

    # --- what we do -------------------------------------------------------------------------------------------------

    def send(self, request: str, seq: int) -> None:
        """A request is about to leave."""
        self.own.add(request)
        self.sent[request] = seq

    def refuse(self, request: str) -> None:
        """A request was certainly not taken."""
        self.own.discard(request)
        self.sent.pop(request, None)

    def decide(self, request: str, turn: str) -> None:
        """A request is known to be part of a turn: it began it, or joined it."""
        if request not in self.sent or request in self.joined or self.began.get(turn) == request:
            return
        earlier = self._first_seen.get(turn)
        if turn in self.began or (earlier is not None and earlier <= self.sent[request]):
            self.join(request, turn)
            return
        self.began[turn] = request
        self._decided.append(request)
        if turn not in self.ended:
            self.open = turn
        self._wake()

    def join(self, request: str, turn: str) -> None:
        """A request went into a turn that ran already."""
        self.own.add(request)
        self.joined[request] = turn
        self._decided.append(request)

    def end(self, turn: str) -> None:
        """A turn's end was found by looking."""
        self.ended.add(turn)
        if self.open == turn:
            self.open = None
        self._wake()

    # --- what is known ----------------------------------------------------------------------------------------------

    def turn_of(self, request: str) -> str | None:
        """Return the turn that a request began."""
        return next((turn for turn, name in self.began.items() if name == request), None)

    def busy_elsewhere(self) -> bool:
        """Tell whether a subagent works, or was opened just now and has yet to begin."""
        now = time.monotonic()
        return bool(self._open_elsewhere) or any(now - at < BEGINNING for at in self._named.values())

    def admitted(self, turn: str) -> bool:
        """Tell whether a turn was begun by a request of this object: only those are narrated (H1, H8)."""
        return turn in self.began

    def undecided(self) -> bool:
        """Tell whether a request of this object may still turn out to have begun a turn."""
        return len(self.sent) > len(self.began) + sum(request in self.joined for request in self.sent)

    def placed(self, request: str) -> bool:
        """Tell whether it is known which turn a request began or joined."""
        return request in self.joined or request in self.began.values()

    def unplaced(self, request: str) -> bool:
        """Tell whether a request left and nobody knows what became of it."""
        return request in self.sent and not self.placed(request)

    def seen(self, turn: str) -> bool:
        """Tell whether the running engine said anything about a turn."""
        return turn in self._first_seen

    def take_decided(self) -> list[str]:
        """Return the requests about which something was decided since the last call."""
        decided, self._decided = self._decided, []
        return decided

    def waiting(self) -> list[str]:
        """Return turns that requests of this object began and that have no end."""
        return [turn for turn in self.began if turn not in self.ended]

    async def running(self, seconds: float) -> str | None:
        """Return the running turn once the program said that it started.

        A turn that was only promised cannot be steered or interrupted yet: Codex would answer that there is none.
        """
        try:
            async with asyncio.timeout(seconds):
                while self.open is not None and self.open not in self.started:
                    changed = self._changed
                    await changed.wait()
        except TimeoutError:
            return None
        return self.open

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def first_of(value: Any) -> str | None:
    """Return the turn id of an answer to ``turn/start``."""
    return text_of(member(value, "turn"), "id") if isinstance(value, dict) else None
