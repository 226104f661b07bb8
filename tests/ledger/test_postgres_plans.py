"""On PostgreSQL too lists use their indexes, whatever plan the server keeps for a prepared statement."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import psycopg
import pytest

from tests import postgres_server
from tests.bench.big_postgres import build
from tests.ledger.test_activity_plans import ORDERED
from tests.ledger.test_plans import LISTS, WHOLE
from turnlog import open_ledger
from turnlog.ledger.backend import named_queries

pytestmark = pytest.mark.timeout(300)

SESSIONS: Final = 2_000
FILLED: Final = ("session_events", "turns", "captures", "agent_sessions")
"""Tables that grow and are filled here; of an empty one the cheapest plan is to read all of nothing."""

CARE: Final = WHOLE | {
    # What goes through everything, and says so: moving between ledgers, pruning, roll-ups of what is new.
    "session_facts", "pruned_sessions", "push_captures", "push_left", "push_known", "rollup_changed",
    "ledger_is_empty",
}  # fmt: skip
WORDS: Final = re.compile(r"'(?:[^']|'')*'|--[^\n]*|::|:([a-z_]+)|\?")
MIDDLE: Final = SESSIONS // 2
VALUES: Final[dict[str, str]] = {
    "limit": "51",
    "since": str((SESSIONS - 40) * 1000),
    "before": str(2**62),
    "scoped": "0",
    "scope": "'[]'",
    "interactive": "1",
    "id": f"'session_{MIDDLE:032x}'",
    "session": f"'session_{MIDDLE:032x}'",
    "thread": f"'thread_{MIDDLE:032x}'",
    "turn": f"'turn_{MIDDLE:032x}'",
    "key": f"'{MIDDLE:032x}'",
    "after_title": "''",
    "after_id": "''",
    "match": "'word'",
    **dict.fromkeys(("waves", "tasks", "provider", "task", "search"), "NULL"),
}
MODES: Final = ("force_custom_plan", "force_generic_plan")


@pytest.fixture(scope="module")
def connection() -> Iterator[psycopg.Connection[Any]]:
    server = postgres_server.shared()
    url = server.url(server.new_database())
    build(url, SESSIONS, open_every=100)
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
        connection.execute("SET jit = off; SET random_page_cost = 1.1")  # small tables, all of them in memory
        yield connection


def plan(connection: psycopg.Connection[Any], name: str, mode: str, **given: str) -> list[str]:
    """The plan of a prepared statement, for values as they come (custom) or without looking at them (generic)."""
    names: list[str] = []

    def spell(found: re.Match[str]) -> str:
        if found[1]:
            if found[1] not in names:
                names.append(found[1])
            return f"${names.index(found[1]) + 1}"
        if found[0] == "?":
            names.append("?")
            return f"${len(names)}"
        return found[0]

    statement = WORDS.sub(spell, named_queries("postgres")[name])
    connection.execute(f"SET plan_cache_mode = {mode}")
    connection.execute(f"PREPARE this AS {statement}")
    try:
        found = connection.execute("SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'this'")
        [(types,)] = found.fetchall()
        values = ", ".join(
            value(given.get(each, VALUES.get(each, "0")), kind) for each, kind in zip(names, types, strict=True)
        )
        rows = connection.execute(f"EXPLAIN EXECUTE this ({values})" if values else "EXPLAIN EXECUTE this")
        return [str(row[0]).strip() for row in rows]
    finally:
        connection.execute("DEALLOCATE this")


def value(given: str, kind: str) -> str:
    if kind.endswith("[]"):
        return "'{}'"
    if kind in {"json", "jsonb"}:
        return "'[]'"
    if kind in {"json", "jsonb"}:
        return "'[]'"
    if kind not in {"text", "bigint", "integer"}:
        return "NULL"
    if kind == "text":
        return given if given.startswith(("'", "NULL")) else "'[]'"
    return "0" if given.startswith("'") else given


def scans(steps: list[str]) -> list[str]:
    return [step for step in steps if (found := re.search(r"Seq Scan on (\w+)", step)) and found[1] in FILLED]


@pytest.mark.parametrize("mode", MODES)
def test_no_query_reads_a_whole_table(connection: psycopg.Connection[Any], mode: str) -> None:
    names = sorted(set(named_queries("postgres")) - CARE)
    assert len(names) > 150
    found = {name: steps for name in names if (steps := scans(plan(connection, name, mode)))}
    assert {name: steps for name, steps in found.items() if not name.startswith(("copy_", "drift_"))} == {}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "index"), LISTS.items())
def test_lists_use_their_index(connection: psycopg.Connection[Any], name: str, index: str, mode: str) -> None:
    steps = plan(connection, name, mode)
    assert any(re.search(rf"(Scan|Index Scan) using {index} |on {index} ", step) for step in steps), steps
    if not name.startswith(("ended", "captures_of")):
        assert not any(step.removeprefix("->").strip().startswith("Sort  (") for step in steps), steps


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "index"), [(name, index) for name, index in ORDERED.items() if "captures" in index])
def test_pages_are_read_in_the_order_of_an_index(
    connection: psycopg.Connection[Any], name: str, index: str, mode: str
) -> None:
    """A page of everything; what a window holds may be sorted, it is as much as is asked for."""
    steps = plan(connection, name, mode, since="0")
    assert any(f"Scan using {index} " in step or f"Scan Backward using {index} " in step for step in steps), steps
    assert not any(step.removeprefix("->").strip().startswith("Sort  (") for step in steps), steps


def test_budgets_come_before_payloads(connection: psycopg.Connection[Any]) -> None:
    """What decides which inputs are shown reads no receipt."""
    for name in LISTS:
        if name != "open_session_page":
            for mode in MODES:
                steps = plan(connection, name, mode)
                assert not any("session_events" in step for step in steps), (name, steps)


def test_pages_by_cursor_meet_every_session_once() -> None:
    server = postgres_server.shared()
    url = server.url(server.new_database())
    build(url, 230)
    with open_ledger(url) as ledger:
        seen: list[str] = []
        cursor = None
        while True:
            page = ledger.sessions(all=True, cursor=cursor, limit=50)
            seen += [each.id for each in page]
            if len(page) < 50:
                break
            cursor = page[-1].id
        assert sorted(seen) == sorted({f"session_{n:032x}" for n in range(1, 231)})
        assert len(seen) == len(set(seen))
