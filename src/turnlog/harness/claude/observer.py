"""From Claude's lines to receipts, notes and events: one process's memory. Pure, no I/O.

Which turn a line belongs to is told, never counted (semantics 6.4). 2.1.332 names our user lines when a turn's request
leaves (``system/status``) and in its ``result``. 2.1.197 only echoes them: the first echo after a ``system/init`` is
the turn, echoes before it (merged into one turn) and after it (taken into the running turn) are absorbed. A turn
nobody asked for has no echo; it gets receipts under an id of its own, without start. A ``result`` that belongs to no
turn is kept as a note.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from turnlog.harness import Batch, ConversationEvent, Note
from turnlog.harness.claude import decode
from turnlog.harness.claude.asks import Asks
from turnlog.harness.claude.decode import PROVIDER, SYNTHETIC, Totals, member, one_line, texts
from turnlog.harness.claude.events import Narrator
from turnlog.harness.claude.gathered import Gathered
from turnlog.harness.claude.strange import Strange
from turnlog.receipts import Receipt
from turnlog.redact import sanitise_value
from turnlog.wire.jsonl import JsonlProblem

IGNORED: Final = {
    *("system/hook_started", "system/hook_progress", "system/hook_response", "system/compact_boundary"),
    *("system/microcompact_boundary", "system/session_state_changed", "system/files_persisted", "system/task_started"),
    *("system/task_progress", "system/task_updated", "system/task_notification", "system/local_command_output"),
    *("system/thinking_tokens", "system/commands_changed", "system/memory_saved", "system/turn_duration"),
    *("system/stop_hook_summary", "system/informational", "tool_progress", "tool_use_summary", "auth_status"),
    *("keep_alive", "prompt_suggestion", "control_response"),
}


class Turn:
    """The turn that runs now. ``id`` is None until Claude tells whose it is; ``merged`` came before it was told."""

    def __init__(self, merged: list[str]) -> None:
        self.id: str | None = None
        self.first_call: str | None = None
        self.merged = merged


class Observer:
    """Remembers what was said about one conversation by one process.

    ``own``: requests that may get a start. ``narrated``: those of them sent by this harness object; only they get
    boundary and content events (H8).
    """

    def __init__(self, thread: str, policy: str, own: Collection[str] = ()) -> None:
        self.thread = thread
        self.own = set(own)
        self.narrated: set[str] = set()
        self.seen: set[str] = set()
        """Own requests that Claude named: certainly delivered."""

        self.started: set[str] = set()
        self.completed: set[str] = set()
        self.settled: dict[str, str] = {}
        self.dropped: set[str] = set()
        self.background: set[str] = set()
        self.turn: Turn | None = None
        self.last_line: str | None = None
        self.replies: list[dict[str, Any]] = []
        """Lines to write to Claude."""

        self.asks = Asks(thread, policy)
        self.narrator = Narrator()
        self._interrupting = False
        self._waiting: list[str] = []
        self._seen = Gathered()
        self._known: dict[str, Callable[[Mapping[str, Any]], object]] = {
            "stream_event": self._piece,
            "assistant": self._assistant,
            "user": self._user,
            "result": self._result,
            "system/init": self._begin,
            "system/status": self._status,
            "system/api_retry": self._retry,
            "system/background_tasks_changed": self._background,
            "command_lifecycle": self._lifecycle,
            "control_request": self._asked,
            "control_cancel_request": lambda line: self.answered(str(line.get("request_id"))),
            "rate_limit_event": self._rate_limit,
        }
        self.use("", fresh=True)

    def use(self, process: str, *, fresh: bool) -> None:
        """Go on with another process. ``fresh``: it began the conversation, so its totals begin at zero."""
        self._totals = Totals(fresh=fresh)
        self._strange = Strange(self.thread, process)
        self._seen.events += self.asks.withdrawn()
        self.turn = None
        self.background.clear()
        self._waiting = []

    def expect(self, request: str) -> None:
        """Count a request as ours before it is written."""
        self.own.add(request)
        self.narrated.add(request)

    def forget(self, request: str) -> None:
        """A request was certainly not taken."""
        self.own.discard(request)
        self.narrated.discard(request)

    def open_requests(self) -> list[str]:
        """Return requests sent by this object that have no end and were not settled or dropped."""
        return sorted(self.narrated - self.completed - self.settled.keys() - self.dropped)

    def working(self) -> bool:
        """Tell whether Claude does something for this conversation: a turn, a waiting line, a background task."""
        return self.turn is not None or bool(self.background) or bool(self.open_requests())

    def interrupting(self) -> None:
        """An interrupt of ours is on its way; the next result may be its doing."""
        self._interrupting = True

    def withdrawn(self, requests: Iterable[str]) -> None:
        """Claude dropped lines that waited: nothing will come of them."""
        for request in requests:
            ended = request in self.completed or request in self.settled or request == self._turn_id()
            if request not in self.own or ended or request in self.dropped:
                continue
            self.dropped.add(request)
            self._seen.stalled.append(request)
            source = f"cancelled:{self.thread}:{request}"
            self._seen.notes.append(Note(source, self.thread, request, {"provider": PROVIDER, "state": "cancelled"}))

    def drain(self) -> Batch:
        """Return what was seen since the last call."""
        seen, self._seen = self._seen, Gathered()
        return seen.batch()

    @property
    def pending(self) -> int:
        """How many things ``drain`` would return."""
        return self._seen.size()

    # --- lines ------------------------------------------------------------------------------------------------------

    def problem(self, problem: JsonlProblem) -> None:
        """Take a line that could not be read."""
        self._note(self._strange.problem(problem, self._turn_id()))

    def take(self, line: Any) -> None:
        """Take one line of stdout."""
        kind = line.get("type") if isinstance(line, dict) else None
        subtype = line.get("subtype") if kind == "system" else None
        self.last_line = name = f"{kind}/{subtype}" if subtype else str(kind)
        known = self._known.get(name)
        if known is not None:
            known(line)
        elif name not in IGNORED:
            self._note(self._strange.value(line, self._turn_id()))

    def answered(self, request: str) -> None:
        """Claude does not wait for an answer any more: it echoed ours, or withdrew the question."""
        self._seen.events += self.asks.settled(request)

    def _piece(self, line: Mapping[str, Any]) -> None:
        if not line.get("parent_tool_use_id") and (turn := self._narrated_turn()) is not None:
            self._seen.events += self.narrator.piece(turn, member(line, "event"))

    def _background(self, line: Mapping[str, Any]) -> None:
        tasks = line.get("tasks")
        listed = tasks if isinstance(tasks, list) else []
        self.background = {str(task.get("task_id")) for task in listed if isinstance(task, dict)}

    def _begin(self, _line: Mapping[str, Any] | None = None) -> Turn:
        self.turn = Turn(self._waiting)
        self._waiting = []
        return self.turn

    def _assistant(self, line: Mapping[str, Any]) -> None:
        if line.get("parent_tool_use_id"):
            return  # a subagent's own words
        message = member(line, "message")
        if self.turn is not None and self.turn.first_call is None and message.get("model") != SYNTHETIC:
            name = message.get("id")
            self.turn.first_call = name if isinstance(name, str) else None
        if (turn := self._narrated_turn()) is not None:
            self._seen.events += self.narrator.blocks(turn, line)

    def _user(self, line: Mapping[str, Any]) -> None:
        name = line.get("uuid")
        if line.get("isReplay"):
            if isinstance(name, str) and name in self.own:
                self._echo(name)
            return
        if line.get("parent_tool_use_id"):
            return
        self._seen.events += self.narrator.results(line)
        content = member(line, "message").get("content")
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_result":
                self._seen.events += self.asks.tool_ended(block.get("tool_use_id"))

    def _echo(self, request: str) -> None:
        self.seen.add(request)
        if self.turn is None:
            self._waiting.append(request)
        elif self.turn.id is None:
            self._belongs(self.turn, request)
        elif request != self.turn.id:
            self._absorb(request, self.turn.id)

    def _status(self, line: Mapping[str, Any]) -> None:
        named = texts(line.get("user_message_uuids"))
        self.seen.update(self.own.intersection(named))
        if named:
            turn = self.turn or self._begin()
            if turn.id is not None and turn.id not in named:
                turn = self._begin()  # its init was not told
            if turn.id is None:
                self._belongs(turn, named[-1])
            for other in named:
                self._absorb(other, turn.id or "")
        if line.get("status") == "compacting" and (current := self._narrated_turn()) is not None:
            self._seen.events.append(ConversationEvent("status_changed", turn_id=current, status="compacting"))

    def _belongs(self, turn: Turn, request: str) -> None:
        turn.id = request
        self._start(request)
        merged, turn.merged = turn.merged, []
        for other in merged:
            self._absorb(other, request)

    def _lifecycle(self, line: Mapping[str, Any]) -> None:
        request = line.get("command_uuid")
        if not isinstance(request, str) or request not in self.own:
            return
        self.seen.add(request)
        if line.get("state") == "cancelled":
            self.withdrawn([request])

    def _retry(self, line: Mapping[str, Any]) -> None:
        words = [str(line[name]) for name in ("error_status", "error") if line.get(name) is not None]
        counts = f"attempt {line.get('attempt')} of {line.get('max_retries')}"
        text = one_line(f"{' '.join(words)}: {counts}" if words else counts)
        self._seen.events.append(
            ConversationEvent("status_changed", self._narrated_turn(), status="retry", message=text)
        )

    def _asked(self, line: Mapping[str, Any]) -> None:
        name, request = str(line.get("request_id")), member(line, "request")
        if request.get("subtype") != "can_use_tool":
            # Unanswered, Claude would wait for ever.
            refusal = {"subtype": "error", "request_id": name, "error": "not supported by turnlog"}
            self.replies.append({"type": "control_response", "response": refusal})
            self._note(self._strange.value({"type": "control_request", **request}, self._turn_id()))
            return
        ask, event = self.asks.asked(name, request, self._turn_id())
        self._seen.events.append(event)
        reply = self.asks.by_policy(name)
        if reply is None:
            self._seen.asks.append(ask)
        else:
            self.replies.append(reply)

    def _rate_limit(self, line: Mapping[str, Any]) -> None:
        info = member(line, "rate_limit_info")
        if info.get("status") == "rejected":
            turn, evidence = self._narrated_turn(), sanitise_value(info)
            event = ConversationEvent("error", turn, code="provider_rate_limited", evidence=evidence)
            self._seen.events.append(event)

    # --- the end of a turn ------------------------------------------------------------------------------------------

    def _result(self, line: Mapping[str, Any]) -> None:
        turn, self.turn = self.turn, None
        model_usage = self._totals.take(line)
        asked, self._interrupting = self._interrupting, False
        request, named = self._request_of(line, turn)
        self.seen.update(self.own.intersection(named))
        status = decode.status_of(line, asked=asked)
        name = decode.result_id(line)
        if request is None:
            kept = {"status": status, "usage": decode.usage_payload(line, status, model_usage)}
            evidence = {**decode.completion_payload(line, status), **kept, "session_id": line.get("session_id")}
            self._seen.notes.append(Note(f"unmatched:{self.thread}:{name}", self.thread, None, evidence))
            return
        self._start(request)
        usage = Receipt(self.thread, request, "usage", decode.usage_payload(line, status, model_usage))
        if request in self.completed:
            # A turn has one end; what a second result counted is counted.
            self._seen.receipts.append(usage)
            evidence = decode.completion_payload(line, status)
            self._seen.notes.append(Note(f"again:{self.thread}:{name}", self.thread, request, evidence))
        else:
            output = decode.output_payload(line, status)
            if output is not None:
                self._seen.receipts.append(Receipt(self.thread, request, "output", output))
            completion = Receipt(self.thread, request, "completed", decode.completion_payload(line, status))
            self._seen.receipts += [usage, completion]
            self._tell_end(request, line, status)
        self.completed.add(request)
        for other in (*named, *(turn.merged if turn else ())):
            self._absorb(other, request)
        self.narrator.forget(request)

    def _request_of(self, line: Mapping[str, Any], turn: Turn | None) -> tuple[str | None, list[str]]:
        """Return the turn a result ends, by what it answers; None when nothing tells."""
        main, named = decode.answers(line)
        if line.get("session_id") not in {None, self.thread}:
            return None, named
        if main is not None:
            return main, named
        if turn is None:
            return None, named
        if turn.id is not None and not decode.made_by_itself(line):
            return turn.id, named
        return decode.self_turn(turn.first_call or decode.result_id(line)), named

    def _start(self, request: str) -> None:
        if request in self.own and request not in self.started:
            self.started.add(request)
            self._seen.receipts.append(Receipt(self.thread, request, "started", {}))
            if request in self.narrated:
                self._seen.events.append(ConversationEvent("turn_started", turn_id=request))

    def _absorb(self, request: str, turn: str) -> None:
        """Note that a request got no turn of its own: another turn took it along (D19)."""
        if request == turn or request not in self.own or request in self.completed or request in self.settled:
            return
        self.seen.add(request)
        self.settled[request] = turn
        self._seen.settled.append((request, turn))
        self._seen.notes.append(Note(f"absorbed:{self.thread}:{request}", self.thread, request, {"by": turn}))

    def _tell_end(self, request: str, line: Mapping[str, Any], status: str) -> None:
        if request not in self.narrated:
            return
        words = decode.error_words(line, status)
        if words is not None:
            words = decode.with_hint(words)
            self._seen.events.append(ConversationEvent("error", turn_id=request, code="claude_error", message=words))
        self._seen.events.append(ConversationEvent("turn_completed", turn_id=request, status=status))

    def _turn_id(self) -> str | None:
        return self.turn.id if self.turn is not None else None

    def _narrated_turn(self) -> str | None:
        turn = self._turn_id()
        return turn if turn in self.narrated else None

    def _note(self, note: Note | None) -> None:
        if note is not None:
            self._seen.notes.append(note)
