"""What a rollout tells of its conversation besides usage: facts, turns and how they ended, answers, rate limits."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

import msgspec

from turnlog.harness.codex.counting import UNNAMED, Counting
from turnlog.harness.codex.decode import PROVIDER, TITLE_WIDTH, Turn, completion
from turnlog.harness.codex.dig import inner, moment, text
from turnlog.harness.codex.prompts import parts, prompt_of, request, typed
from turnlog.harness.reading import Facts, Found, Noted
from turnlog.harness.salvage import instant
from turnlog.receipts import canonical
from turnlog.redact import strip_terminal

_MODEL_SAID: Final = (
    "message",
    "reasoning",
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "web_search_call",
)
_REVIEW: Final = ("entered_review_mode", "exited_review_mode", "EnteredReviewMode", "ExitedReviewMode")
_NOT_THE_MODEL: Final = ("user", "developer")
_TERMINAL: Final = ("task_complete", "turn_aborted")
_NO_END: Final = canonical({"why": "the file tells no end"})
_LONGEST: Final = 10**9
_LIMITS: Final = ("primary", "secondary", "credits", "plan_type")


class Past(msgspec.Struct):
    """What telling needs to go on. The members from ``turn`` on are of the turn that runs."""

    introduced: bool = False
    described: bool = False
    titled: bool = False
    model: str | None = None
    limits: int | None = None
    turn: str | None = None
    open: bool = False
    began_at: int | None = None
    said: bool = False
    items: int = 0
    steps: int = 0
    waited: int = 0
    ahead: bool = False
    compacted: bool = False
    reviewed: bool = False
    words: tuple[int, int] | None = None
    answer: str | None = None
    answered_at: int | None = None
    answer_offset: int = 0
    error: str | None = None


class Story:
    """Tells one file's story; each record is given after ``counting`` took it. A record costs O(its text)."""

    def __init__(self, past: Past, counting: Counting, path: str) -> None:
        self.past = past
        self._counting = counting
        self._alias = PurePath(path).name.removesuffix(".zst").removesuffix(".jsonl")
        self._limit: dict[str, Any] | None = None
        self.facts: list[Facts] = []
        self.found: list[Found] = []
        self.noted: list[Noted] = []

    def take(self, record: Mapping[str, Any], offset: int) -> None:
        """Take one record of the file, which begins at byte ``offset``."""
        kind, payload = record.get("type"), record.get("payload")
        memory = self._counting.memory
        if not isinstance(payload, dict):
            self._bare(record, offset)
            return
        if kind == "session_meta":
            self._meta(payload, record)
        elif not self.past.introduced:
            self._introduce(record)
        if memory.inherited or kind == "session_meta":
            return
        if memory.turn != self.past.turn:
            self._began(record, payload, offset)
        if kind == "response_item":
            self._item(payload, record, offset)
        elif kind == "event_msg":
            self._event(payload, record, offset)
        elif kind == "turn_context":
            self._context(payload)
        elif kind == "compacted":
            self._compacted(payload, record, offset)

    # --- the conversation

    def _meta(self, payload: Mapping[str, Any], record: Mapping[str, Any]) -> None:
        kin = self._counting.memory.kin
        if text(payload, "id") != kin.thread:
            if kin.parents and not kin.subagent and text(payload, "id") == kin.parents[0]:
                self.facts.append(Facts(session=kin.thread, parent=kin.parents[0], relation="fork"))
            return
        if self.past.described:
            return
        self.past.introduced = self.past.described = True
        parent = kin.spawner if kin.subagent else None
        parent = parent or (kin.parents[0] if kin.parents else None)
        git = inner(payload, "git")
        self.facts.append(
            Facts(
                session=kin.thread,
                at=kin.began or instant(record.get("timestamp")),
                cwd=text(payload, "cwd"),
                remote=text(git, "repository_url"),
                version=text(payload, "cli_version"),
                parent=parent,
                relation=None if parent is None else "subagent" if kin.subagent else "fork",
                aliases=(self._alias,),
            )
        )

    def _introduce(self, record: Mapping[str, Any]) -> None:
        """Make the best of a file whose first line is missing: the name tells whose it is."""
        self.past.introduced = True
        thread = self._counting.memory.kin.thread
        self.facts.append(Facts(session=thread, at=instant(record.get("timestamp")), aliases=(self._alias,)))

    def _bare(self, record: Mapping[str, Any], offset: int) -> None:
        """Take a record of 0.3x and before, which had neither times nor counts."""
        memory = self._counting.memory
        if not self.past.introduced and "record_type" not in record:
            if record.get("type") is None:
                self._meta(record, record)
            else:
                self._introduce(record)
        if memory.turn != self.past.turn:
            self._began(record, record, offset)
        if record.get("type") in _MODEL_SAID:
            if self.past.items == 0 and record.get("role") != "user":
                self._counting.note("usage_unknown", None, offset)
            self._item(record, record, offset)

    def _context(self, payload: Mapping[str, Any]) -> None:
        model = self._counting.memory.model
        if model is not None and model != self.past.model:
            self.past.model = model
            self.facts.append(Facts(session=self._counting.memory.kin.thread, model=model, cwd=text(payload, "cwd")))

    def _title(self, prompt: str | None) -> None:
        if prompt is None or self.past.titled or self._counting.memory.reviewing is not None:
            return
        title = strip_terminal(" ".join(request(prompt).split()))[:TITLE_WIDTH]
        if title:
            self.past.titled = True
            self.facts.append(Facts(session=self._counting.memory.kin.thread, title=title))

    # --- turns

    def _began(self, record: Mapping[str, Any], payload: Mapping[str, Any], offset: int) -> None:
        self._answered()
        self.unfinished()
        memory, past = self._counting.memory, self.past
        turn = memory.turn
        self.past = Past(past.introduced, past.described, past.titled, past.model, past.limits, turn)
        if turn is None or turn == UNNAMED:
            return
        named = payload.get("type") == "task_started"
        told = moment(payload.get("started_at")) if named else None
        at = told or instant(record.get("timestamp"))
        self.past.open, self.past.began_at = named, at
        self._receipt("started", {"provider": PROVIDER, "source": "file", "at": at}, at, offset, turn)
        kin = memory.kin
        above = text(inner(payload, "turn_attribution"), "parent_turn_id")
        if kin.subagent and above is not None:
            self.facts.append(Facts(session=kin.thread, parent_turn=above))

    def _event(self, payload: Mapping[str, Any], record: Mapping[str, Any], offset: int) -> None:
        kind = payload.get("type")
        if kind == "token_count":
            self._limits(payload.get("rate_limits"), record)
        elif kind in _REVIEW:
            self.past.reviewed = True
        elif kind in _TERMINAL:
            self._ended(payload, record, offset)
        elif kind == "user_message":
            self._title(typed(text(payload, "message") or ""))
        elif kind == "item_completed":
            item = inner(payload, "item")
            if item.get("type") in _REVIEW:
                self.past.reviewed = True
            elif item.get("type") == "UserMessage":
                self._title(typed("\n".join(parts(item.get("content")))))
        elif kind == "error":
            self.past.error = text(payload, "message") or "error"
        elif kind == "thread_rolled_back":
            self._rolled_back(payload, record, offset)
        elif kind == "thread_name_updated":
            name = text(payload, "thread_name")
            if name is not None:
                thread, at = self._counting.memory.kin.thread, instant(record.get("timestamp"))
                self.facts.append(Facts(session=thread, title=strip_terminal(name), title_rank=1, title_at=at))

    def _item(self, payload: Mapping[str, Any], record: Mapping[str, Any], offset: int) -> None:
        kind, role = payload.get("type"), payload.get("role")
        past, steps = self.past, self._counting.memory.steps
        if kind not in _MODEL_SAID:
            if isinstance(kind, str) and kind.endswith("_output"):
                past.waited = steps
            return
        if role == "user":
            self._title(prompt_of(payload))
        if role in _NOT_THE_MODEL:
            return
        past.ahead = steps > past.waited
        past.items += 1
        past.steps = past.waited = steps
        if kind != "message":
            return
        said = "\n".join(parts(payload.get("content")))
        past.words = len(said), _crc(said)
        if inner(record, "metadata").get("compaction_output") is not True:
            past.said = True
            if not self._counting.memory.named:
                past.answer, past.answered_at, past.answer_offset = said, instant(record.get("timestamp")), offset

    def _answered(self) -> None:
        """Give the last words of a turn that has no end of its own: the next one has begun."""
        past = self.past
        if past.answer and past.turn is not None:
            self._receipt("output", {"text": past.answer}, past.answered_at, past.answer_offset, past.turn)
        past.answer = None

    def unfinished(self) -> None:
        """Note a turn that began with a mark of its beginning, and of which no mark tells the end."""
        turn, thread = self.past.turn, self._counting.memory.kin.thread
        if self.past.open and turn is not None:
            self.noted.append(Noted(thread, f"unknown:{thread}:{turn}", _NO_END, self.past.began_at, turn))

    def _ended(self, payload: Mapping[str, Any], record: Mapping[str, Any], offset: int) -> None:
        past, memory = self.past, self._counting.memory
        turn = text(payload, "turn_id") or memory.turn
        if turn is None:
            return
        past.open = past.open and turn != past.turn
        at = moment(payload.get("completed_at")) or instant(record.get("timestamp"))
        aborted = payload.get("type") == "turn_aborted"
        last = text(payload, "last_agent_message")
        status, error = ("interrupted", None) if aborted else self._outcome(payload)
        times = {"startedAt": payload.get("started_at"), "completedAt": payload.get("completed_at")}
        raw = {"error": error, "durationMs": payload.get("duration_ms"), **times}
        body: dict[str, Any] = completion(Turn(turn, "completed", None, (), raw)) or {}
        body |= {"provider": PROVIDER, "source": "file", "status": status}
        if aborted:
            body["reason"] = text(payload, "reason")
            self._counting.note("interrupted", at, offset, turn=turn)
        elif past.turn == turn and past.items and not memory.steps and not past.reviewed:
            self._counting.note("usage_unknown", at, offset, turn=turn)
        if last is not None:
            self._receipt("output", {"text": last}, at, offset, turn)
        self._receipt("completed", body, at, offset, turn)

    def _outcome(self, payload: Mapping[str, Any]) -> tuple[str, Any]:
        """Return status and error of a turn that came to its end.

        Up to 0.14x a failed turn ends like a good one, only without last words; so does one that only compacts. Without
        a witness of either it is not known which of them it was.
        """
        error = payload.get("error")
        if error is not None:
            return "failed", error
        past = self.past
        if past.error is not None and text(payload, "last_agent_message") is None:
            return "failed", {"message": past.error}
        if self._counting.memory.exhausted and text(payload, "last_agent_message") is None:
            return "failed", {"message": "context window exceeded"}
        if text(payload, "last_agent_message") is not None or "started_at" in payload or past.said or past.compacted:
            return "completed", None
        return "unknown", None

    def _receipt(self, kind: str, payload: Mapping[str, Any], at: int | None, offset: int, turn: str) -> None:
        thread = self._counting.memory.kin.thread
        self.found.append(Found(thread, thread, turn, kind, canonical(payload), at, offset))

    # --- observations

    def _rolled_back(self, payload: Mapping[str, Any], record: Mapping[str, Any], offset: int) -> None:
        """Turns left the context; what they used stays spent."""
        evidence = {"provider": PROVIDER, "rolled_back": payload.get("num_turns"), "offset": offset}
        at = instant(record.get("timestamp"))
        thread = self._counting.memory.kin.thread
        self.noted.append(Noted(thread, f"rolled_back:{offset}", canonical(evidence), at))

    def _compacted(self, payload: Mapping[str, Any], record: Mapping[str, Any], offset: int) -> None:
        """Note a request to sum up that was not counted: no step behind the last thing the model said is its own.

        That thing's own step stands behind it, or (``ahead``: until 0.5x) before it; it may be the summary itself.
        """
        past, memory = self.past, self._counting.memory
        past.compacted = True
        message = text(payload, "message") or ""
        summed = past.words is not None and past.words[0] > 0 and _crc(message[-past.words[0] :]) == past.words[1]
        own = 1 if past.items and not past.ahead and not summed else 0
        recorded = memory.steps > past.steps + own or (summed and past.ahead)
        if not recorded and memory.told is None and memory.totals is not None:
            self._counting.note("compaction_unrecorded", instant(record.get("timestamp")), offset)

    def _limits(self, limits: Any, record: Mapping[str, Any]) -> None:
        if not isinstance(limits, dict) or limits == self._limit or all(limits.get(name) is None for name in _LIMITS):
            return
        at = instant(record.get("timestamp"))
        if at is None:
            return
        self._limit = limits
        windows = {name: _window(limits.get(name), at) for name in ("primary", "secondary")}
        told = {"plan": limits.get("plan_type"), "credits": limits.get("credits"), "limit": limits.get("limit_id")}
        evidence = {"provider": PROVIDER, **windows, **told}
        mark = _crc(repr(evidence))
        if mark == self.past.limits:
            return
        self.past.limits = mark
        kept = canonical(evidence | {"at": at})
        self.noted.append(Noted(self._counting.memory.kin.thread, f"limits:{at}", kept, at))


def _crc(said: str) -> int:
    return zlib.crc32(said.encode())


def _window(value: Any, at: int) -> dict[str, Any] | None:
    """Return a rate limit's window; older files tell when it ends in seconds from then, kept to the minute."""
    if not isinstance(value, dict):
        return None
    ends = value.get("resets_at")
    left = value.get("resets_in_seconds")
    if ends is None and isinstance(left, int | float) and 0 <= left < _LONGEST:
        ends = round((at / 1000 + left) / 60) * 60
    return {"used_percent": value.get("used_percent"), "window_minutes": value.get("window_minutes"), "resets_at": ends}
