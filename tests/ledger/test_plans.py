"""Reads of lists use their partial indexes, and nothing on a hot path reads a whole table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.ledger.sqlite_setup import SqliteSetup
from turnlog.ledger.backend import named_queries
from turnlog.ledger.sqlite import SqliteBackend

BIG = ("session_events", "turns", "captures", "intents", "releases", "agent_sessions", "execs")
"""Tables that grow with use."""

WHOLE = {
    # What is meant to read everything: care, reports, and lists that may be asked for everything.
    "drift_turns", "drift_intents", "drift_releases", "drift_captures", "drift_counts", "ungrounded_rows",
    "sessions_without_input", "recorded_conflicts", "usage_sessions", "session_page", "exec_page",
    "unfinished_sessions", "scope_captures", "latest_session", "driving_now",
    # A copy reads everything once, to say how far it is; one row is enough to tell that a ledger is not empty.
    "copy_count", "ledger_is_empty",
}  # fmt: skip

LISTS = {
    "open_session_page": "sessions_open",
    "held_captures": "captures_held",
    "settled_captures": "captures_settled",
    "ended_captures": "captures_ended",
    "held_orphans": "turns_orphan_held",
    "settled_orphans": "turns_orphan_settled",
    "ended_orphans": "turns_orphan_ended",
    "captures_of_caller": "captures_by_caller",
}


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    backend = SqliteBackend(tmp_path_factory.mktemp("plans") / "ledger.db")
    try:
        connection = backend._writer
        assert connection is not None
        connection.config(apsw.SQLITE_DBCONFIG_TRIGGER_EQP, 1)
        yield connection
    finally:
        backend.close()


def plan(connection: apsw.Connection, statement: str) -> list[str]:
    """The plan with those of all triggers it fires."""
    names = re.findall(r":([a-z_]+)", statement)  # more than there are does no harm
    bindings: Any = dict.fromkeys(names) if names else (None,) * statement.count("?")
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", bindings)
    return [str(row[3]) for row in rows]


def scans(steps: list[str], names: dict[str, str]) -> list[str]:
    """Steps that read a whole table that grows."""
    return [step for step in steps if step.startswith("SCAN") and names.get(step.split()[1], step.split()[1]) in BIG]


@pytest.mark.parametrize("name", sorted(set(named_queries("sqlite")) - WHOLE))
def test_no_query_reads_a_whole_table(connection: apsw.Connection, name: str) -> None:
    statement = named_queries("sqlite")[name]
    aliases = {alias: table for table in BIG for alias in aliases_of(statement, table)}
    assert scans(plan(connection, statement), aliases) == []


def aliases_of(statement: str, table: str) -> list[str]:
    words = statement.replace("(", " ").replace(")", " ").replace(",", " ").split()
    return [words[i + 1] for i, word in enumerate(words[:-1]) if word == table]


@pytest.mark.parametrize(("name", "index"), LISTS.items())
def test_lists_use_their_index(connection: apsw.Connection, name: str, index: str) -> None:
    steps = plan(connection, named_queries("sqlite")[name])
    assert any(f"USING INDEX {index} " in step for step in steps), steps
    assert not any(step.startswith("SCAN") and "session_events" in step for step in steps)
    if not name.startswith(("ended", "captures_of")):
        assert not any("TEMP B-TREE FOR ORDER BY" in step for step in steps), steps


@pytest.mark.parametrize(
    "name", ["input_summary", "answer_turns", "orphaned_history", "turn_rows_before", "find_receipt"]
)
def test_rows_of_a_turn_are_found_by_their_key(connection: apsw.Connection, name: str) -> None:
    """A conversation may have many thousand rows: by session alone would be quadratic."""
    steps = plan(connection, named_queries("sqlite")[name])
    assert any("events_receipt (session_id=? AND <expr>=? AND <expr>=? AND kind=?" in step for step in steps), steps
    assert not any(step.endswith("events_receipt (session_id=?)") for step in steps), steps


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO session_events (session_id, kind, receipt_key, observed_at, payload) VALUES ('s', 'x', '', 1, '')",
        "UPDATE session_events SET observed_at = 1 WHERE seq = 1",
        "DELETE FROM session_events WHERE seq = 1",
        "UPDATE agent_sessions SET completed_at = 1, current_capture = 1 WHERE id = 's'",
        "INSERT INTO execs (id, trace_id, started_at, completed_at) VALUES ('e', 't', 1, 1)",
        "UPDATE execs SET completed_at = 1 WHERE id = 'e'",
        "DELETE FROM execs WHERE id = 'e'",
        "INSERT INTO releases VALUES ('s', 'exit:e', 1)",
        "DELETE FROM releases WHERE seq = 1",
    ],
)
def test_no_write_reads_a_whole_table(connection: apsw.Connection, statement: str) -> None:
    """Also none of the triggers; a fold that is not given constants would aggregate every receipt."""
    aliases = {"e": "session_events", "q": "session_events", "x": "session_events", "t": "turns", "s": "agent_sessions"}
    assert scans(plan(connection, statement), aliases) == []


def test_the_turn_before_is_found_by_walking_back(connection: apsw.Connection) -> None:
    steps = plan(connection, named_queries("sqlite")["predecessor_turn"])
    assert steps[0].startswith("SEARCH e USING INDEX events_by_session (session_id=? AND rowid<?)")
    assert not any("TEMP B-TREE" in step for step in steps)


def test_no_statement_is_planned_again_for_each_value(tmp_path: Path) -> None:
    """SQLite with STAT4 does that once ANALYZE has run; it made lists six times slower."""
    with SqliteSetup(tmp_path).open() as ledger:
        writer = ledger._store._backend._writer  # type: ignore[attr-defined]
        assert writer.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) == 1
