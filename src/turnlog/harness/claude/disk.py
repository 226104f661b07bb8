"""One session's own files, read-only: its turns as Claude wrote them down (formats.md §1, providers.md §4).

A turn is a user line that somebody or something sent (``promptSource``; tool results, ``isMeta`` notes and interruption
marks are none) and everything up to the next one. One model call is written as a line per content block, each with the
same ``message.id`` and the whole usage. Subagents have files of their own in ``<session>/subagents``; their lines carry
the parent's session id, so their calls count in the turn that spawned them (``promptId``, else ``toolUseId``).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from turnlog.harness.claude.course import INTERRUPTED, Course, blocks, is_injected, is_prompt, made_itself, words
from turnlog.harness.claude.decode import SYNTHETIC, member, texts
from turnlog.wire.jsonl import JsonlDecoder, JsonlProblem

CHUNK: Final = 1 << 20


class Call(msgspec.Struct):
    """One model call. ``message`` is of the line with the most output; ``at`` is the first line's time."""

    message: dict[str, Any]
    at: Any
    request: str | None = None


class FileTurn(Course, kw_only=True):
    """One turn as the file tells it."""

    uuid: str
    by_itself: bool
    prompt: Any = None
    calls: dict[str, Call] = msgspec.field(default_factory=dict)
    first: str | None = None
    tools: set[str] = msgspec.field(default_factory=set)


class Session(msgspec.Struct):
    """What a session's files say. ``absorbed`` maps user lines to the turn that took them along."""

    turns: list[FileTurn] = []
    absorbed: dict[str, FileTurn] = {}
    cancelled: set[str] = set()
    problems: list[JsonlProblem] = []


def session_files(folder: Path, thread: str) -> list[Path]:
    """Return the files of a session in Claude's folder; more than one only if it was copied."""
    return sorted(folder.glob(f"projects/*/{thread}.jsonl"))


def config_folder(variables: Mapping[str, str], cwd: Path) -> Path:
    """Return Claude's own folder, for a Claude that runs in ``cwd``: it takes even an empty variable at its word."""
    named = variables.get("CLAUDE_CONFIG_DIR")
    return cwd / named if named is not None else Path(variables.get("HOME") or Path.home()) / ".claude"


def progress(folder: Path, thread: str) -> tuple[tuple[str, int], ...]:
    """Return the sizes of a session's files: they grow while something happens."""
    found = []
    for path in session_files(folder, thread):
        for each in (path, *path.with_suffix("").glob("subagents/**/*.jsonl")):
            try:
                found.append((str(each), each.stat().st_size))
            except OSError:
                continue
    return tuple(found)


def other_writers(folder: Path, thread: str) -> list[tuple[int, int]]:
    """Return (pid, unix ms) of programs that say they have this session open (2.1.332 keeps a file for each)."""
    found = []
    for path in sorted(folder.glob("sessions/*.json")):
        try:
            entry = orjson.loads(path.read_bytes())
        except (OSError, orjson.JSONDecodeError):
            continue
        if not isinstance(entry, dict) or entry.get("sessionId") != thread:
            continue
        pid, since = entry.get("pid"), entry.get("startedAt")
        if isinstance(pid, int) and isinstance(since, int) and pid != os.getpid():
            found.append((pid, since))
    return found


def read_session(path: Path, own: frozenset[str]) -> Session:
    """Read a session's file and those of its subagents. Raises OSError when the main file cannot be read."""
    session = Session()
    reader = _Reader(session, own)
    for line in _lines(path, session):
        reader.take(line)
    by_prompt = {turn.prompt: turn for turn in session.turns if turn.prompt is not None}
    by_tool = {call: turn for turn in session.turns for call in turn.tools}
    waiting = sorted(path.with_suffix("").glob("subagents/**/*.jsonl"))
    while waiting:
        left = [agent for agent in waiting if not _agent(agent, session, by_prompt, by_tool)]
        if len(left) == len(waiting):
            break
        waiting = left
    return session


def _lines(path: Path, session: Session) -> Iterator[dict[str, Any]]:
    decoder = JsonlDecoder()
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            for found in decoder.feed(data):
                if isinstance(found, JsonlProblem):
                    session.problems.append(found)
                elif isinstance(found.value, dict):
                    yield found.value
    for found in decoder.end():  # a line that is still being written is no problem
        if not isinstance(found, JsonlProblem) and isinstance(found.value, dict):
            yield found.value


def _agent(path: Path, session: Session, by_prompt: dict[Any, FileTurn], by_tool: dict[str, FileTurn]) -> bool:
    """Add a subagent's calls to the turn that spawned it; False when that is not known (yet)."""
    try:
        lines = list(_lines(path, session))
    except OSError:
        return True  # removed meanwhile
    meta: Any = None
    with contextlib.suppress(OSError, orjson.JSONDecodeError):
        meta = orjson.loads(path.with_suffix(".meta.json").read_bytes())
    prompt = next((line["promptId"] for line in lines if isinstance(line.get("promptId"), str)), None)
    turn = by_prompt.get(prompt)
    if turn is None and isinstance(meta, dict):
        turn = by_tool.get(str(meta.get("toolUseId")))
    if turn is None:
        return False
    known = {name for other in session.turns for name in other.calls}
    for line in lines:
        message = member(line, "message")
        if line.get("type") == "assistant" and message.get("model") != SYNTHETIC:
            if message.get("id") not in known:
                _count(turn, message, line)
            for block in blocks(message):
                if block.get("type") == "tool_use":
                    by_tool[str(block.get("id"))] = turn
    return True


class _Reader:
    """Sorts the lines of the main file into turns."""

    def __init__(self, session: Session, own: frozenset[str]) -> None:
        self._session = session
        self._own = own
        self._turn: FileTurn | None = None

    def take(self, line: dict[str, Any]) -> None:
        kind = line.get("type")
        if line.get("isSidechain"):
            return
        if kind == "user":
            self._user(line)
        elif kind == "assistant" and self._turn is not None:
            self._assistant(line, self._turn)
        elif kind == "attachment":
            self._attachment(member(line, "attachment"))
        elif kind == "queue-operation" and line.get("operation") == "remove":
            name = line.get("commandUuid")
            if isinstance(name, str) and line.get("reason") == "cleared_on_cancel":
                self._session.cancelled.add(name)
            elif isinstance(name, str) and line.get("reason") == "absorbed_mid_turn":
                self._absorbed(name)

    def _user(self, line: dict[str, Any]) -> None:
        message = member(line, "message")
        content = blocks(message)
        results = [block for block in content if block.get("type") == "tool_result"]
        text = words(message, content)
        name = line.get("uuid")
        if results:
            if self._turn is not None:
                self._turn.answered(results, line)
        elif text.startswith(INTERRUPTED):
            if self._turn is not None:
                self._turn.interrupted = True
        elif isinstance(name, str) and (name in self._own or is_prompt(line, text, content)):
            by_itself = name not in self._own and made_itself(line, text)
            self._turn = FileTurn(uuid=name, by_itself=by_itself, prompt=line.get("promptId"))
            self._session.turns.append(self._turn)
            for merged in texts(line.get("mergedSendUuids")):
                self._absorbed(merged)
        elif line.get("isMeta") and not is_injected(text) and self._turn is not None:
            self._turn.waits = True  # Claude told its model to go on

    def _assistant(self, line: dict[str, Any], turn: FileTurn) -> None:
        message = member(line, "message")
        content = blocks(message)
        if message.get("model") == SYNTHETIC:
            turn.failed(line, content)
            return
        name = _count(turn, message, line)
        turn.first = turn.first or name
        turn.said(name, line, message, content)
        turn.tools.update(str(block.get("id")) for block in content if block.get("type") == "tool_use")

    def _attachment(self, attachment: dict[str, Any]) -> None:
        if attachment.get("type") == "queued_command" and isinstance(attachment.get("source_uuid"), str):
            self._absorbed(attachment["source_uuid"])
        elif attachment.get("type") == "structured_output" and self._turn is not None:
            self._turn.structured(attachment)

    def _absorbed(self, name: str) -> None:
        if self._turn is not None and name != self._turn.uuid:
            self._session.absorbed.setdefault(name, self._turn)


def _count(turn: FileTurn, message: dict[str, Any], line: Mapping[str, Any]) -> str | None:
    """Keep a call's line if it tells the most output; the first line gives the time."""
    name, request = message.get("id"), line.get("requestId")
    if not isinstance(name, str) or not isinstance(message.get("usage"), dict):
        return name if isinstance(name, str) else None
    known = turn.calls.get(name)
    if known is None:
        known = turn.calls[name] = Call(message, line.get("timestamp"))
    elif _output(message) >= _output(known.message):
        known.message = message
    if known.request is None and isinstance(request, str) and request:
        known.request = request
    return name


def _output(message: Mapping[str, Any]) -> int:
    value = member(message, "usage").get("output_tokens")
    return value if isinstance(value, int) else -1
