"""A whole ledger into another one: every row as it is, numbers of receipts included.

Lists follow by triggers and roll-ups by their fold, as after any other write. The target ends as an equal of the source
with an identity of its own: cursors on the source mean nothing there.

One consistent read of the source, small transactions on the target. Rows are compared in the order of their keys with
those that the target has, so a copy that was cut goes on with what is missing, and one made again takes what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from turnlog.errors import ConflictError, CorruptError, InvalidError, TurnlogError
from turnlog.ledger.backend import Backend, Row, Tx
from turnlog.ledger.search import Place

_LEAST: Final = -(2**63)
_PAGE: Final = 1_000
_PAGE_BYTES: Final = 8_000_000
_WORDLESS: Final = 500

PUSH_HINT: Final = "`turnlog ledger push` adds to a ledger that holds something"


class Table(msgspec.Struct, frozen=True):
    """A table to copy. ``key`` is how many of ``columns`` name a row; ``drop`` forgets rows that are not in the source.

    Without ``drop``, a row that only the target has is a receipt of its own, and ends the copy.
    """

    read: str
    put: str
    columns: tuple[str, ...]
    key: int = 1
    change: str | None = None
    drop: tuple[str, ...] = ()


def _table(read: str, put: str, columns: str, key: int = 1, change: str | None = None, *drop: str) -> Table:
    return Table(read, put, tuple(columns.split()), key, change, drop)


EXECS: Final = _table(
    "copy_execs",
    "put_execs",
    "id trace_id parent_exec_id via_agent caller_session_id caller_provider_generation command repo cwd started_at"
    " completed_at outcome exit_code signal error boot_id pid pid_started_at home_id",
)
HOMES: Final = _table("copy_homes", "put_homes", "id name machine created_at")
WAVES: Final = _table("copy_waves", "put_waves", "depth id name repo created_at parent_wave_id retired_at", 2)
PROJECTS: Final = _table(
    "copy_projects",
    "put_projects",
    "id wave_id external_project_id created_at project_slug project_name status flow retired_at",
)
TASKS: Final = _table(
    "copy_tasks",
    "put_tasks",
    "id project_id external_issue_id issue_identifier created_at issue_title worktree started_at state retired_at",
)
PRS: Final = _table(
    "copy_task_prs", "put_task_prs", "id task_id external_pr_id pr_identifier created_at pr_title"
)
SESSIONS: Final = _table(
    "copy_sessions",
    "put_sessions",
    "id title title_source kind interactive created_at completed_at ready_summary request input_published cwd repo skill"
    " provider model node iterations task_id wave_id flow_session_id work_source bound_at primary_scope driver_exec_id"
    " driver_generation driver_heartbeat_at provider_generation provider_exec_id provider_endpoint provider_thread"
    " provider_pid provider_started_at pruned_to home_id",
)
EVENTS: Final = _table(
    "copy_events",
    "put_events",
    "seq session_id provider_thread provider_turn kind receipt_key provider_generation exec_id task_id wave_id"
    " observed_at payload captured_event driver_generation",
    1,
    "change_event",
)
REQUESTS: Final = _table(
    "copy_requests", "put_requests", "number id session_id kind text by_exec state created_at settled_at detail"
)
SOURCES: Final = _table(
    "copy_sources",
    "put_sources",
    "id provider path kind thread device inode size modified_at head head_size read_to tail lines state cursor decoder"
    " archived first_read_at read_at missing_at replaced_at pruned_at origin",
)
PROBLEMS: Final = _table(
    "copy_problems",
    "put_problems",
    "source_id offset kind length detail session_id usage seen_at",
    3,
    None,
    "uncopy_problems",
)
NATIVES: Final = _table(
    "copy_natives",
    "put_natives",
    "id session_id provider native_id began_at cwd root remote model version title title_rank parent_id parent_turn"
    " relation pruned_at",
)
ALIASES: Final = _table("copy_aliases", "put_aliases", "provider alias session_id", 3)
SESSION_SOURCES: Final = _table("copy_session_sources", "put_session_sources", "session_id source_id", 2)

TABLES: Final = (
    HOMES,
    EXECS,
    WAVES,
    PROJECTS,
    TASKS,
    PRS,
    _table("copy_work_aliases", "put_work_aliases", "id kind stands_for"),
    SESSIONS,
    SOURCES,
    EVENTS,
    # Behind the receipts, one of which each of these names.
    _table("copy_inputs", "put_inputs", "id current_capture"),
    REQUESTS,
    PROBLEMS,
    NATIVES,
    ALIASES,
    SESSION_SOURCES,
    _table("copy_places", "put_places", "seq source_id offset call", 1, None, "uncopy_places"),
    _table("copy_calls", "put_calls", "call session_id at rivals weight owned", 2),
    _table("copy_archive", "put_archive", "source_id start size data", 2, None, "uncopy_archive"),
    _table(
        "copy_passages",
        "put_passages",
        "id native turn role at source_id offset part key",
        1,
        None,
        "drop_words",
        "drop_passages",
    ),
)
"""In the order of what they name."""

_NUMBERS: Final = frozenset({"seq", "number", "depth", "start", "offset", "source_id"})
_NUMBERED: Final = frozenset({"copy_sources", "copy_natives", "copy_passages"})


class Copying(msgspec.Struct):
    """How far a copy has come; rows. ``receipts`` are among the ``rows`` written."""

    rows: int = 0
    rows_total: int = 0
    receipts: int = 0
    passages: int = 0


Progress = Callable[[Copying], None]
Said = Callable[[Place], str | None]
"""Gives the text of a passage of the source; None where it cannot be had."""


class Copies:
    """Copying from one ledger."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def into(self, target: Copies, *, said: Said, progress: Progress | None = None) -> Copying:
        """Make ``target`` an equal of this ledger: O(rows), memory of a page.

        ``said`` gives the texts of passages, whose words no ledger can give back. Raises ConflictError when the target
        holds anything that is not from here; InvalidError for a value that it cannot hold; UnavailableError when either
        ledger cannot be had, after which the same copy goes on where it was.
        """
        told = progress or (lambda _: None)
        done = Copying()
        with self._backend.read() as source:
            name = _names(source)[0]
            fresh = _admit(target._backend, name)
            counts = source.one("copy_counts")
            done.rows_total = sum(counts) if counts else 0
            for table in TABLES:
                _mirror(source, target._backend, table, done, told, fresh=fresh)
            last = source.one("last_seqs") or (0, 0, 0, 0)
        with target._backend.write() as tx:
            events, requests, sources, natives = last
            tx.one("move_seqs", events=events, requests=requests, sources=sources, natives=natives)
            tx.run("rollup_forget")
        _index(target._backend, said, done, told)
        with target._backend.write() as tx:
            tx.run("note_ledger", key="copied", value="whole")
        return done


def _names(tx: Tx) -> tuple[str, str, str | None, str | None]:
    row = tx.one("ledger_names")
    if row is None or row[0] is None:
        raise CorruptError("the ledger does not say which it is")
    return row[0], row[1], row[2], row[3]


def _admit(target: Backend, source: str) -> bool:
    """Note in the target what becomes of it; True when it was empty. Raises ConflictError."""
    with target.write() as tx:
        name, _, copied_from, _ = _names(tx)
        if name == source:
            raise ConflictError("both are the same ledger", hint="name another one to copy into")
        empty = tx.one("ledger_is_empty")
        fresh = bool(empty and empty[0])
        if not fresh and copied_from != source:
            raise ConflictError(f"{target.url} is not empty, and no copy of this ledger", hint=PUSH_HINT)
        tx.run("note_ledger", key="copied_from", value=source)
        tx.run("note_ledger", key="copied", value="in part")
    return fresh


def pages(tx: Tx, table: Table) -> Iterator[list[Row]]:
    """Yield the rows of a table in the order of its key, in pages of some megabytes."""
    names = table.columns[: table.key]
    numbers = _NUMBERS if table.read not in _NUMBERED else _NUMBERS | {"id"}
    after: tuple[Any, ...] = tuple(_LEAST if name in numbers else "" for name in names)
    limit = _PAGE // 10
    while True:
        try:
            rows = tx.all(table.read, limit=limit, **dict(zip(names, after, strict=True)))
        except CorruptError as error:
            raise CorruptError(f"{table.read.removeprefix('copy_')} behind {after}: {error.message}") from error
        if not rows:
            return
        yield rows
        after = rows[-1][: table.key]
        size = sum(len(value) for row in rows for value in row if isinstance(value, str | bytes)) // len(rows) + 1
        limit = max(1, min(limit * 2, _PAGE, _PAGE_BYTES // size))


def _mirror(source: Tx, target: Backend, table: Table, done: Copying, told: Progress, *, fresh: bool) -> None:
    there = _There(table, empty=fresh)
    for rows in pages(source, table):
        try:
            with target.write() as tx:
                _write(tx, target, table, rows, there.until(tx, rows[-1][: table.key]))
        except InvalidError as error:
            where = f"{table.read.removeprefix('copy_')} from {rows[0][: table.key]} to {rows[-1][: table.key]}"
            raise InvalidError(f"{where} cannot be copied: {error.message}", hint=error.hint) from error
        if table.put not in {"put_inputs"}:
            done.rows += len(rows)
        if table is EVENTS:
            done.receipts += len(rows)
        told(done)
    with target.write() as tx:
        _drop(tx, target, table, there.until(tx, None))


class _There:
    """The rows that the target has already, read beside the source's in the order of their keys."""

    def __init__(self, table: Table, *, empty: bool) -> None:
        self._table = table
        self._rows: list[Row] = []
        self._after: tuple[Any, ...] | None = None
        self._end = empty

    def until(self, tx: Tx, last: tuple[Any, ...] | None) -> dict[tuple[Any, ...], Row]:
        """Return the rows up to a key that were not returned yet; all others without one."""
        key = self._table.key
        while not self._end and (last is None or not self._rows or self._rows[-1][:key] <= last):
            page = next(pages_after(tx, self._table, self._after), [])
            self._end = not page
            if page:
                self._rows += page
                self._after = page[-1][:key]
        found = {row[:key]: row for row in self._rows if last is None or row[:key] <= last}
        self._rows = [row for row in self._rows if row[:key] not in found]
        return found
