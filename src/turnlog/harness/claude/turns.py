"""Which turn runs, and what became of each request: told by Claude, never counted (semantics 6.4).

2.1.332 names our user lines when a turn's request leaves (``system/status``) and in its ``result``; of several the turn
belongs to the last. 2.1.197 only echoes them: the first echo after a ``system/init`` is the turn. Lines echoed before
it (merged into one turn) and after it (taken into the running turn) are absorbed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from turnlog.harness import ConversationEvent, Note
from turnlog.harness.claude.decode import PROVIDER
from turnlog.harness.claude.gathered import Gathered
from turnlog.receipts import Receipt


class Turn:
    """The turn that runs now. ``id`` is None until Claude tells whose it is; ``merged`` came before it was told."""

    def __init__(self, merged: list[str]) -> None:
        self.id: str | None = None
        self.first_call: str | None = None
        """``message.id`` of the first own model call."""

        self.merged = merged


class Turns:
    """The requests of one conversation and the turn that runs; what changes goes into ``seen``.

    ``own``: requests that may get a start. ``narrated``: those of them sent by this harness object; only they get
    boundary and content events (H8). ``named``: own requests that Claude named, so they were certainly delivered.
    """

    def __init__(self, thread: str, own: Collection[str]) -> None:
        self.thread = thread
        self.own = set(own)
        self.narrated: set[str] = set()
        self.named: set[str] = set()
        self.completed: set[str] = set()
        self.seen = Gathered()
        self.current: Turn | None = None
        self._started: set[str] = set()
        self._settled: set[str] = set()
        self._dropped: set[str] = set()
        self._waiting: list[str] = []

    def open_requests(self) -> list[str]:
        """Return requests sent by this object that have no end and were neither absorbed nor dropped."""
        return sorted(self.narrated - self.over)

    @property
    def over(self) -> frozenset[str]:
        """Requests of which everything was told: ended, absorbed or dropped."""
        return frozenset(self.completed | self._settled | self._dropped)

    @property
    def id(self) -> str | None:
        """The id of the running turn, as far as it is told."""
        return self.current.id if self.current is not None else None

    def shown(self) -> str | None:
        """Return the running turn's id if its content may be shown."""
        return self.id if self.id in self.narrated else None

    def forget_process(self) -> None:
        """Another process goes on: what ran in the old one has no end."""
        self.current = None
        self._waiting = []

    def begin(self) -> Turn:
        """A turn begins."""
        self.current = Turn(self._waiting)
        self._waiting = []
        return self.current

    def end(self) -> Turn | None:
        """The running turn ends; return it."""
        ended, self.current = self.current, None
        return ended

    def echoed(self, request: str) -> None:
        """Claude echoed a user line of ours."""
        self.named.add(request)
        if self.current is None:
            self._waiting.append(request)
        elif self.current.id is None:
            self._belongs(self.current, request)
        else:
            self.absorb([request], self.current.id)

    def requested(self, named: list[str]) -> None:
        """A model request of the running turn left, carrying these user lines."""
        self.named.update(self.own.intersection(named))
        turn = self.current or self.begin()
        if turn.id is not None and turn.id not in named:
            turn = self.begin()  # its init was not told
        if turn.id is None:
            self._belongs(turn, named[-1])
        self.absorb(named, turn.id or "")

    def start(self, request: str) -> None:
        """Give a request of ours its start, once."""
        if request in self.own and request not in self._started:
            self._started.add(request)
            self.seen.receipts.append(Receipt(self.thread, request, "started", {}))
            if request in self.narrated:
                self.seen.events.append(ConversationEvent("turn_started", turn_id=request))

    def absorb(self, requests: Iterable[str], turn: str) -> None:
        """Note own requests that got no turn of their own: another one took them along (D19)."""
        for request in requests:
            if request == turn or request not in self.own or request in self.over:
                continue
            self.named.add(request)
            self._settled.add(request)
            self.seen.settled.append((request, turn))
            self.seen.notes.append(Note(f"absorbed:{self.thread}:{request}", self.thread, request, {"by": turn}))

    def withdrawn(self, requests: Iterable[str]) -> None:
        """Claude dropped lines that waited: nothing will come of them."""
        for request in requests:
            if request not in self.own or request == self.id or request in self.over:
                continue
            self.named.add(request)
            self._dropped.add(request)
            self.seen.stalled.append(request)
            source = f"cancelled:{self.thread}:{request}"
            evidence = {"provider": PROVIDER, "state": "cancelled"}
            self.seen.notes.append(Note(source, self.thread, request, evidence))

    def _belongs(self, turn: Turn, request: str) -> None:
        turn.id = request
        self.start(request)
        merged, turn.merged = turn.merged, []
        self.absorb(merged, request)
