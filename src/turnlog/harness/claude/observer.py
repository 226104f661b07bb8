"""From Claude's lines to receipts, notes and events. Pure, no I/O.

A turn nobody asked for (a background task reported) gets receipts under an id of its own, without start. A ``result``
that belongs to no turn is kept as a note.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from turnlog.harness import Batch, ConversationEvent, Note
from turnlog.harness.claude import decode
from turnlog.harness.claude.asks import Asks
from turnlog.harness.claude.background import Background
from turnlog.harness.claude.decode import SYNTHETIC, Totals, member, one_line, texts
from turnlog.harness.claude.events import Narrator
from turnlog.harness.claude.gathered import Gathered
from turnlog.harness.claude.strange import Strange
from turnlog.harness.claude.turns import Turn, Turns
from turnlog.receipts import Receipt
from turnlog.redact import sanitise_value
from turnlog.wire.jsonl import JsonlProblem

IGNORED: Final = {
    *("system/hook_started", "system/hook_progress", "system/hook_response", "system/compact_boundary"),
    *("system/microcompact_boundary", "system/session_state_changed", "system/files_persisted", "system/task_started"),
    *("system/task_progress", "system/task_updated", "system/task_notification", "system/local_command_output"),
    *("system/thinking", "system/thinking_tokens", "system/commands_changed", "system/memory_saved"),
    *("system/turn_duration", "system/stop_hook_summary", "system/informational", "system/notification"),
    *("system/session_title_changed", "system/session_metadata", "system/shell_cwd", "system/vcs_state_changed"),
    *("system/task_list_statuses", "system/ui_status", "system/file_snapshot", "system/post_turn_summary"),
    *("tool_progress", "tool_use_summary", "thinking_progress", "auth_status", "keep_alive", "prompt_suggestion"),
}
"""Lines without evidence. Other unknown ones are noted."""


class Observer:
    """Turns the lines of one conversation's processes into batches."""

    def __init__(self, thread: str, policy: str, own: Collection[str] = ()) -> None:
        self.thread = thread
        self.turns = Turns(thread, own)
        self.asks = Asks(thread, policy)
        self.narrator = Narrator()
        self.background = Background()
        self.last_line: str | None = None
        self.replies: list[dict[str, Any]] = []
        """Lines to write to Claude."""

        self._interrupting = False
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
        self.turns.forget_process()
        self.background.forget()

    def expect(self, request: str) -> None:
        """Count a request as ours before it is written."""
        self.turns.own.add(request)
        self.turns.narrated.add(request)

    def forget(self, request: str) -> None:
        """A request was certainly not taken."""
        self.turns.own.discard(request)
        self.turns.narrated.discard(request)

    def working(self) -> bool:
        """Tell whether Claude does something for this conversation: a turn, a waiting line, a background task."""
        return self.turns.current is not None or self.background.runs() or bool(self.turns.open_requests())

    def interrupting(self) -> None:
        """An interrupt of ours is on its way; the next result may be its doing."""
        self._interrupting = True

    def drain(self) -> Batch:
        """Return what was seen since the last call."""
        seen, self.turns.seen = self.turns.seen, Gathered()
        return seen.batch()

    @property
    def pending(self) -> int:
        """How many things ``drain`` would return."""
        return self._seen.size()

    @property
    def _seen(self) -> Gathered:
        return self.turns.seen

    # --- lines ------------------------------------------------------------------------------------------------------

    def problem(self, problem: JsonlProblem) -> None:
        """Take a line that could not be read."""
        self._note(self._strange.problem(problem, self.turns.id))

    def take(self, line: Any) -> None:
        """Take one line of stdout."""
        kind = line.get("type") if isinstance(line, dict) else None
        subtype = line.get("subtype") if kind == "system" else None
        self.last_line = name = f"{kind}/{subtype}" if subtype else str(kind)
        known = self._known.get(name)
        if known is not None:
            known(line)
        elif name not in IGNORED:
            self._note(self._strange.value(line, self.turns.id))

    def answered(self, request: str) -> None:
        """Claude does not wait for an answer any more: it echoed ours, or withdrew the question."""
        self._seen.events += self.asks.settled(request)

    def _begin(self, _: Mapping[str, Any]) -> None:
        self.turns.begin()
        self.background.begun()

    def _piece(self, line: Mapping[str, Any]) -> None:
        if not line.get("parent_tool_use_id") and (turn := self.turns.shown()) is not None:
            self._seen.events += self.narrator.piece(turn, member(line, "event"))

    def _assistant(self, line: Mapping[str, Any]) -> None:
        if line.get("parent_tool_use_id"):
            return  # a subagent's own words
        message = member(line, "message")
        current = self.turns.current
        if current is not None and current.first_call is None and message.get("model") != SYNTHETIC:
            name = message.get("id")
            current.first_call = name if isinstance(name, str) else None
        if (turn := self.turns.shown()) is not None:
            self._seen.events += self.narrator.blocks(turn, line)

    def _user(self, line: Mapping[str, Any]) -> None:
        name = line.get("uuid")
        if line.get("isReplay"):
            if isinstance(name, str) and name in self.turns.own:
                self.turns.echoed(name)
            return
        if line.get("parent_tool_use_id"):
            return
        self._seen.events += self.narrator.results(line)
        content = member(line, "message").get("content")
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_result":
                self._seen.events += self.asks.tool_ended(block.get("tool_use_id"))

    def _status(self, line: Mapping[str, Any]) -> None:
        named = texts(line.get("user_message_uuids"))
        if named:
            self.turns.requested(named)
        if line.get("status") == "compacting":
            self._seen.events.append(ConversationEvent("status_changed", self.turns.shown(), status="compacting"))

    def _lifecycle(self, line: Mapping[str, Any]) -> None:
        request = line.get("command_uuid")
        if isinstance(request, str) and request in self.turns.own:
            self.turns.named.add(request)
            if line.get("state") == "cancelled":
                self.turns.withdrawn([request])

    def _background(self, line: Mapping[str, Any]) -> None:
        tasks = line.get("tasks")
        listed = tasks if isinstance(tasks, list) else []
        self.background.listed({str(task.get("task_id")) for task in listed if isinstance(task, dict)})

    def _retry(self, line: Mapping[str, Any]) -> None:
        words = [str(line[name]) for name in ("error_status", "error") if line.get(name) is not None]
        counts = f"attempt {line.get('attempt')} of {line.get('max_retries')}"
        text = one_line(f"{' '.join(words)}: {counts}" if words else counts)
        self._seen.events.append(ConversationEvent("status_changed", self.turns.shown(), status="retry", message=text))

    def _rate_limit(self, line: Mapping[str, Any]) -> None:
        info = member(line, "rate_limit_info")
        if info.get("status") == "rejected":
            evidence = sanitise_value(info)
            event = ConversationEvent("error", self.turns.shown(), code="provider_rate_limited", evidence=evidence)
            self._seen.events.append(event)

    def _asked(self, line: Mapping[str, Any]) -> None:
        name, request = str(line.get("request_id")), member(line, "request")
        if request.get("subtype") != "can_use_tool":
            # Unanswered, Claude would wait for ever.
            refusal = {"subtype": "error", "request_id": name, "error": "not supported by turnlog"}
            self.replies.append({"type": "control_response", "response": refusal})
            self._note(self._strange.value({"type": "control_request", **request}, self.turns.id))
            return
        ask, event = self.asks.asked(name, request, self.turns.id)
        self._seen.events.append(event)
        reply = self.asks.by_policy(name)
        if reply is None:
            self._seen.asks.append(ask)
        else:
            self.replies.append(reply)

    # --- the end of a turn ------------------------------------------------------------------------------------------

    def _result(self, line: Mapping[str, Any]) -> None:
        turn = self.turns.end()
        self.background.ended()
        asked, self._interrupting = self._interrupting, False
        status = decode.status_of(line, asked=asked)
        counted = decode.usage_payload(line, status, self._totals.take(line))
        end = decode.completion_payload(line, status)
        name = decode.result_id(line)
        request, named = _request_of(line, turn, self.thread)
        if request is None:
            evidence = {**end, "usage": counted, "session_id": line.get("session_id")}
            self._note(Note(f"unmatched:{self.thread}:{name}", self.thread, None, evidence))
            return
        self.turns.named.update(self.turns.own.intersection(named))
        self.turns.start(request)
        usage = Receipt(self.thread, request, "usage", counted)
        if request in self.turns.completed:
            # A turn has one end; what a second result counted is counted.
            self._seen.receipts.append(usage)
            self._note(Note(f"again:{self.thread}:{name}", self.thread, request, end))
        else:
            output = decode.output_payload(line, status)
            if output is not None:
                self._seen.receipts.append(Receipt(self.thread, request, "output", output))
            self._seen.receipts += [usage, Receipt(self.thread, request, "completed", end)]
            self._tell_end(request, end)
        self.turns.completed.add(request)
        self.turns.absorb([*named, *(turn.merged if turn else ())], request)
        self.narrator.forget(request)

    def _tell_end(self, request: str, end: Mapping[str, Any]) -> None:
        if request not in self.turns.narrated:
            return
        if end["error"] is not None:
            words = decode.with_hint(end["error"])
            self._seen.events.append(ConversationEvent("error", request, code="claude_error", message=words))
        self._seen.events.append(ConversationEvent("turn_completed", request, status=end["status"]))

    def _note(self, note: Note | None) -> None:
        if note is not None:
            self._seen.notes.append(note)


def _request_of(line: Mapping[str, Any], turn: Turn | None, thread: str) -> tuple[str | None, list[str]]:
    """Return the turn a result ends, by what it answers, and the user lines in it; None when nothing tells."""
    main, named = decode.answers(line)
    if line.get("session_id") not in {None, thread}:
        return None, named
    if main is not None:
        return main, named
    if turn is None:
        return None, named
    if turn.id is not None and not decode.made_by_itself(line):
        return turn.id, named
    return decode.self_turn(turn.first_call or decode.result_id(line)), named
