"""``verify`` finds every kind of damage that plain SQL can do, and names the place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ledger.sqlite_setup import SqliteSetup, raw
from turnlog import Ledger, Observation

KEY = "0" * 31 + "1"


@pytest.fixture
def setup(tmp_path: Path) -> SqliteSetup:
    return SqliteSetup(tmp_path)


@pytest.fixture
def ledger(setup: SqliteSetup) -> Iterator[Ledger]:
    with setup.open() as ledger:
        ledger.create_session(id="s", artifact_key=KEY, cwd="/f")
        ledger.start_exec(id="e")
        driver = ledger.claim_driver("s", None, "e")
        ledger.intend_turn("s", driver, "t", "request", {"text": "hello"}, turn="1")
        ledger.record("s", "t", "1", "started", {})
        ledger.record("s", "t", "1", "usage", {"n": 1})
        ledger.record("s", "t", "1", "completed", {"status": "completed"})
        ledger.retain("s", Observation(KEY, "superseded:t:2", 1, {"by": "3"}))
        assert ledger.verify() == []
        yield ledger


def kinds(ledger: Ledger) -> set[str]:
    return {problem.kind for problem in ledger.verify()}


DAMAGE = [
    ("UPDATE turns SET status = 'failed'", "drift"),
    ("UPDATE turns SET released = 1", "drift"),
    ("DELETE FROM turns", "drift"),
    ("INSERT INTO turns (session_id, provider_thread, provider_turn, first_at) VALUES ('s', 't', 'x', 1)", "drift"),
    ("UPDATE intents SET settled = 0", "drift"),
    ("DELETE FROM intents", "drift"),
    ("UPDATE captures SET turns = 7", "drift"),
    ("UPDATE captures SET held_turns = held_turns + 1", "drift"),
    ("UPDATE captures SET published_current = 0", "drift"),
    ("UPDATE captures SET manifest_at = 5", "drift"),
    ("DELETE FROM captures", "drift"),
    ("DELETE FROM releases", "drift"),
    ("INSERT INTO releases VALUES ('s', 'turn:t:1', 999)", "drift"),
    ("UPDATE session_events SET receipt_key = 'abc' WHERE kind = 'usage'", "wrong_key"),
    ("UPDATE session_events SET receipt_key = 'abc' WHERE kind = 'completed'", "wrong_key"),
    ("UPDATE session_events SET receipt_key = 'abc:note' WHERE kind = 'observed'", "wrong_key"),
    ("UPDATE session_events SET payload = '{\"n\":2}' WHERE kind = 'usage'", "wrong_key"),
    ("UPDATE session_events SET payload = '{ \"n\":1}' WHERE kind = 'usage'", "not_canonical"),
    ("UPDATE session_events SET payload = '{\"b\":1,\"a\":1}' WHERE kind = 'completed'", "not_canonical"),
    ("UPDATE session_events SET payload = '{' WHERE kind = 'usage'", "unreadable"),
    ("UPDATE session_events SET payload = '1e999' WHERE kind = 'usage'", "unreadable"),
    ("UPDATE session_events SET kind = 'heard' WHERE kind = 'usage'", "unknown_kind"),
    ("UPDATE session_events SET session_id = 'nobody' WHERE kind = 'usage'", "ungrounded"),
    ("UPDATE session_events SET captured_event = 999 WHERE kind = 'started'", "ungrounded"),
    ("UPDATE session_events SET captured_event = seq WHERE kind = 'started'", "ungrounded"),
    ("UPDATE agent_sessions SET current_capture = NULL", "ungrounded"),
    ("DELETE FROM agent_sessions", "ungrounded"),
    ("UPDATE agent_sessions SET driver_exec_id = 'nobody'", "storage"),
]


@pytest.mark.parametrize(("statement", "kind"), DAMAGE)
def test_damage_is_found(setup: SqliteSetup, ledger: Ledger, statement: str, kind: str) -> None:
    setup.raw_sql(statement)
    assert kind in kinds(ledger)
    assert all(problem.where and problem.detail for problem in ledger.verify())


def test_a_recorded_contradiction_is_told(ledger: Ledger) -> None:
    ledger.retain("s", Observation(KEY, "conflict:completed:t:1:abc", 1, {}))
    [problem] = ledger.verify()
    assert (problem.kind, problem.detail) == (
        "conflict",
        "the provider later told it differently: completed:t:1:abc",
    )


@pytest.mark.parametrize("source", ["note:conflict:x", "CONFLICT:x", "conflicts"])
def test_what_only_looks_like_one_is_not(ledger: Ledger, source: str) -> None:
    ledger.retain("s", Observation(KEY, source, 1, {}))
    assert ledger.verify() == []


@pytest.mark.parametrize("statement", [statement for statement, kind in DAMAGE if kind == "drift"])
def test_the_documented_rebuild_repairs_every_list(setup: SqliteSetup, ledger: Ledger, statement: str) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "ledger-format.md").read_text(encoding="utf-8")
    recipe = text.partition("rebuild the lists in this order:")[2].partition("```sql")[2].partition("```")[0]
    assert "turns_fold" in recipe
    setup.raw_sql(statement)
    with raw(setup.path) as connection:
        connection.execute(recipe)
    assert ledger.verify() == []


def test_repairing_a_list_table_by_touching_its_facts(setup: SqliteSetup, ledger: Ledger) -> None:
    """What went wrong in a list comes right when its facts are written again."""
    setup.raw_sql("UPDATE turns SET status = 'failed'")
    setup.raw_sql("UPDATE session_events SET observed_at = observed_at WHERE kind = 'completed'")
    assert ledger.verify() == []


def test_verify_reads_in_pieces(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnlog.ledger.verify._CHUNK", 2)
    assert ledger.verify() == []


def test_lists_are_caches_only(setup: SqliteSetup, ledger: Ledger) -> None:
    """A problem in a list names the session; the history is not touched by it."""
    before = ledger.history("s")
    setup.raw_sql("DELETE FROM turns")
    assert [event.seq for event in ledger.history("s")] == [event.seq for event in before]
    assert {problem.where.split()[1] for problem in ledger.verify()} == {"s"}
