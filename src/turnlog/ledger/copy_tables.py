"""The tables of a ledger as they are copied and pushed: their queries, their columns, what names a row."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from turnlog.ledger.backend import Backend, Row, Tx

_LEAST: Final = -(2**63)


_NUMBERS: Final = frozenset({"seq", "number", "depth", "start", "offset", "source_id"})
_NUMBERED: Final = frozenset({"copy_sources", "copy_natives", "copy_passages"})


class Table(msgspec.Struct, frozen=True):
    """A table. ``key`` is how many of ``columns`` name a row; ``drop`` forgets rows that are not in the source.

    Without ``drop``, a row that only the target has is a receipt of its own, and ends the copy.
    """

    read: str
    put: str
    columns: tuple[str, ...]
    key: int = 1
    change: str | None = None
    drop: tuple[str, ...] = ()

    @property
    def noun(self) -> str:
        """What its rows are called in messages."""
        return self.read.removeprefix("copy_").replace("_", " ")

    def start(self) -> tuple[Any, ...]:
        """Return a key before every other."""
        numbers = _NUMBERS | {"id"} if self.read in _NUMBERED else _NUMBERS
        return tuple(_LEAST if name in numbers else "" for name in self.columns[: self.key])

    def page(self, tx: Tx, after: tuple[Any, ...] | None, limit: int) -> list[Row]:
        """Return rows behind a key, in its order; from the first on without one."""
        given = dict(zip(self.columns, self.start() if after is None else after, strict=False))
        return tx.all(self.read, limit=limit, **given)

    def write(self, tx: Tx, target: Backend, rows: list[Row]) -> None:
        """Put rows: O(rows). A PostgreSQL server is given columns, in one statement."""
        if not rows:
            return
        skip = self.columns[0] == "depth"
        if target.url.startswith("sqlite:"):
            tx.many(self.put, [row[skip:] for row in rows] if skip else rows)
            return
        values = zip(*(row[skip:] for row in rows), strict=True)
        tx.run(self.put, **{name: list(column) for name, column in zip(self.columns[skip:], values, strict=True)})


def _table(read: str, put: str, columns: str, key: int = 1, change: str | None = None, *drop: str) -> Table:
    return Table(read, put, tuple(columns.split()), key, change, drop)


EXECS: Final = _table(
    "copy_execs",
    "put_execs",
    "id trace_id parent_exec_id via_agent caller_session_id caller_provider_generation command repo cwd started_at"
    " completed_at outcome exit_code signal error boot_id pid pid_started_at home_id",
)
HOMES: Final = _table("copy_homes", "put_homes", "id name machine created_at")
WAVES: Final = _table("copy_waves", "put_waves", "depth id name repo created_at parent_wave_id retired_at home_id", 2)
PROJECTS: Final = _table(
    "copy_projects",
    "put_projects",
    "id wave_id external_project_id created_at project_slug project_name status flow retired_at",
)
TASKS: Final = _table(
    "copy_tasks",
    "put_tasks",
    "id project_id external_issue_id issue_identifier created_at issue_title worktree started_at state retired_at"
    " worktree_home_id",
)
PRS: Final = _table("copy_task_prs", "put_task_prs", "id task_id external_pr_id pr_identifier created_at pr_title")
SESSIONS: Final = _table(
    "copy_sessions",
    "put_sessions",
    "id title title_source kind interactive created_at completed_at ready_summary request input_published cwd repo"
    " skill provider model node iterations task_id wave_id flow_session_id work_source bound_at primary_scope"
    " driver_exec_id driver_generation driver_heartbeat_at provider_generation provider_exec_id provider_endpoint"
    " provider_thread provider_pid provider_started_at pruned_to home_id",
)
EVENTS: Final = _table(
    "copy_events",
    "put_events",
    "seq session_id provider_thread provider_turn kind receipt_key provider_generation exec_id task_id wave_id"
    " observed_at payload captured_event driver_generation",
    1,
    "change_event",
    "uncopy_events",
)
REQUESTS: Final = _table(
    "copy_requests",
    "put_requests",
    "number id session_id kind text by_exec state created_at settled_at detail",
    1,
    None,
    "uncopy_requests",
)
SOURCES: Final = _table(
    "copy_sources",
    "put_sources",
    "id provider path kind thread device inode size modified_at head head_size read_to tail lines state cursor decoder"
    " archived first_read_at read_at missing_at replaced_at pruned_at origin home_id wants",
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
    " relation pruned_at title_at",
)
ALIASES: Final = _table("copy_aliases", "put_aliases", "provider alias session_id", 3)
SESSION_SOURCES: Final = _table("copy_session_sources", "put_session_sources", "session_id source_id", 2)
INPUTS: Final = _table("copy_inputs", "put_inputs", "id current_capture")
ARCHIVE: Final = _table("copy_archive", "put_archive", "source_id start size data", 2, None, "uncopy_archive")

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
    INPUTS,  # behind the receipts, one of which each of these names
    REQUESTS,
    PROBLEMS,
    NATIVES,
    ALIASES,
    SESSION_SOURCES,
    _table("copy_places", "put_places", "seq source_id offset call", 1, None, "uncopy_places"),
    _table("copy_calls", "put_calls", "call session_id at rivals weight owned", 2),
    ARCHIVE,
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
