"""OpenCode's database as a shelf: old and new tables, read only, one consistent state per conversation.

Only the tables named here are read: others hold the user's credentials. Columns that a version lacks are unknown.
New rows are found by their row number, changed ones by their time in conversations that changed, and by looking again
at answers that had no end; nothing else has to be scanned.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import orjson

from turnlog.errors import UnavailableError
from turnlog.harness.opencode.connection import Opened, translated
from turnlog.harness.opencode.shapes import instant
from turnlog.harness.opencode.shelf import Conversation, DamagedError, Dirty, Item, Marks

SLACK_MS: Final = 60_000
"""A row may become visible this long after the time in it: its writer waited for a lock."""

SESSIONS: Final = ("session", "session_v2")
MESSAGES: Final = ("message", "session_message")
_READ: Final = (*SESSIONS, *MESSAGES, "part", "project", "event")
_TEXTS: Final = {"project_id": "projectID", "parent_id": "parentID", "fork_session_id": "forkSessionID"}
_PLAIN: Final = ("directory", "path", "title", "version", "agent")
_JSON: Final = ("model", "revert")
_TIMES: Final = ("created", "updated", "compacting", "archived")
_UPDATED: Final = "message.updated"
_NOTHING: Final = "NULL"
_MOST_IN_A_ROW: Final = 100_000
"""Row numbers that are tried behind a damaged page before the rest of a table is given up."""


def is_opencode(path: Path) -> bool:
    """Tell by its tables whether a file is OpenCode's database. Raises UnavailableError where it cannot be told."""
    database = Database(path, check=False)
    try:
        return database.known()
    finally:
        database.close()


class Database:
    """A shelf in SQLite; complexity of a look is that of what changed, and of the conversations it changed in."""

    def __init__(self, path: Path, *, check: bool = True) -> None:
        self._path = path
        self._opened = Opened(path)
        self._connection = self._opened.connection
        self._rows: dict[str, dict[str, list[int]]] = {}
        try:
            with translated(path):
                self._columns = self._tables()
                # A database that is being made has no table at all yet.
                made = self._connection.execute("SELECT EXISTS (SELECT 1 FROM sqlite_schema)").fetchone() != (0,)
        except UnavailableError:
            self.close()
            raise
        if check and made and not self.known():
            self.close()
            raise UnavailableError(f"{path} is not OpenCode's database: it has no messages table")

    def known(self) -> bool:
        """Tell whether it has a table of messages that OpenCode could have made."""
        return any({"id", "session_id", "data"} <= self._columns[table] for table in MESSAGES)

    def close(self) -> None:
        self._opened.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        self._opened.check()
        with translated(self._path):
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("ROLLBACK")
        self._opened.check()

    def marks(self) -> Marks:
        rows: dict[str, tuple[int, str] | None] = {}
        newest = 0
        for table in (*SESSIONS, *MESSAGES, "part", "event"):
            if self._columns[table]:
                columns = ("rowid", "id", self._column(table, "time_updated"))
                found = None
                with contextlib.suppress(DamagedError):  # such a table is read whole each time
                    found = self._one(columns, table, "ORDER BY rowid DESC LIMIT 1")
                rows[table] = (found[0], str(found[1])) if found else None
                newest = max(newest, (instant(found[2]) or 0) if found else 0)
        # Not the greatest time of all: one from the future would hide what is written until then.
        return {"rows": rows, "after": newest - SLACK_MS}

    def changes(self, since: Marks) -> dict[str, Dirty] | None:
        rows = since["rows"]
        for table, mark in rows.items():
            # Row numbers start anew when the file is rebuilt or replaced.
            if mark and self._one(("id",), table, "WHERE rowid = ?", mark[0]) != (mark[1],):
                return None
        found: dict[str, Dirty] = {}
        for table in SESSIONS:
            if "time_updated" in self._columns[table]:
                where = "WHERE time_updated >= ?"
                found.update((name, Dirty(itself=True)) for (name,) in self._all(("id",), table, where, since["after"]))
            for (name,) in self._since(("id",), table, rows):
                found[name] = Dirty(itself=True)
        for table in MESSAGES:
            for name, message in self._since(("session_id", "id"), table, rows):
                found.setdefault(name, Dirty()).messages.add(message)
        for name, message, part in self._since(("session_id", "message_id", "id"), "part", rows):
            found.setdefault(name, Dirty()).parts.setdefault(message, set()).add(part)
        for message, name, before in since.get("open", ()):
            if self.look(message) != before:
                dirty = found.setdefault(name, Dirty())
                dirty.messages.add(message)
                dirty.parts.setdefault(message, set()).update(item.id for item in self.parts(name, message))
        for name, dirty in found.items():
            self._touched(name, dirty, since["after"])
        return found

    def look(self, message: str) -> list[int]:
        table = self._table_of(message)
        row = self._one((self._column(table, "time_updated"),), table, "WHERE id = ?", message) if table else None
        columns = ("count(*)", f"max({self._column('part', 'time_updated')})")
        parts = self._one(columns, "part", "WHERE message_id = ?", message) if self._columns["part"] else None
        numbers = (*(row or (None,)), *(parts or (None, None)))
        return [instant(number) or 0 for number in numbers]

    def names(self) -> list[tuple[int, str]]:
        found: dict[str, int] = {}
        for table in SESSIONS:
            if self._columns[table]:
                columns = ("id", self._column(table, "time_created"))
                with contextlib.suppress(DamagedError):  # their messages name them, too
                    for name, created in self._all(columns, table):
                        found[name] = instant(created) or 0
        for table in MESSAGES:
            if self._columns[table]:
                try:
                    for (name,) in self._all(("DISTINCT session_id",), table):
                        found.setdefault(name, 0)
                except DamagedError:
                    for name in self._owners(table):
                        found.setdefault(name, 0)
        return sorted((created, name) for name, created in found.items())

    def conversation(self, name: str) -> Conversation:
        for table in SESSIONS:
            if self._columns[table] and (found := self._session(table, name)) is not None:
                return found
        return Conversation(name, None, None, 0)

    def messages(self, name: str, events_after: int | None = None) -> Iterator[Item]:
        given: set[str] = set()
        for table in MESSAGES:
            # The newer runtime's table repeats what the older one holds, under ids of its own.
            if self._columns[table] and not given:
                order = "seq" if "seq" in self._columns[table] else f"{self._column(table, 'time_created')}, id"
                kind = self._column(table, "type")
                for item in self._items(table, f"WHERE session_id = ? ORDER BY {order}", name, kind):
                    given.add(item.id)
                    yield item
        yield from self._removed(name, given, events_after)

    def parts(self, name: str, message: str) -> Iterator[Item]:
        if self._columns["part"]:
            yield from self._items("part", "WHERE message_id = ? ORDER BY id", message)

    def _items(self, table: str, where: str, key: str, kind: str = _NOTHING) -> Iterator[Item]:
        times = (self._column(table, "time_created"), self._column(table, "time_updated"))
        columns = ("id", *times, "CAST(data AS BLOB)", kind)
        given: set[str] = set()
        try:
            for item in map(_item, self._all(columns, table, where, key)):
                given.add(item.id)
                yield item
                del item  # it may be big
        except DamagedError:
            if table in MESSAGES:
                rest = (_item(row) for row in self._rescued(columns, table, key) if row[0] not in given)
                yield from sorted(rest, key=lambda item: (item.created or 0, item.id))
            raise  # what could not be read, nobody knows

    def _removed(self, name: str, given: set[str], events_after: int | None) -> Iterator[Item]:
        """Yield messages that only past events tell of: a revert deletes them, the model was paid all the same."""
        if not {"aggregate_id", "type", "data"} <= self._columns["event"]:
            return
        columns = ("rowid", "CAST(data AS BLOB)")
        where = "WHERE aggregate_id = ? AND type >= ? AND type < ? ORDER BY seq"
        last: dict[str, tuple[int, dict[str, Any]]] = {}
        for row, data in self._all(columns, "event", where, name, _UPDATED, _UPDATED + "~"):
            try:
                info = orjson.loads(data)["info"]
                if info["id"] not in given:
                    last[info["id"]] = (row, info)
            except (ValueError, LookupError, TypeError):
                continue  # the tables are what is read; an event that cannot be tells nothing new
        for message, (row, info) in last.items():
            if events_after is None or row > events_after:
                yield Item(message, orjson.dumps(info), None, row, gone=True)

    def _touched(self, name: str, dirty: Dirty, after: int) -> None:
        for table in MESSAGES:
            if "time_updated" in self._columns[table]:
                where = "WHERE session_id = ? AND time_updated >= ?"
                dirty.messages.update(message for (message,) in self._all(("id",), table, where, name, after))
        if "time_updated" in self._columns["part"]:
            where = "WHERE session_id = ? AND time_updated >= ?"
            for message, part in self._all(("message_id", "id"), "part", where, name, after):
                dirty.parts.setdefault(message, set()).add(part)

    def _session(self, table: str, name: str) -> Conversation | None:
        texts = [*_TEXTS, *_PLAIN, *_JSON]
        columns = [f"CAST({self._column(table, column)} AS BLOB)" for column in texts]
        columns += [self._column(table, f"time_{word}") for word in _TIMES]
        found = self._one(columns, table, "WHERE id = ?", name)
        if found is None:
            return None
        values = {column: _text(value) for column, value in zip(texts, found, strict=False) if value is not None}
        times = {word: value for word, value in zip(_TIMES, found[len(texts) :], strict=True) if value is not None}
        data: dict[str, Any] = {"id": name, "time": times}
        data |= {_TEXTS.get(column, column): value for column, value in values.items() if column not in _JSON}
        data |= {column: _json(values[column]) for column in _JSON if column in values}
        project = values.get("project_id")
        return Conversation(
            id=name,
            data=orjson.dumps(data),
            created=instant(times.get("created")),
            stamp=instant(times.get("updated")) or 0,
            version=values.get("version"),
            worktree=self._worktree(project) if project else None,
        )

    def _worktree(self, project: str) -> str | None:
        if "worktree" not in self._columns["project"]:
            return None
        found = self._one(("CAST(worktree AS BLOB)",), "project", "WHERE id = ?", project)
        return _text(found[0]) if found and found[0] is not None else None

    def _table_of(self, message: str) -> str | None:
        tables = (table for table in MESSAGES if self._columns[table])
        return next((table for table in tables if self._one(("id",), table, "WHERE id = ?", message)), None)

    def _since(self, columns: Iterable[str], table: str, rows: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
        if self._columns[table]:
            mark = rows.get(table)
            yield from self._all(columns, table, "WHERE rowid > ?", mark[0] if mark else -1)

    def _rescued(self, columns: Iterable[str], table: str, name: str) -> Iterator[tuple[Any, ...]]:
        """Yield a conversation's rows of a damaged table, each looked up by its number.

        Damage then hides only the rows of its own page. O(rows of the table) once, then O(rows given).
        """
        for number in self._owners(table).get(name, ()):
            with contextlib.suppress(DamagedError):
                row = self._one(columns, table, "NOT INDEXED WHERE rowid = ?", number)
                if row is not None:
                    yield row

    def _owners(self, table: str) -> dict[str, list[int]]:
        """Return the numbers of a damaged table's rows by conversation; indexes may be what is damaged."""
        if table not in self._rows:
            rows: dict[str, list[int]] = {}
            for number in self._numbers(table):
                with contextlib.suppress(DamagedError):
                    row = self._one(("session_id",), table, "NOT INDEXED WHERE rowid = ?", number)
                    if row is not None:
                        rows.setdefault(row[0], []).append(number)
            self._rows[table] = rows
        return self._rows[table]

    def _numbers(self, table: str) -> Iterator[int]:
        """Yield the row numbers of a table, in order; where its pages are damaged, every number that might be one."""
        last, missed = 0, 0
        while missed < _MOST_IN_A_ROW:
            try:
                for (number,) in self._all(("rowid",), table, "NOT INDEXED WHERE rowid > ? ORDER BY rowid", last):
                    yield number
                    last, missed = number, 0
            except DamagedError:
                last, missed = last + 1, missed + 1
                yield last
            else:
                return

    def _tables(self) -> dict[str, set[str]]:
        def columns(table: str) -> set[str]:
            return {name for (name,) in self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}

        return {table: columns(table) for table in _READ}

    def _column(self, table: str, column: str) -> str:
        return column if column in self._columns[table] else _NOTHING

    def _one(self, columns: Iterable[str], table: str, rest: str = "", *values: Any) -> tuple[Any, ...] | None:
        return next(self._all(columns, table, rest, *values), None)

    def _all(self, columns: Iterable[str], table: str, rest: str = "", *values: Any) -> Iterator[tuple[Any, ...]]:
        with translated(self._path):
            yield from self._connection.execute(" ".join(("SELECT", ", ".join(columns), "FROM", table, rest)), values)


def _item(row: tuple[Any, ...]) -> Item:
    name, created, updated, data, typed = row
    return Item(name, data or b"", instant(created), instant(updated) or 0, typed)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
