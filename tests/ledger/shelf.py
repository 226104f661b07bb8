"""Conversations with text, put into a real ledger row by row: sources, archive, passages, words."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

import turnlog
from turnlog.archive import compress, cut
from turnlog.harness.reading import ROLES, Passage, Role
from turnlog.ledger import Store, open_store

BEGIN = 1_770_000_000_000
Line = tuple[Role, str] | list[tuple[Role, str]]


def read(provider: str, raw: bytes) -> tuple[Passage, ...]:
    """Return the passages of a line of the shelf's own format."""
    value: list[dict[str, Any]] = json.loads(raw)
    return tuple(Passage(each["role"], each["text"], each.get("name")) for each in value)


class Shelf:
    """A ledger file and a pen. Lines are (role, text), or several of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        self.store: Store = open_store(self.url)
        self._sizes: dict[int, int] = {}

    def conversation(
        self, native: str, *, provider: str = "codex", cwd: str = "/w/app", repo: str | None = None, **facts: Any
    ) -> str:
        """Make a conversation; return its session id."""
        session = f"{provider}:{native}"
        with turnlog.open_ledger(self.url) as ledger:
            key = uuid.uuid5(uuid.NAMESPACE_URL, session).hex
            ledger.create_session(
                id=session, artifact_key=key, title=native, cwd=cwd, repo=repo, provider=provider, created_at=BEGIN
            )
        names = {"session_id": session, "provider": provider, "native_id": native, **facts}
        marks = ", ".join("?" for _ in names)
        self.sql(f"INSERT INTO native_sessions ({', '.join(names)}) VALUES ({marks})", *names.values())
        return session

    def source(self, path: str, *, provider: str = "codex", archived: bool = True) -> int:
        """Make a source; return its id."""
        values = (provider, path, "jsonl", int(archived), 0, 0)
        rows = self.sql(
            "INSERT INTO sources (provider, path, kind, archived, first_read_at, read_at) VALUES (?, ?, ?, ?, ?, ?)"
            " RETURNING id",
            *values,
        )
        return int(rows[0][0])

    def write(
        self,
        session: str,
        source: int,
        lines: Sequence[Line],
        *,
        at: int | None = BEGIN,
        turn: str | None = "t1",
        archive: bool = True,
    ) -> None:
        """Append lines of one conversation to a source, a second between them; its bytes begin a new piece."""
        rows = self.sql("SELECT id FROM native_sessions WHERE session_id = ?", session)
        native = rows[0][0]
        self.sql("INSERT OR IGNORE INTO session_sources VALUES (?, ?)", session, source)
        start = self._sizes.get(source, 0)
        block = bytearray()
        for number, line in enumerate(lines):
            passages = line if isinstance(line, list) else [line]
            offset = start + len(block)
            block += json.dumps([{"role": role, "text": text} for role, text in passages]).encode() + b"\n"
            for part, (role, text) in enumerate(passages):
                when = None if at is None else at + 1000 * number
                ids = self.sql(
                    "INSERT INTO passages (native, turn, role, at, source_id, offset, part)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id",
                    *(native, turn, ROLES.index(role), when, source, offset, part),
                )
                self.sql("INSERT INTO passage_words (rowid, text) VALUES (?, ?)", ids[0][0], text)
        if archive:
            for place, piece in cut(bytes(block), start):
                self.sql("INSERT INTO archive VALUES (?, ?, ?, ?)", source, place, len(piece), compress(piece))
        self._sizes[source] = start + len(block)

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement as somebody with a pen would."""
        connection = apsw.Connection(str(self.path))
        try:
            return list(connection.execute(statement, values))
        finally:
            connection.close()
