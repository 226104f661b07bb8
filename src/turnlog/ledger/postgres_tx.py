"""Named queries on one PostgreSQL connection inside one transaction."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final, Protocol, TypeVar

import psycopg
from psycopg.rows import TupleRow

from turnlog.errors import UnavailableError
from turnlog.ledger.backend import Params, Question, Row, named_queries
from turnlog.ledger.postgres_errors import VALUE_ERRORS, value_error
from turnlog.ledger.postgres_words import query, vector

Connection = psycopg.Connection[TupleRow]
T = TypeVar("T")


class First(Protocol):
    """Takes a connection and does the first thing with it."""

    def __call__(self, action: Callable[[Connection], T], /) -> tuple[Connection, T]: ...


_BY_ID: Final = (
    "session", "driver", "claim_driver", "release_driver", "finish_driver", "heartbeat", "record_connection",
    "record_process", "hand_over", "retires", "insert_session", "set_current_capture", "replace_input",
    "publish_input", "bind_session", "rename_session", "complete_session", "reopen_session", "ready_session",
)  # fmt: skip
_BY_SESSION: Final = (
    "find_receipt", "start_attribution", "insert_started", "start_of_turn", "starts_of_turn_id", "insert_requested",
    "find_requested", "capture_of_turn", "insert_observed", "insert_captured", "insert_request", "requests",
    "insert_native_session", "learn_session", "rollup_session",
)  # fmt: skip
_SESSION_LOCKS: Final = {**dict.fromkeys(_BY_ID, "id"), **dict.fromkeys(_BY_SESSION, "session")}
"""Queries that name the conversation which a write is about, and the parameter in which they do."""

_BULK_LOCKS: Final = frozenset(
    {
        "insert_source", "advance_source", "touch_source", "source_missing", "replace_source", "rewind_source",
        "last_passage", "insert_sightings", "prune_source", "rollup_cursor", "rollup_forget", "rollup_mark",
        "rollup_dirty",
    }
)  # fmt: skip
"""Queries with which imports and roll-ups begin. Both touch many conversations: one at a time, so that they do not
wait for each other in a circle. Those that only append never wait for this lock."""

_ALONE: Final = frozenset(
    {
        "history", "input_summary", "input_evidence", "capture_facts", "session", "session_of_thread", "driver", "exec",
        "observed_payload", "latest_turn", "latest_session", "predecessor_turn", "copied_receipts", "open_turns",
        "outstanding_intents", "own_request_ids", "unfinished_sessions", "open_questions", "capture_of_turn",
        "capture_by_key", "capture_keys_of_session", "answer_turns", "requests", "request", "work_names",
        "agent_parent",
    }
)  # fmt: skip
"""Reads that mostly come alone: they need no transaction around them, which saves two of three round trips. What may
follow in the same read finds what they found, or nothing newer that would contradict it: facts are only added."""

_AT_ONCE: Final = 2_000
"""Receipts in one statement: its memory and the server's stay small, and round trips no longer matter."""

_LOCKS: Final = 500
"""Conversations that one transaction locks by themselves; the triggers of the ledger hold to the same (0014)."""

_BULK: Final = ("bulk", "")
_ALL: Final = ("all", "")
_HORIZON: Final = "SELECT set_config('turnlog.horizon', pg_snapshot_xmin(pg_current_snapshot())::text, true)"
"""Before what roll-ups read: each statement sees more than the one before, and what came between is not looked at."""


_READS: Final = re.compile(r"(?:--.*\n)*SELECT\b")
_WORDS: Final = re.compile(r"'(?:[^']|'')*'|--[^\n]*|::|:([a-z_]+)|\?|%")


def lock_key(space: str, name: str) -> int:
    """Return the number of an advisory lock, as ``turnlog_lock_key`` in the database does."""
    digest = hashlib.sha256(f"{space}:{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def placeholders(statement: str) -> str:
    """Spell ``:name`` and ``?`` as psycopg does. Quoted text and comments keep theirs."""

    def spell(found: re.Match[str]) -> str:
        text = found[0]
        if found[1]:
            return f"%({found[1]})s"
        return "%s" if text == "?" else text.replace("%", "%%")

    return _WORDS.sub(spell, statement)


@cache
def statements() -> dict[str, str]:
    """Return the named queries in psycopg's spelling."""
    return {name: placeholders(text) for name, text in named_queries("postgres").items()}


class PostgresTx:
    """One transaction, begun with its first query.

    A write locks each conversation before the first query that names it: so a check and the write that rests on it see
    the same state (R1.6), and seq is the order of commits within a conversation.
    """

    def __init__(self, first: First, opening: str, *, locks: bool) -> None:
        self._first = first
        self._opening = opening
        self._locks = locks
        self._begun = False
        self._locked: set[tuple[str, str]] = set()
        self._alone = False
        self._queries = statements()
        self._expected: dict[tuple[str, frozenset[tuple[str, Any]]], list[list[Row]]] = {}
        self.connection: Connection | None = None

    def all(self, name: str, /, **params: Any) -> list[Row]:
        found = self._answered(name, params)
        return self._run(name, params).fetchall() if found is None else found

    def one(self, name: str, /, **params: Any) -> Row | None:
        found = self._answered(name, params)
        return self._run(name, params).fetchone() if found is None else next(iter(found), None)

    def run(self, name: str, /, **params: Any) -> int:
        return self._run(name, params).rowcount

    def each(self, name: str, asked: Sequence[Params], /) -> list[list[Row]]:
        if not asked:
            return []
        wanted = [_BULK] if name in _BULK_LOCKS else []
        try:
            if (session := _SESSION_LOCKS.get(name)) is not None:
                wanted += [("session", each) for each in sorted({params[session] for params in asked})]
            connection = self._ready(wanted)
            if _READS.match(self._queries[name]):
                parts = [asked[start : start + _AT_ONCE] for start in range(0, len(asked), _AT_ONCE)]
                return [rows for part in parts for rows in self._read_each(connection, name, part)]
            with connection.cursor(binary=True) as cursor:
                returning = "RETURNING" in self._queries[name]
                cursor.executemany(self._queries[name], asked, returning=returning)
                if not returning:
                    return [[] for _ in asked]
                found = [cursor.fetchall()]
                while cursor.nextset():
                    found.append(cursor.fetchall())
                return found
        except VALUE_ERRORS as error:
            raise value_error(error) from error

    def _read_each(self, connection: Connection, name: str, asked: Sequence[Params]) -> list[list[Row]]:
        columns = {each: [params[each] for params in asked] for each in asked[0]}
        rows = connection.execute(_for_each(name, columns), columns, binary=True).fetchall()
        return _apart(rows, len(asked))

    def many(self, name: str, rows: Iterable[Row], /) -> None:
        # All rows first: what makes them may ask this transaction for something.
        given = [(row[0], vector(row[1])) for row in rows] if name == "insert_words" else list(rows)
        connection = self._ready([_BULK] if name in _BULK_LOCKS else [])
        if not given:
            return
        try:
            with connection.cursor() as cursor:
                cursor.executemany(self._queries[name], given)
        except VALUE_ERRORS as error:
            raise value_error(error) from error

    def insert_native(self, row: Row) -> int | None:
        connection = self._ready([("session", row[0])])
        try:
            found = connection.execute(self._queries["insert_native"], row, binary=True).fetchone()
        except VALUE_ERRORS as error:
            raise value_error(error) from error
        return None if found is None else int(found[0])

    def insert_natives(self, rows: Sequence[Row]) -> list[int | None]:
        return self._insert("insert_natives", rows)

    def insert_receipts(self, rows: Sequence[Row]) -> list[int | None]:
        return self._insert("insert_receipts", [(*row, place) for place, row in enumerate(rows)])

    def _insert(self, name: str, rows: Sequence[Row]) -> list[int | None]:
        """Insert many at once: O(rows), one round trip for some thousand of them."""
        found: list[int | None] = []
        for start in range(0, len(rows), _AT_ONCE):
            chunk = rows[start : start + _AT_ONCE]
            connection = self._ready([("session", session) for session in sorted({row[0] for row in chunk})])
            try:
                columns = [list(column) for column in zip(*chunk, strict=True)]
                told = connection.execute(self._queries[name], columns, binary=True).fetchall()
            except VALUE_ERRORS as error:
                raise value_error(error) from error
            seqs = {row[:5]: row[5] for row in told}
            found += [seqs.pop(row[:5], None) for row in chunk]  # of two equal ones the first is new
        return found

    def expect(self, asked: Iterable[Question]) -> None:
        """Ask in one round trip: a snapshot gives the same answers later. Memory: the answers, until they are taken."""
        if self._locks:
            return
        questions: dict[str, list[dict[str, Any]]] = {}
        for name, params in asked:
            questions.setdefault(name, []).append(params)
        if not questions:
            return
        try:
            if self.connection is None:
                self.connection, found = self._first(lambda each: self._together(each, questions))
            else:
                found = self._together(self.connection, questions)
        except VALUE_ERRORS as error:
            raise value_error(error) from error
        self._begun = True
        for (name, several), rows in zip(questions.items(), found, strict=True):
            for params, answer in zip(several, rows, strict=True):
                self._expected.setdefault((name, frozenset(params.items())), []).append(answer)

    def _together(self, connection: Connection, questions: dict[str, list[dict[str, Any]]]) -> list[list[list[Row]]]:
        with connection.pipeline() as pipeline:
            if not self._begun:
                connection.execute(self._opening)
            cursors = []
            for name, several in questions.items():
                if len(several) == 1:
                    cursors.append(connection.execute(self._queries[name], several[0], binary=True))
                else:
                    columns = {each: [params[each] for params in several] for each in several[0]}
                    cursors.append(connection.execute(_for_each(name, columns), columns, binary=True))
            pipeline.sync()
            found = []
            for several, cursor in zip(questions.values(), cursors, strict=True):
                rows = cursor.fetchall()
                found.append([rows] if len(several) == 1 else _apart(rows, len(several)))
            return found

    def _answered(self, name: str, params: dict[str, Any]) -> list[Row] | None:
        if not self._expected:
            return None
        waiting = self._expected.get((name, frozenset(params.items())))
        return waiting.pop(0) if waiting else None

    def _run(self, name: str, params: dict[str, Any]) -> psycopg.Cursor[TupleRow]:
        wanted = []
        if self._locks:
            if name in _BULK_LOCKS:
                wanted.append(_BULK)
            if (session := _SESSION_LOCKS.get(name)) is not None:
                wanted.append(("session", params[session]))
        if "match" in params:
            params["match"] = query(params["match"])
        statement = self._queries[name]
        try:
            if self.connection is None and not self._locks and name in _ALONE:
                self.connection, cursor = self._first(lambda each: each.execute(statement, params, binary=True))
                return cursor
            return self._ready(wanted).execute(statement, params, binary=True)
        except VALUE_ERRORS as error:
            raise value_error(error) from error

    def _ready(self, wanted: list[tuple[str, str]]) -> Connection:
        """Return the connection, inside the transaction and with these locks."""
        fresh = (
            [lock for lock in wanted if lock not in self._locked and isinstance(lock[1], str)] if self._locks else []
        )
        try:
            keys = [(lock, lock_key(*lock)) for lock in fresh]
        except UnicodeError as error:
            raise value_error(error) from error
        if len(self._locked) + len(fresh) > _LOCKS:
            # The server has room for some thousand, of everybody. Whoever touches so many is alone with all of them.
            keys = [(lock, key) for lock, key in keys if lock == _BULK]
            if not self._alone:
                self._alone = True
                keys.append((_ALL, 0))
        steps = [
            "SELECT turnlog_lock_all()" if lock == _ALL else f"SELECT pg_advisory_xact_lock({key})"
            for lock, key in keys
        ]
        if _BULK in fresh:
            steps.append(_HORIZON)
        if not self._begun:
            steps.insert(0, self._opening)
        text = "; ".join(steps)
        if self.connection is None:
            self.connection, _ = self._first(lambda each: each.execute(text))
        elif steps:
            self.connection.execute(text)
        self._begun = True
        self._locked.update(fresh)
        return self.connection

    def commit(self) -> None:
        """End the transaction. Raises UnavailableError when nothing could be committed."""
        if self._begun and self.connection is not None and self.connection.execute("COMMIT").statusmessage != "COMMIT":
            # An error inside was swallowed: the server has given everything up, and says so with ROLLBACK.
            raise UnavailableError("the transaction failed before its end; nothing was written")


def _for_each(name: str, columns: dict[str, list[Any]]) -> str:
    """Spell a query so that it answers for each row of columns: planned once, in a tenth of the time of as many."""
    types = {
        each: "bigint" if any(isinstance(value, int) for value in column) else "text"
        for each, column in columns.items()
    }
    query = re.sub(r"%\((\w+)\)s", r"asked.\1", statements()[name])
    given = ", ".join(f"%({each})s::{kind}[]" for each, kind in types.items())
    return (
        f"SELECT asked.place, answer.* FROM unnest({given}) WITH ORDINALITY AS asked ({', '.join(types)}, place)"  # noqa: S608 - of our own names
        f" CROSS JOIN LATERAL ({query}) AS answer"
    )


def _apart(rows: Iterable[Row], count: int) -> list[list[Row]]:
    found: list[list[Row]] = [[] for _ in range(count)]
    for row in rows:
        found[row[0] - 1].append(row[1:])
    return found
