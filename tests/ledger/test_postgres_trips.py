"""How often PostgreSQL is asked: not once for each row of what is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests import postgres_server
from tests.bench.big_postgres import build
from tests.postgres_server import PostgresSetup
from turnlog import Ledger, open_ledger
from turnlog.ledger.postgres_connection import Connection
from turnlog.ledger.postgres_tx import _for_each
from turnlog.usage.report import UsageReport

DAY = 86_400_000
CALL = {"provider": "claude", "source": "file", "model": "m", "usage": {"input_tokens": 1, "output_tokens": 2}}


@pytest.fixture
def setup() -> PostgresSetup:
    return PostgresSetup(postgres_server.shared())


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How often a connection waited for the server."""
    counted = [0]
    wait = Connection.wait

    def count(self: Connection, *args: Any, **given: Any) -> Any:
        counted[0] += 1
        return wait(self, *args, **given)

    monkeypatch.setattr(Connection, "wait", count)
    return iter([counted])


def asked(waits: list[int], call: Callable[[], object]) -> int:
    call()  # what is prepared, or kept, is so from now on
    before = waits[0]
    call()
    return waits[0] - before


def calls_on(ledger: Ledger, days: range) -> None:
    receipts = [
        ("thread", f"turn-{day}", "usage", {**CALL, "call": f"call-{day}-{hour}", "at": day * DAY + hour * 3_600_000})
        for day in days
        for hour in (1, 23)
    ]
    ledger.record_many("claude:1", receipts)
    ledger.refresh_usage()


@pytest.mark.parametrize("by", ["daily", "weekly", "monthly", "blocks", "model", "total"])
def test_a_report_asks_as_often_for_a_year_as_for_a_week(
    setup: PostgresSetup, waits: Iterator[list[int]], by: str
) -> None:
    counted = next(waits)
    with setup.open() as ledger:
        ledger.create_session(id="claude:1", cwd="/f", provider="claude")

        def report() -> UsageReport:
            return ledger.usage_report(by, timezone="Asia/Kathmandu", breakdown=False)

        calls_on(ledger, range(20_000, 20_007))
        week = asked(counted, report)
        calls_on(ledger, range(20_007, 20_365))
        assert asked(counted, report) == week
        assert report().totals.streams == 2 * 365


def test_a_list_asks_as_often_for_many_inputs_as_for_some(setup: PostgresSetup, waits: Iterator[list[int]]) -> None:
    counted = next(waits)
    with setup.open() as ledger:

        def fill(first: int, last: int) -> None:
            for number in range(first, last):
                ledger.create_session(id=f"s{number}", cwd="/f")
                ledger.record(f"s{number}", "thread", "turn", "started", {})
                ledger.record(f"s{number}", "thread", "turn", "usage", {"n": number})

        fill(0, 5)
        some = asked(counted, lambda: ledger.recent_inputs(limit=50))
        fill(5, 50)
        assert asked(counted, lambda: ledger.recent_inputs(limit=50)) == some
        records, more = ledger.recent_inputs(limit=50)
        assert (len(records), more) == (50, False)
        assert [each for each in records if each != ledger.input_history(each.artifact_key or "")] == []


def test_a_ledger_that_is_up_to_date_is_opened_by_one_question(
    setup: PostgresSetup, waits: Iterator[list[int]]
) -> None:
    counted = next(waits)
    before = counted[0]
    open_ledger(setup.url(), read_only=True).close()
    assert counted[0] - before == 1


@pytest.mark.timeout(300)
def test_what_is_asked_for_many_at_once_uses_the_same_indexes() -> None:
    server = postgres_server.shared()
    url = server.url(server.new_database())
    build(url, 2_000, open_every=100)
    numbers = range(1_000, 1_050)
    sessions, keys = [f"session_{n:032x}" for n in numbers], [f"{n:032x}" for n in numbers]
    nothing: list[None] = [None] * 50
    whole = {"wave": nothing, "project": nothing, "task": nothing}
    turns = {"session": sessions, "thread": [f"thread_{key}" for key in keys], "turn": [f"turn_{key}" for key in keys]}
    questions: dict[str, dict[str, list[Any]]] = {
        "session": {"id": sessions},
        "capture_facts": {"key": keys},
        "input_summary": {"key": keys, **whole},
        "orphaned_history": {**turns, **whole},
        "copied_receipts": {"session": sessions},
        "copied_calls": {"session": sessions},
        "predecessor_turn": {**turns, "start": [2**40] * 50},
        "turn_rows_before": {**turns, "before": [2**40] * 50},
    }
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET jit = off; SET random_page_cost = 1.1")
        for name, columns in questions.items():
            plan = [str(row[0]) for row in connection.execute(f"EXPLAIN {_for_each(name, columns)}", columns)]
            for table in ("session_events", "turns", "captures", "agent_sessions"):
                assert not any(f"Seq Scan on {table} " in step for step in plan), (name, plan)
