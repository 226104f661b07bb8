"""Roll-ups of usage follow the receipts, whatever happens to those, and say what a fresh fold says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.ledger.sqlite_setup import SqliteSetup, raw
from tests.ledger.usage_scenes import (
    DAY,
    HOUR,
    MINUTE,
    call,
    conversation,
    result,
    turn,
)
from turnlog import Ledger
from turnlog.queries import rollup
from turnlog.usage.prices import Call, Estimate
from turnlog.usage.report import UsageReport, UsageRow

LOUDER = """
UPDATE session_events SET payload = replace(payload, '"output_tokens":5', '"output_tokens":7') WHERE kind = 'usage'
"""


class Book:
    """Prices of a cent per thousand tokens of output; ``known`` are the models it has."""

    source = "book"

    def __init__(self, version: str = "1", *known: str, usd: float = 0.01) -> None:
        self.version = version
        self.known = known
        self.usd = usd
        self.asked: list[Call] = []

    def estimate(self, call: Call) -> Estimate | None:
        self.asked.append(call)
        if self.known and call.model not in self.known:
            return None
        return Estimate(usd=self.usd, model="entry", version=self.version)


@pytest.fixture
def setup(tmp_path: Path) -> SqliteSetup:
    return SqliteSetup(tmp_path)


@pytest.fixture
def ledger(setup: SqliteSetup) -> Iterator[Ledger]:
    with setup.open() as opened:
        yield opened


def total(ledger: Ledger, **filters: Any) -> UsageRow:
    return ledger.usage_report("total", timezone="UTC", **filters).totals


def keys(report: UsageReport) -> dict[str, int | None]:
    return {row.key: row.tokens.output for row in report.rows}


def gaps(row: UsageRow) -> dict[str, int]:
    return {each.kind: each.count for each in row.gaps}


# --- they follow


def test_a_report_keeps_what_it_folded(ledger: Ledger, setup: SqliteSetup) -> None:
    session = conversation(ledger, "a")
    turn(ledger, session, "1", DAY, call("m1", DAY), call("m2", DAY + HOUR))
    assert not ledger.usage_current()
    assert total(ledger).tokens.output == 10
    assert ledger.usage_current()
    assert ledger.refresh_usage() == 0
    rows = setup.raw_sql(
        "SELECT input, output, total_input, cache_read, cache_write, calls, final, counted FROM streams"
    )
    assert list(rows) == [(10, 5, 130, 100, 20, 1, 1, 1)] * 2
    assert list(setup.raw_sql("SELECT start, streams FROM usage_buckets ORDER BY start")) == [
        (DAY // 900_000, 1),
        (DAY // 900_000 + 4, 1),
    ]


def test_a_new_receipt_folds_its_session_alone(ledger: Ledger) -> None:
    one, other = conversation(ledger, "a"), conversation(ledger, "b")
    turn(ledger, one, "1", DAY, call("m1", DAY))
    turn(ledger, other, "1", DAY, call("m2", DAY))
    assert total(ledger).tokens.output == 10
    turn(ledger, one, "2", DAY, call("m3", DAY))
    assert ledger.refresh_usage() == 1
    assert total(ledger).tokens.output == 15


def test_text_of_an_answer_makes_nothing_stale(ledger: Ledger) -> None:
    session = conversation(ledger, "a")
    turn(ledger, session, "1", DAY, call("m1", DAY))
    ledger.refresh_usage()
    ledger.record(session, "a", "1", "output", {"text": "done"})
    assert ledger.usage_current()


@pytest.mark.parametrize(
    ("statement", "output"),
    [
        ("DELETE FROM session_events WHERE kind = 'usage' AND payload LIKE '%m2%'", 5),
        (LOUDER, 14),
        ("UPDATE session_events SET payload = '{' WHERE kind = 'usage' AND payload LIKE '%m2%'", 5),
        ("UPDATE session_events SET kind = 'output', receipt_key = '' WHERE payload LIKE '%m2%'", 5),
    ],
)
def test_a_repair_with_plain_sql_is_followed(ledger: Ledger, setup: SqliteSetup, statement: str, output: int) -> None:
    session = conversation(ledger, "a")
    turn(ledger, session, "1", DAY, call("m1", DAY), call("m2", DAY))
    assert total(ledger).tokens.output == 10
    with raw(setup.path) as connection:
        connection.execute(statement)
    assert not ledger.usage_current()
    assert total(ledger).tokens.output == output


def test_a_row_that_cannot_be_read_is_a_gap(ledger: Ledger, setup: SqliteSetup) -> None:
    session = conversation(ledger, "a")
    turn(ledger, session, "1", DAY, call("m1", DAY), call("m2", DAY))
    setup.raw_sql("UPDATE session_events SET payload = '{' WHERE payload LIKE '%m2%'")
    row = total(ledger)
    assert (row.tokens.output, gaps(row)) == (5, {"unreadable": 1})


def test_forgotten_roll_ups_are_made_again(ledger: Ledger, setup: SqliteSetup) -> None:
    session = conversation(ledger, "a")
    turn(ledger, session, "1", DAY, call("m1", DAY))
    before = total(ledger)
    for table in ("streams", "loose_gaps", "usage_buckets", "rollup_sessions", "rollup_kinds", "rollup_state"):
        setup.raw_sql(f"DELETE FROM {table}")
    assert not ledger.usage_current()
    assert total(ledger) == before


def test_a_session_that_is_gone_is_forgotten(ledger: Ledger, setup: SqliteSetup) -> None:
    session = conversation(ledger, "a")
    turn(ledger, session, "1", DAY, call("m1", DAY))
    assert total(ledger).streams == 1
    with raw(setup.path) as connection:
        connection.execute("DROP TRIGGER captured_is_kept")
        connection.execute("DELETE FROM agent_sessions")
        connection.execute("DELETE FROM session_events")
    assert total(ledger).streams == 0
    assert list(setup.raw_sql("SELECT count(*) FROM rollup_sessions")) == [(0,)]


def test_rebuilding_changes_nothing(ledger: Ledger) -> None:
    for name in ("a", "b"):
        turn(ledger, conversation(ledger, name), "1", DAY, call(f"m{name}", DAY))
    before = total(ledger)
    assert ledger.refresh_usage(rebuild=True) == 2
    assert total(ledger) == before


def test_a_conversation_that_codex_counts_on_from_turn_to_turn(ledger: Ledger) -> None:
    """A receipt of one turn changes what the next one counted (D5): the session is folded whole."""
    session = conversation(ledger, "a", provider="codex")

    def told(total_: int, last: int) -> dict[str, Any]:
        return {"total": {"inputTokens": total_, "cachedInputTokens": 0}, "last": {"inputTokens": last}}

    turn(ledger, session, "1", DAY, told(10, 10))
    turn(ledger, session, "2", DAY, told(30, 20))
    assert total(ledger).tokens.total_input == 30
    ledger.record(session, "a", "2", "usage", told(45, 15))
    row = total(ledger)
    assert (row.tokens.total_input, row.streams, row.calls) == (45, 2, 3)


# --- prices


def test_estimates_are_made_once_and_kept(ledger: Ledger) -> None:
    session, store = conversation(ledger, "a"), ledger._store
    turn(ledger, session, "1", DAY, call("m1", DAY, service_tier="priority"))
    book = Book()
    rollup.refresh(store, lambda: book)
    [asked] = book.asked
    assert (asked.model, asked.at, asked.tier, asked.output, asked.summed, asked.peak) == (
        "claude-opus-4-5", DAY, "priority", 5, False, 130,
    )  # fmt: skip
    turn(ledger, session, "2", DAY, call("m2", DAY))
    later = Book("2", usd=0.02)
    rollup.refresh(store, lambda: later)
    assert len(later.asked) == 1
    with store.rollups.read() as tx:
        assert [row.estimated for row in tx.streams(1)] == [0.01, 0.02]
        assert [each[2] for each in tx.prices()] == ["1", "2"]
    rollup.refresh(store, lambda: later, rebuild=True)
    assert len(later.asked) == 1


def test_a_model_without_price_is_tried_again_by_newer_prices_alone(ledger: Ledger) -> None:
    session, store = conversation(ledger, "a"), ledger._store
    turn(ledger, session, "1", DAY, call("m1", DAY, model="new"))
    old = Book("1", "claude-opus-4-5")
    rollup.refresh(store, lambda: old)
    assert rollup.refresh(store, lambda: old).sessions == 0
    assert len(old.asked) == 1
    new = Book("2", "new")
    assert rollup.refresh(store, lambda: new).sessions == 1
    with store.rollups.read() as tx:
        assert [row.estimated for row in tx.streams(1)] == [0.01]


def test_a_cost_that_was_reported_and_an_estimate_stand_apart(ledger: Ledger) -> None:
    ledger.create_session(id="driven", cwd="/w", provider="claude")
    ledger.record("driven", "p", "t1", "started", {})
    ledger.record("driven", "p", "t1", "usage", result(DAY, fresh=20, out=40, cost=0.5))
    turn(ledger, conversation(ledger, "a"), "1", DAY, call("m1", DAY, model="unheard-of"))
    rollup.refresh(ledger._store, lambda: Book("1", "claude-opus-4-5"))
    cost = total(ledger).cost
    assert (cost.reported_usd, cost.unpriced_calls) == (0.5, 1)


def test_an_estimate_may_be_a_lower_bound(ledger: Ledger) -> None:
    """How long cache writes were to live changes their price; old files do not say."""
    receipt = call("m1", DAY)
    del receipt["usage"]["cache_creation"]
    turn(ledger, conversation(ledger, "a"), "1", DAY, receipt, call("m2", DAY))
    row = total(ledger)
    assert (row.cost.low_estimates, row.cost.unpriced_calls, row.lower_bound) == (1, 0, True)


def test_prices_of_a_file_are_for_one_report(ledger: Ledger, tmp_path: Path) -> None:
    session = conversation(ledger, "a")
    turn(
        ledger, session, "1", DAY, call("m1", DAY, model="mine", fresh=1_000_000), call("m2", DAY + HOUR, model="mine")
    )
    before = total(ledger)
    assert before.cost.unpriced_calls == 2
    prices = tmp_path / "prices.json"
    entry = {"match": "mine", "input": 2, "output": 0, "cache_read": 0, "cache_write_5m": 0}
    prices.write_text(json.dumps({"price": [entry]}))
    report = ledger.usage_report("daily", timezone="UTC", prices=prices)
    assert report.totals.cost.estimated_usd == pytest.approx(2.00002)
    assert report.prices is not None
    assert report.prices.source == str(prices)
    assert total(ledger, prices=prices, until=DAY + MINUTE).cost.estimated_usd == pytest.approx(2.0)
    assert total(ledger) == before


# --- reading only, and others who write


def test_a_ledger_for_reading_answers_the_same(ledger: Ledger, setup: SqliteSetup) -> None:
    one, other = conversation(ledger, "a"), conversation(ledger, "b")
    turn(ledger, one, "1", DAY, call("m1", DAY), call("m2", DAY + 7 * MINUTE))
    ledger.refresh_usage()
    turn(ledger, one, "2", DAY, call("m3", DAY + 9 * MINUTE))
    turn(ledger, other, "1", DAY, call("m4", DAY + 24 * HOUR, model="y"))
    asked: list[tuple[str, dict[str, Any]]] = [
        *((by, {}) for by in ("daily", "weekly", "monthly", "blocks", "session", "model", "project", "task", "total")),
        ("daily", {"breakdown": True}),
        ("total", {"since": DAY + 8 * MINUTE}),
        ("session", {"until": DAY + 8 * MINUTE}),
        ("total", {"session": one}),
    ]
    with setup.open(read_only=True) as reader:
        told = [reader.usage_report(by, timezone="UTC", **filters) for by, filters in asked]
        assert not reader.usage_current()
    assert told == [ledger.usage_report(by, timezone="UTC", **filters) for by, filters in asked]
    assert ledger.usage_current()


def test_a_report_answers_while_another_process_writes(ledger: Ledger, setup: SqliteSetup) -> None:
    session = conversation(ledger, "a")
    turn(ledger, session, "1", DAY, call("m1", DAY))
    with raw(setup.path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        assert total(ledger).tokens.output == 5
        connection.execute("ROLLBACK")
    assert total(ledger).tokens.output == 5
    assert ledger.usage_current()


def test_two_refreshes_at_once_fold_the_same(ledger: Ledger, setup: SqliteSetup) -> None:
    for number in range(30):
        turn(ledger, conversation(ledger, f"s{number}"), "1", DAY, call(f"m{number}", DAY))
    with setup.open() as other:
        threads = [threading.Thread(target=each.refresh_usage) for each in (ledger, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert total(ledger).streams == 30
    assert ledger.verify() == []


# --- verify


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE streams SET output = 6",
        "UPDATE streams SET counted = 0",
        "UPDATE streams SET gaps = '{\"schema\":1}'",
        "DELETE FROM streams",
        "UPDATE usage_buckets SET output = 6",
        "UPDATE usage_buckets SET estimated_usd = 9",
        "DELETE FROM usage_buckets",
        "UPDATE rollup_sessions SET covered = 1",
        "UPDATE rollup_kinds SET model = 'other'",
    ],
)
def test_verify_finds_a_roll_up_that_is_wrong(ledger: Ledger, setup: SqliteSetup, statement: str) -> None:
    session = conversation(ledger, "a")
    turn(ledger, session, "1", DAY, call("m1", DAY))
    ledger.refresh_usage()
    assert ledger.verify() == []
    setup.raw_sql(statement)
    [found] = ledger.verify()
    assert (found.kind, found.where) == ("drift", f"session {session}")
    ledger.refresh_usage(rebuild=True)
    assert ledger.verify() == [] or "estimated_usd" in statement or "covered" in statement


# --- properties

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.integers(1, 3),
        st.integers(0, 5),
        st.integers(0, 40),
        st.booleans(),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_refreshing_between_receipts_in_any_way_equals_one_fold(
    steps: list[tuple[str, int, int, int, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    setup = SqliteSetup(tmp_path_factory.mktemp("steps"))
    with setup.open() as ledger:
        for name, number, message, quarters, refreshed in steps:
            session = conversation(ledger, name)
            at = DAY + quarters * 15 * MINUTE
            if message == 0:
                ledger.record(session, name, f"t{number}", "started", {})
            else:
                ledger.record(session, name, f"t{number}", "usage", call(f"m{message}", at, out=message))
            if refreshed:
                ledger.usage_report("total", timezone="UTC")
        asked = ("daily", "blocks", "session", "total")
        kept = [ledger.usage_report(by, timezone="UTC") for by in asked]
        assert ledger.verify() == []
        ledger.refresh_usage(rebuild=True)
        assert [ledger.usage_report(by, timezone="UTC") for by in asked] == kept
        expected = sum(each.usage.output_tokens or 0 for each in ledger.inputs())
        assert (kept[-1].totals.tokens.output or 0) == expected
