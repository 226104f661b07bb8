"""From what Codex says to receipts, notes and events: one conversation's memory, with its subagents. No I/O.

Receipts keep the order in which Codex spoke: a turn's counters are differences to the turn before it, so a completion
must stay before the next start. Within a turn that order is start, content, completion (H7).
"""

from __future__ import annotations

from typing import Any, Final

from turnlog.harness import Ask, Batch, Child, ConversationEvent, Note
from turnlog.harness.codex import decode
from turnlog.harness.codex.decode import Turn, member, text_of
from turnlog.harness.codex.events import Narrator
from turnlog.harness.codex.requests import Requests
from turnlog.harness.codex.strange import Strangers
from turnlog.harness.codex.structured import Schemas
from turnlog.receipts import Receipt

HELD: Final = 10_000
"""Events and usage kept for a turn of which nobody knows yet whose it is."""

Key = tuple[str, str]


class Look:
    """What one look gave."""

    def __init__(self) -> None:
        self.receipts: list[Receipt] = []
        self.notes: list[Note] = []
        self.children: list[Child] = []
        self.events: list[ConversationEvent] = []
        self.asks: list[Ask] = []
        self.settled: list[tuple[str, str]] = []
        self.accepted: list[tuple[str, str]] = []
        self.stalled: list[str] = []

    def batch(self) -> Batch:
        return Batch(
            receipts=tuple(self.receipts),
            notes=tuple(self.notes),
            children=tuple(self.children),
            events=tuple(self.events),
            asks=tuple(self.asks),
            settled=tuple(self.settled),
            accepted=tuple(self.accepted),
            stalled=tuple(self.stalled),
        )


class Observer:
    """Remembers what was already said about one conversation and its subagents."""

    def __init__(self, thread: str, requests: Requests, schemas: Schemas, strangers: Strangers) -> None:
        self.thread = thread
        self.family = {thread}
        self.narrator = Narrator()
        self.live: set[Key] = set()
        self.completed: set[Key] = set()
        self._requests = requests
        self._schemas = schemas
        self._strangers = strangers
        self._answers: dict[Key, str] = {}
        self._early: dict[Key, list[Receipt]] = {}
        self._held: dict[str, list[ConversationEvent]] = {}
        self._opened: set[str] = set()
        self._own_turns: set[str] = set()

    # --- what comes live --------------------------------------------------------------------------------------------

    def hear(self, method: str, params: dict[str, Any], look: Look) -> None:
        """Take one notification."""
        thread = text_of(params, "threadId")
        turn = decode.turn_named(method, params)
        if thread is None or turn is None:
            return
        if thread not in self.family and not self._adopt(thread, method, params, look):
            return
        key = (thread, turn)
        if method == "turn/started":
            self._start(key, look)
        elif method == "turn/completed":
            self._complete(key, params, look)
        elif method == "thread/tokenUsage/updated":
            self._usage(key, params, look)
        elif method in ("item/started", "item/completed"):
            self._item(key, member(params, "item"), look, ended=method == "item/completed")
        # Counters of a turn that only the past knows are a repetition, not news.
        if thread == self.thread and (key in self.live or method != "thread/tokenUsage/updated"):
            for event in self.narrator.tell(method, params):
                self._deliver(turn, event, look)

    def settle(self, look: Look) -> None:
        """Say what was decided about requests of ours, and show what was held back for it."""
        for request in self._requests.take_decided():
            joined = self._requests.joined.get(request)
            if joined is not None:
                self._join(request, joined, look)
            elif (began := self._requests.turn_of(request)) is not None:
                look.accepted.append((request, began))
        for turn in list(self._held):
            if self._requests.admitted(turn):
                look.events += self._held.pop(turn)
            elif not self._requests.undecided():
                del self._held[turn]

    def _start(self, key: Key, look: Look) -> None:
        self.live.add(key)
        look.receipts.append(Receipt(*key, "started", {}))
        look.receipts += self._early.pop(key, [])
        if key[0] == self.thread:
            self._open(key[1], look)

    def _open(self, turn: str, look: Look) -> None:
        if turn not in self._opened:
            self._opened.add(turn)
            self._deliver(turn, ConversationEvent("turn_started", turn_id=turn), look)

    def _usage(self, key: Key, params: dict[str, Any], look: Look) -> None:
        receipt = decode.usage_receipt(*key, params)
        if receipt is None:
            return
        if key in self.live:
            look.receipts.append(receipt)
        else:
            early = self._early.setdefault(key, [])
            if len(early) < HELD:
                early.append(receipt)

    def _item(self, key: Key, item: dict[str, Any], look: Look, *, ended: bool) -> None:
        for child in decode.children_of(*key, item):
            self._add(child, look)
        if ended and (answer := decode.answer_of(item)) is not None:
            self._answers[key] = answer

    def _complete(self, key: Key, params: dict[str, Any], look: Look) -> None:
        turn = decode.read_turn(params.get("turn"))
        payload = decode.completion(turn, dead=True) if turn is not None else None
        if turn is None or payload is None:
            return
        known = key in self.completed
        self._end(key, turn, payload, self._requests.began.get(turn.id), look)
        if key[0] == self.thread and not known:
            self._close(turn, payload, look)

    def _close(self, turn: Turn, payload: dict[str, Any], look: Look) -> None:
        self._open(turn.id, look)
        status = str(payload["status"])
        if status != "completed":
            text = decode.error_text(payload["error"], interrupted=status == "interrupted")
            self._deliver(turn.id, ConversationEvent("error", turn_id=turn.id, code="codex_error", message=text), look)
        self._deliver(turn.id, ConversationEvent("turn_completed", turn_id=turn.id, status=status), look)

    def _end(self, key: Key, turn: Turn, payload: dict[str, Any], request: str | None, look: Look) -> None:
        self.completed.add(key)
        heard = self._answers.pop(key, None)
        answer = decode.last_answer(turn)
        answer = heard if answer is None else answer
        if answer is not None:
            look.receipts.append(Receipt(*key, "output", decode.output(answer, self._schemas.of(request))))
        look.receipts.append(Receipt(*key, "completed", payload))

    def _deliver(self, turn: str, event: ConversationEvent, look: Look) -> None:
        if self._requests.admitted(turn) and turn not in self._held:
            look.events.append(event)
        elif self._requests.undecided() or turn in self._held:
            held = self._held.setdefault(turn, [])
            if len(held) < HELD:
                held.append(event)

    # --- subagents --------------------------------------------------------------------------------------------------

    def _adopt(self, thread: str, method: str, params: dict[str, Any], look: Look) -> bool:
        """Link an unknown conversation by the turn it works for. Others are noted once and left alone."""
        if method != "turn/started":
            return False
        root = text_of(member(params, "turn"), "rootTurnId")
        parent = next((key for key in self.live if key[1] == root), None)
        if parent is None:
            look.notes += self._strangers.thread_of_nobody(thread, method)
            return False
        self._add(Child(thread, *parent, None), look)
        return True

    def _add(self, child: Child, look: Look) -> None:
        if child.thread not in self.family:
            self.family.add(child.thread)
            look.children.append(child)

    # --- what the history tells -------------------------------------------------------------------------------------

    def recall(self, thread: str, turn: Turn, look: Look, *, idle: bool = False) -> None:
        """Take a turn of a snapshot: completion and output; a start only where our request is its first word.

        ``idle``: the engine says that nothing runs, so an end that it tells about a turn of its own is its last word.
        """
        key = (thread, turn.id)
        mine = thread == self.thread and self._claim(turn, look)
        for item in turn.items:
            for child in decode.children_of(*key, item):
                self._add(child, look)
        running = turn.id == self._requests.open or (key in self.live and key not in self.completed)
        if running and not idle:
            return  # it is told live
        payload = decode.completion(turn, dead=mine or turn.root in self._own_turns or key in self.live)
        if payload is None:
            return
        first = decode.user_messages(turn)[:1]
        request = first[0] if mine and first else self._requests.began.get(turn.id)
        known = key in self.completed
        self._end(key, turn, payload, request, look)
        if idle and not known:
            self._close(turn, payload, look)  # it was missed

    def _claim(self, turn: Turn, look: Look) -> bool:
        """Find requests of ours in a turn of the past; True when one of them began it."""
        named = decode.user_messages(turn)
        own = self._requests.own
        for request in named[1:]:
            if request in own and request is not None:
                self._join(request, turn.id, look)
        if not named or named[0] not in own or named[0] is None:
            return turn.id in self._requests.began
        self._own_turns.add(turn.id)
        look.accepted.append((named[0], turn.id))
        look.receipts.append(Receipt(self.thread, turn.id, "started", {}))
        return True

    def _join(self, request: str, turn: str, look: Look) -> None:
        look.notes.append(Note(f"absorbed:{request}", self.thread, turn, {"by": turn}))
        look.settled.append((request, turn))
