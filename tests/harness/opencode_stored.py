"""Databases and folders of OpenCode's shape, made by hand, and what a reading of them adds up to."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec
import orjson

from turnlog.harness.opencode.reader import READER
from turnlog.harness.reading import Found, Reading, Source
from turnlog.model import Event, EventKind, Usage
from turnlog.usage.reduce import reduce_usage

Json = dict[str, Any]

TABLES = (
    "CREATE TABLE project (id text PRIMARY KEY, worktree text NOT NULL, vcs text)",
    (
        "CREATE TABLE session (id text PRIMARY KEY, project_id text, parent_id text, directory text, title text,"
        " version text, model text, time_created integer, time_updated integer)"
    ),
    (
        "CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL,"
        " time_created integer, time_updated integer, data text NOT NULL)"
    ),
    (
        "CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,"
        " time_created integer, time_updated integer, data text NOT NULL)"
    ),
    "CREATE TABLE credential (id text PRIMARY KEY, data text)",
    "CREATE INDEX message_session_idx ON message (session_id)",
    "CREATE INDEX part_message_idx ON part (message_id)",
    "CREATE INDEX part_session_idx ON part (session_id)",
)


class Db:
    """A database under a test's hand, as OpenCode would write it. ``text`` columns take bytes as they are."""

    def __init__(self, path: Path, *, wal: bool = False) -> None:
        self.path = path
        self.connection = apsw.Connection(str(path))
        if wal:
            self.connection.pragma("journal_mode", "wal")
        for sql in TABLES:
            self.connection.execute(sql)
        self.connection.execute("INSERT INTO project VALUES ('prj', '/r/app', 'git')")

    def session(
        self, name: str, created: int = 1000, *, parent: str | None = None, title: str = "t", **row: Any
    ) -> None:
        version, model = row.get("version", "1.18.33"), row.get("model")
        values = (name, "prj", parent, "/r/app", title, version, model, created, row.get("updated", created))
        self.connection.execute("INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

    def message(self, session: str, name: str, data: Json | bytes, updated: int | None = None) -> None:
        raw = data if isinstance(data, bytes) else orjson.dumps(data)
        created = data["time"]["created"] if isinstance(data, dict) else 1
        values = (name, session, created, updated or created, raw)
        self.connection.execute(
            "INSERT INTO message VALUES (?1, ?2, ?3, ?4, CAST(?5 AS TEXT))"
            " ON CONFLICT (id) DO UPDATE SET time_updated = ?4, data = CAST(?5 AS TEXT)",
            values,
        )

    def part(self, session: str, message: str, name: str, data: Json | bytes, at: int = 1000) -> None:
        raw = data if isinstance(data, bytes) else orjson.dumps(data)
        self.connection.execute(
            "INSERT INTO part VALUES (?1, ?2, ?3, ?4, ?4, CAST(?5 AS TEXT))"
            " ON CONFLICT (id) DO UPDATE SET time_updated = ?4, data = CAST(?5 AS TEXT)",
            (name, message, session, at, raw),
        )

    def turn(self, session: str, number: int, at: int, text: str = "hi", **answer: Any) -> None:
        """Store a prompt and one whole answer: ``msg_<number>a`` and ``msg_<number>b``."""
        user, reply = f"msg_{session}_{number}a", f"msg_{session}_{number}b"
        self.message(session, user, asked(at))
        self.part(session, user, f"prt_{user}", {"type": "text", "text": f"ask {number}"}, at)
        self.message(session, reply, answered(user, at + 10, **answer))
        self.part(session, reply, f"prt_{reply}", said(text), at + 20)

    def close(self) -> None:
        self.connection.close()


def asked(created: int) -> Json:
    return {"role": "user", "time": {"created": created}, "agent": "build"}


def counters(given: int = 100, out: int = 20, reasoning: int = 0, read: int = 0, **more: int) -> Json:
    return {"input": given, "output": out, "reasoning": reasoning, "cache": {"read": read, "write": 0}, **more}


def answered(
    parent: str | None, created: int, *, completed: int | None = -1, tokens: Json | None = None, **info: Any
) -> Json:
    time: Json = {"created": created}
    if completed is not None:
        time["completed"] = created + 50 if completed == -1 else completed
    head: Json = {"role": "assistant", "modelID": "model-a", "providerID": "mock", "cost": 0.01, "time": time}
    if parent is not None:
        head["parentID"] = parent
    if "error" not in info and completed is not None:
        info.setdefault("finish", "stop")
    return {**head, "tokens": counters() if tokens is None else tokens, **info}


def said(text: str) -> Json:
    return {"type": "text", "text": text, "time": {"start": 1, "end": 2}}


def tool(status: str = "completed", name: str = "bash", **state: Any) -> Json:
    return {
        "type": "tool",
        "tool": name,
        "callID": "c",
        "state": {"status": status, "input": {"command": "ls"}, **state},
    }


def source(path: Path) -> Source:
    return Source("opencode", str(path), "rows")


def lines(path: Path, cursor: bytes | None = None) -> list[tuple[bytes, bytes]]:
    with contextlib.closing(READER.rows(source(path))) as rows:
        return list(rows.lines(cursor))


def decoded(raws: Sequence[bytes]) -> Reading:
    decoder = READER.decoder(source(Path("/x")), None, lambda _: None)
    offset = 0
    for raw in raws:
        decoder.line(raw, offset)
        offset += len(raw) + 1
    decoder.end()
    return decoder.take()


def read(path: Path) -> Reading:
    return decoded([line for line, _ in lines(path)])


def kinds(reading: Reading, turn: str) -> list[str]:
    return sorted(found.kind for found in reading.found if found.turn == turn)


def payloads(reading: Reading, kind: str, turn: str | None = None) -> list[Any]:
    return [orjson.loads(each.payload) for each in reading.found if each.kind == kind and turn in {None, each.turn}]


def notes(reading: Reading) -> list[str]:
    return sorted({note.source for note in reading.noted})


def counted(*readings: Reading) -> dict[str, Usage]:
    """Return what each conversation used: receipts once, copies nowhere."""
    founds = list(_once(each for reading in readings for each in reading.found))
    owners: dict[str, tuple[int, str]] = {}
    for found in founds:
        if found.call is not None:
            sighting = (found.at or 0, found.session)
            owners[found.call] = min(owners.get(found.call, sighting), sighting)
    rows: dict[str, list[Event]] = defaultdict(list)
    for found in founds:
        if found.call is None or owners[found.call][1] == found.session:
            payload = orjson.loads(found.payload)
            rows[found.session].append(_event(found.session, found.kind, found.thread, found.turn, payload, found.at))
    for note in {(each.session, each.source, each.evidence) for reading in readings for each in reading.noted}:
        payload = {"source": note[1], "evidence": orjson.loads(note[2])}
        rows[note[0]].append(_event(note[0], "observed", None, None, payload, 0))
    return {name: reduce_usage(_numbered(events)).usage for name, events in rows.items()}


def everything(*readings: Reading) -> Json:
    """Return the sums over all conversations."""
    usages = counted(*readings).values()
    names = ("input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "streams")
    return {name: sum(getattr(usage, name) or 0 for usage in usages) for name in names}


def _once(founds: Iterator[Found]) -> Iterator[Found]:
    seen = set()
    for found in founds:
        key = (found.session, found.turn, found.kind, found.payload)
        if key not in seen:
            seen.add(key)
            yield found


def _event(session: str, kind: str, thread: str | None, turn: str | None, payload: Any, at: int | None) -> Event:
    return Event(
        seq=0,
        session_id=session,
        thread=thread,
        turn=turn,
        kind=EventKind(kind),
        provider_generation=None,
        exec_id=None,
        task_id=None,
        wave_id=None,
        observed_at=at or 0,
        payload=payload,
    )


def _numbered(events: Sequence[Event]) -> list[Event]:
    return [msgspec.structs.replace(event, seq=number) for number, event in enumerate(events, 1)]
