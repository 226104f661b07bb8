"""What Codex asks us while it works: permissions are shown or answered by policy, everything else is declined."""

from __future__ import annotations

from typing import Any, Final

from turnlog.errors import InvalidError, RefusedError
from turnlog.harness import Ask, ConversationEvent
from turnlog.harness.codex.connection import Connection
from turnlog.harness.codex.decode import text_of
from turnlog.harness.codex.observer import Look
from turnlog.harness.codex.permissions import ANSWERS, ASKED, QUESTION, action, ask_line, reply
from turnlog.redact import strip_terminal
from turnlog.wire.jsonrpc import Request, RequestId

ITEMS: Final = 200
"""File changes remembered, so that a question about one can name its files."""

_BY_POLICY: Final = {"deny": "reject", "allow": "once"}


class _Open:
    def __init__(self, ask: Ask, request: Request) -> None:
        self.ask = ask
        self.request = request
        self.answer: str | None = None


class Asks:
    """The questions of one engine. Each is told once, answered once, and settled when Codex says so."""

    def __init__(self, connection: Connection, policy: str) -> None:
        self._connection = connection
        self._policy = policy
        self._open: dict[RequestId, _Open] = {}
        self._items: dict[str, dict[str, Any]] = {}

    def note(self, item: dict[str, Any]) -> None:
        """Remember a file change that may be asked about."""
        name = text_of(item, "id")
        if item.get("type") == "fileChange" and name is not None:
            self._items[name] = item
            while len(self._items) > ITEMS:
                del self._items[next(iter(self._items))]

    def hear(self, request: Request, look: Look) -> bool:
        """Take a request of Codex; False when it is none we know, then it is refused."""
        if request.method == QUESTION:
            self._question(request, look)
            return True
        if request.method not in ASKED:
            self._connection.reject(request.id, f"turnlog does not answer {request.method}")
            return False
        params = request.params
        thread, turn = text_of(params, "threadId") or "", text_of(params, "turnId")
        # The program counts its requests from 0 in each process; a turn belongs to one process.
        name = f"{turn or thread}:{request.id}"
        detail = strip_terminal(ask_line(request, self._items.get(text_of(params, "itemId") or "")))
        opened = _Open(Ask(name, thread, turn, action(request), detail), request)
        self._open[request.id] = opened
        evidence = {"id": name, "thread": thread, "action": opened.ask.action}
        look.events.append(ConversationEvent("permission_asked", turn_id=turn, message=detail, evidence=evidence))
        if self._policy == "ask":
            look.asks.append(opened.ask)
        else:
            self._reply(opened, _BY_POLICY[self._policy])
        return True

    def resolved(self, params: dict[str, Any], look: Look) -> None:
        """A question is no longer open: answered by us, or by the end of its turn."""
        identifier = params.get("requestId")
        opened = self._open.pop(identifier, None) if isinstance(identifier, int | str) else None
        if opened is not None:
            self._settled(opened, look)

    def turn_ended(self, thread: str, turn: str, look: Look) -> None:
        """Nothing of a turn that ended can be answered any more."""
        for identifier, opened in list(self._open.items()):
            if (opened.ask.thread, opened.ask.turn) == (thread, turn):
                del self._open[identifier]
                self._settled(opened, look)

    def answer(self, ask_id: str, answer: str) -> None:
        """Give an answer. Raises InvalidError, RefusedError when nothing waits for it."""
        if answer not in ANSWERS:
            raise InvalidError(f"unknown answer {answer!r}", hint="answer once, always or reject")
        opened = next((opened for opened in self._open.values() if opened.ask.id == ask_id), None)
        if opened is None or opened.answer is not None:
            raise RefusedError(
                f"Codex does not wait for an answer to {ask_id}", hint="it was answered, or its turn ended"
            )
        self._reply(opened, answer)

    def _reply(self, opened: _Open, answer: str) -> None:
        self._connection.respond(opened.request.id, reply(opened.request, answer))
        opened.answer = answer

    def _settled(self, opened: _Open, look: Look) -> None:
        ask = opened.ask
        evidence = {"id": ask.id}
        look.events.append(
            ConversationEvent("permission_settled", turn_id=ask.turn, status=opened.answer, evidence=evidence)
        )

    def _question(self, request: Request, look: Look) -> None:
        """Nobody answers Codex's own questions through this harness; left open they would hang the turn."""
        questions = request.params.get("questions")
        first = questions[0] if isinstance(questions, list) and questions else {}
        text = text_of(first, "question") if isinstance(first, dict) else None
        turn = text_of(request.params, "turnId")
        self._connection.respond(request.id, {"answers": {}})
        message = strip_terminal(text)[:500] if text else None
        look.events.append(
            ConversationEvent("status_changed", turn_id=turn, status="question_unanswered", message=message)
        )
