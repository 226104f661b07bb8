"""OpenCode's stored conversations as receipts, facts and text; the receipts are those that its server gives too.

A message is one model call: its own counters are taken, and neither the sums of its conversation nor those of its parts
beside them. An answer without an end is told of as it stands: what the model's provider did report counts, and that no
end is known is noted. A copied conversation (a fork) repeats its messages under new ids; everything else in them is
equal, and by that a call is known in every source. Its copy came to be with the copied conversation, so it has that
date and the original counts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from turnlog.errors import InvalidError
from turnlog.harness.opencode import decode
from turnlog.harness.opencode.database import Database
from turnlog.harness.opencode.decode import Message, TextPart, ToolPart, member
from turnlog.harness.opencode.passages import message_passages, part_passages
from turnlog.harness.opencode.rows import ShelfRows
from turnlog.harness.opencode.shapes import created, has_counters, info_of, instant
from turnlog.harness.opencode.shelf import Shelf
from turnlog.harness.opencode.sources import PROVIDER, Finder, data_folder, find, named_database
from turnlog.harness.opencode.storage import Export, Tree
from turnlog.harness.reading import Decoder, Facts, Find, Found, Noted, Passage, Reading, Rows, Source, Spoken, Trouble
from turnlog.receipts import Receipt, canonical, decode_repaired

NO_END: Final = canonical({"why": "the stored conversation tells no end"})
TITLE_LENGTH: Final = 80

_PLACEHOLDER: Final = re.compile(r"(?:New|Child) session - \d{4}-\d\d-\d\dT[\d:.]+Z")
_FORK: Final = re.compile(r".*\(fork #\d+\)", re.DOTALL)
_COUNTED: Final = (b'{"table":"message"', b'{"table":"turn"')
_LONG_DIGITS: Final = re.compile(rb"[0-9]{19}")
_STARTED: Final = canonical({})
_RUNNING: Final = ToolPart("", None, "", "running", None, None, None, None)


class OpenCodeReader:
    """Reads databases, storage folders and exports (see ``Reader``)."""

    provider = PROVIDER
    version = 1

    def __init__(self) -> None:
        self._finder = Finder()

    def discover(self, variables: Mapping[str, str], roots: Sequence[Path]) -> Iterator[Source]:
        self._finder = Finder()
        return find(self._finder, variables, roots)

    def unlisted(self) -> list[tuple[str, str]]:
        return self._finder.unlisted

    def usual(self, variables: Mapping[str, str]) -> list[Path]:
        named = named_database(variables)
        return [data_folder(variables), *([named] if named is not None else [])]

    def decoder(self, source: Source, state: bytes | None, find: Find) -> Decoder:
        return _Decoder()

    def rows(self, source: Source) -> Rows:
        path = Path(source.path)
        shelf: Shelf
        if path.is_dir():
            shelf = Tree(path)
        elif path.suffix == ".json":
            shelf = Export(path)
        else:
            shelf = Database(path)
        return ShelfRows(shelf)

    def passages(self, raw: bytes) -> tuple[Passage, ...]:
        try:
            line, _ = _line(raw)
        except InvalidError:
            return ()
        return _passages(line)


READER: Final = OpenCodeReader()


class _Decoder:
    """Lines tell all they need themselves, so nothing is remembered between them. O(bytes)."""

    def __init__(self) -> None:
        self._reading = Reading()

    def line(self, raw: bytes, offset: int) -> None:
        if not raw:
            return
        self._reading.lines += 1
        try:
            line, problems = _line(raw)
            table = line.get("table")
            session = _name(line, "id" if table == "session" else "session_id")
            for kind in problems:
                self._trouble(kind, raw, offset, session, usage=table == "message")
            if table == "damage" or "broken" in line:
                kind, usage = ("bad_json", table == "message")
                if table == "damage":
                    kind, usage = ("damaged", not line.get("parts"))
                self._trouble(kind, raw, offset, session, usage=usage, detail=line.get("detail"))
                return
            self._take(line, table, session, offset)
        except (InvalidError, TypeError, ValueError, LookupError, AttributeError) as error:
            self._trouble("unreadable", raw, offset, None, usage=True, detail=str(error))

    def end(self) -> None:
        """Nothing waits for an end: what is said of a whole turn has a line of its own."""

    def take(self) -> Reading:
        taken, self._reading = self._reading, Reading()
        return taken

    def state(self) -> bytes:
        return b""

    def _take(self, line: dict[str, Any], table: Any, session: str, offset: int) -> None:
        if not isinstance(line["data"], dict):
            raise TypeError("not an object")
        match table:
            case "session":
                self._reading.facts.append(_session(session, line))
            case "message":
                self._message(session, line, offset)
            case "part":
                self._part(session, line, offset)
            case "turn":
                self._turn(session, line, offset)

    def _message(self, session: str, line: dict[str, Any], offset: int) -> None:
        data = line["data"]
        info = info_of(data, line["id"], session, line.get("type"))
        turn = line.get("turn")
        at = created(info)
        passages = _passages(line)
        if passages:
            self._reading.spoken.append(Spoken(session, turn, at, offset, passages, key=f"{PROVIDER}:{line['id']}"))
        if line.get("began") is None and at is not None:
            self._reading.facts.append(_unannounced(session, info, at))
        if info["role"] != "assistant" or turn is None:
            return
        at = _latest(at, line.get("began"))
        if line.get("first"):
            self._reading.found.append(Found(session, session, turn, "started", _STARTED, at, offset))
        receipt = _usage(session, turn, info, line.get("version"))
        if receipt is not None:
            text = canonical(receipt.payload)
            self._reading.found.append(Found(session, session, turn, "usage", text, at, offset, call_of(info)))

    def _part(self, session: str, line: dict[str, Any], offset: int) -> None:
        turn, at = line.get("turn"), line.get("at")
        passages = _passages(line)
        if passages:
            self._reading.spoken.append(Spoken(session, turn, at, offset, passages, key=f"{PROVIDER}:{line['id']}"))
            if line.get("opens") and passages[0].role == "user":
                title = " ".join(passages[0].text.split())[:TITLE_LENGTH]
                self._reading.facts.append(Facts(session=session, title=title or None))
        child = line.get("child")
        if child is not None:
            self._reading.facts.append(Facts(session=child, parent=session, parent_turn=turn, relation="subagent"))

    def _turn(self, session: str, line: dict[str, Any], offset: int) -> None:
        turn, data = line["id"], line["data"]
        last, by = data.get("last"), data.get("by")
        if not last:
            self._note("absorbed", session, turn, canonical({"by": by}), data.get("asked"))
            return
        group = decode.read_group(turn, _messages(turn, data))
        at = _latest(instant(member(last, "time").get("completed")), line.get("began"))
        for receipt in decode.answer_receipts(session, group):
            if receipt is not None:
                text = canonical(receipt.payload)
                self._reading.found.append(Found(session, session, turn, receipt.kind, text, at, offset))
        if (model := _model(last, "modelID")) is not None:
            self._reading.facts.append(Facts(session=session, model=model))
        if group.completion is not None:
            return
        began = _latest(created(last), line.get("began"))
        if by is not None:
            self._note("superseded", session, turn, canonical({"by": by}), began)
            return
        if last.get("finish") == "unknown" and at is not None and not data.get("text") and not has_counters(last):
            evidence = canonical({"message_id": last.get("id"), "finish": "unknown"})
            self._note("empty", session, turn, evidence, began)
        self._note("unknown", session, turn, NO_END, began)

    def _note(self, word: str, session: str, turn: str, evidence: str, at: int | None) -> None:
        self._reading.noted.append(Noted(session, f"{word}:{session}:{turn}", evidence, at, turn))

    def _trouble(
        self, kind: str, raw: bytes, offset: int, session: str | None, *, usage: bool, detail: str | None = None
    ) -> None:
        self._reading.troubles.append(Trouble(kind, offset, len(raw), detail or "", session, usage))


def call_of(info: Mapping[str, Any]) -> str | None:
    """Return what a call is known by in every source: when it ran, its model and its counters.

    A call without counters says too little by that; there everything a copy would repeat must be equal.
    """
    time = member(info, "time")
    if instant(time.get("created")) is None:
        return None
    told: list[Any] = [time.get("created"), time.get("completed"), info.get("modelID"), info.get("tokens")]
    if not has_counters(info):
        told += [info.get(name) for name in ("mode", "agent", "path", "finish", "error", "cost")]
    return f"{PROVIDER}:{hashlib.sha256(canonical(told).encode()).hexdigest()[:32]}"


def _line(raw: bytes) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Decode a line; raises InvalidError. Numbers beyond 64 bits are kept as the live reading keeps them."""
    problems: tuple[str, ...] = ()
    try:
        if raw.startswith(_COUNTED) and _LONG_DIGITS.search(raw):
            line, problems = decode_repaired(raw)
        else:
            line = orjson.loads(raw)
    except orjson.JSONDecodeError:
        line, problems = decode_repaired(raw)
    if not isinstance(line, dict):
        raise InvalidError("not a line of this source")
    return line, (*problems, *([line["damaged"]] if "damaged" in line else []))


def _passages(line: Mapping[str, Any]) -> tuple[Passage, ...]:
    data = line.get("data")
    if isinstance(data, dict):
        if line.get("table") == "part":
            return part_passages(data, line.get("role"))
        if line.get("table") == "message":
            return message_passages(data, line.get("type"))
    return ()


def _name(line: Mapping[str, Any], member_: str) -> str:
    name = line[member_]
    if not isinstance(name, str):
        raise TypeError("an id is text")
    return name


def _session(session: str, line: Mapping[str, Any]) -> Facts:
    data = line["data"]
    title, parent, fork = _text(data, "title"), _text(data, "parentID"), _text(data, "forkSessionID")
    copied = parent is None and (fork is not None or (title is not None and _FORK.fullmatch(title) is not None))
    return Facts(
        session=session,
        at=created(data),
        cwd=_text(data, "directory") or _text(data, "path"),
        root=line.get("worktree") if line.get("worktree") != "/" else None,
        model=_model(member(data, "model"), "id"),
        version=_text(data, "version"),
        title=None if title is None or _PLACEHOLDER.fullmatch(title) else title,
        title_rank=1,
        title_at=instant(member(data, "time").get("updated")),
        parent=parent or fork,
        relation="fork" if copied else "subagent" if parent is not None else None,
    )


def _model(holder: Mapping[str, Any], name: str) -> str | None:
    """Return a model as OpenCode wants it named: with whoever provides it."""
    provider, model = _text(holder, "providerID"), _text(holder, name)
    return f"{provider}/{model}" if provider is not None and model is not None else model


def _unannounced(session: str, info: Mapping[str, Any], at: int) -> Facts:
    path = member(info, "path")
    return Facts(session=session, at=at, cwd=_text(path, "cwd"), root=_text(path, "root"))


def _usage(session: str, turn: str, info: dict[str, Any], version: str | None) -> Receipt | None:
    """Return the receipt that a live reading gives; also of a call without an end, as far as it was reported."""
    completed = member(info, "time").get("completed")
    if completed is None and has_counters(info):
        completed = 0  # it has no end, but what it has is its provider's word
    message = Message(info["id"], "assistant", turn, 0, completed, info)
    return decode.usage_receipt(session, turn, message, version)


def _messages(turn: str, data: Mapping[str, Any]) -> list[Message]:
    """Return the first and the last message of a turn, as far as its line tells of them."""
    last: dict[str, Any] = data["last"]
    text = data.get("text")
    first = Message("", "assistant", turn, 0, None, {"time": {"created": data.get("first")}})
    tools = (_RUNNING,) if data.get("open") else ()
    texts = (TextPart("", "text", text, 0),) if isinstance(text, str) else ()
    completed = member(last, "time").get("completed")
    return [first, Message(str(last.get("id")), "assistant", turn, 0, completed, last, texts, tools)]


def _latest(*instants: int | None) -> int | None:
    return max((each for each in instants if each is not None), default=None)


def _text(holder: Mapping[str, Any], name: str) -> str | None:
    value = holder.get(name)
    return value if isinstance(value, str) and value else None
