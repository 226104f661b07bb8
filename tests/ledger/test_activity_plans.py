"""Pages of activity, binds and work are read by an index in their order: no page costs more than its rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from turnlog.ledger.backend import named_queries
from turnlog.ledger.sqlite import SqliteBackend

ORDERED = {
    "activity_waves": "waves_by_creation",
    "activity_projects": "projects_by_creation",
    "activity_tasks": "tasks_by_creation",
    "activity_prs": "task_prs_by_creation",
    "activity_inputs": "captures_by_time",
    "activity_completions": "captures_ended",
    "activity_turns": "turns_orphan_ended",
    "activity_requests": "requests_by_time",
    "activity_bound": "sessions_bound",
    "activity_closed": "sessions_closed",
    "activity_retired_waves": "waves_retired",
    "activity_retired_projects": "projects_retired",
    "activity_retired_tasks": "tasks_retired",
    "bound_sessions": "sessions_bound",
    "wave_page": "waves_by_creation",
    "active_wave_page": "waves_active",
    "project_page": "projects_by_creation",
    "active_project_page": "projects_active",
    "task_page": "tasks_by_creation",
    "active_task_page": "tasks_active",
}


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    backend = SqliteBackend(tmp_path_factory.mktemp("plans") / "ledger.db")
    try:
        assert backend._writer is not None
        yield backend._writer
    finally:
        backend.close()


def plan(connection: apsw.Connection, name: str) -> list[str]:
    statement = named_queries("sqlite")[name]
    names = re.findall(r":([a-z_]+)", statement)
    return [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", dict.fromkeys(names))]


def test_every_source_of_activity_is_looked_at(connection: apsw.Connection) -> None:
    sources = {name for name in named_queries("sqlite") if name.startswith("activity_")}
    assert sources <= set(ORDERED)


@pytest.mark.parametrize(("name", "index"), ORDERED.items())
def test_pages_are_read_in_the_order_of_an_index(connection: apsw.Connection, name: str, index: str) -> None:
    steps = plan(connection, name)
    assert re.match(rf"SEARCH \w+ USING INDEX {index} \(\w+[<>]\?", steps[0]), steps
    assert not any("TEMP B-TREE FOR ORDER BY" in step for step in steps), steps


@pytest.mark.parametrize("name", ["tasks_named", "projects_named"])
def test_words_are_looked_up_by_indexes(connection: apsw.Connection, name: str) -> None:
    steps = plan(connection, name)
    assert steps[0] == "MULTI-INDEX OR", steps
    assert not any(re.match(r"SCAN [tpw]\b", step) for step in steps), steps


def test_a_page_reads_its_rows_and_no_others(tmp_path: Path) -> None:
    """A hundred times as many facts, the same work: steps of SQLite's virtual machine."""

    def steps(count: int) -> int:
        backend = SqliteBackend(tmp_path / f"{count}.db")
        try:
            connection = backend._writer
            assert connection is not None
            connection.execute("PRAGMA foreign_keys = OFF")
            with connection:
                connection.executemany(
                    "INSERT INTO requests (id, session_id, kind, created_at) VALUES (?, 's', 'steer', ?)",
                    ((f"r{number:06}", number) for number in range(count)),
                )
                connection.execute(
                    "INSERT INTO agent_sessions (id, title, title_source, created_at, input_published, cwd)"
                    " VALUES ('s', 's', 'human', 1, 1, '/f')"
                )
            taken = 0

            def counted() -> bool:
                nonlocal taken
                taken += 1
                return False

            connection.set_progress_handler(counted, 10)
            statement = named_queries("sqlite")["activity_requests"]
            values = {"since": 0, "before": 2**62, "key": "", "limit": 51}
            rows = list(connection.execute(statement, values))
            connection.set_progress_handler(None)
            assert len(rows) == 51
            return taken
        finally:
            backend.close()

    assert steps(20_000) <= steps(200) * 1.2
