"""On PostgreSQL too the list tables equal a fresh fold of the facts, whatever happens, however many act at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import postgres_server
from tests.ledger import test_lists_follow_facts as facts
from tests.ledger.test_verify import DAMAGE, KEY
from tests.postgres_server import PostgresSetup
from turnlog import Ledger, Observation, TurnlogError
from turnlog.ledger import verify
from turnlog.receipts import receipt_key


class World(facts.World):
    """The words of the SQLite test, said to PostgreSQL."""

    def __init__(self) -> None:
        server = postgres_server.shared()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(facts, "SqliteSetup", lambda folder: PostgresSetup(server))
            super().__init__(Path())

    def do(self, verb: int, *numbers: int) -> None:
        with suppress(psycopg.Error):  # refused, so nothing happened
            super().do(verb, *numbers)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    with world.ledger:
        yield world


def run(steps: list[tuple[int, int, int, int]]) -> None:
    world = World()
    with world.ledger:
        for step in steps:
            world.do(*step)
            assert world.drift() == [], step


@given(facts.operations)
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_lists_equal_their_folds_after_any_operation(steps: list[tuple[int, int, int, int]]) -> None:
    run(steps)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@given(st.lists(st.tuples(st.integers(0, 200), facts.small, facts.small, facts.small), min_size=10, max_size=60))
@settings(max_examples=1000, deadline=None)
def test_lists_equal_their_folds_for_hours(steps: list[tuple[int, int, int, int]]) -> None:
    run(steps)


@pytest.mark.parametrize("source", ["superseded:t:1", "death:e1", "absorbed:t:2", "refused:r0", "refused:r1"])
def test_a_release_taken_back_holds_again(world: World, source: str) -> None:
    def lists() -> Any:
        return [world.setup.raw_sql(f"SELECT * FROM {table} ORDER BY 1, 2, 3") for table in ("turns", "intents")]

    before = lists()
    world.ledger.retain("a", Observation(facts.KEYS[0], source, 1, {}))
    assert lists() != before
    assert world.drift() == []
    world.setup.raw_sql("DELETE FROM session_events WHERE kind = 'observed'")
    assert lists() == before
    assert world.drift() == []


# --- damage, found and repaired


@pytest.fixture
def damaged() -> Iterator[tuple[PostgresSetup, Ledger]]:
    setup = PostgresSetup(postgres_server.shared())
    with setup.open() as ledger:
        ledger.create_session(id="s", artifact_key=KEY, cwd="/f")
        ledger.start_exec(id="e")
        driver = ledger.claim_driver("s", None, "e")
        ledger.intend_turn("s", driver, "t", "request", {"text": "hello"}, turn="1")
        for kind, payload in (("started", {}), ("usage", {"n": 1}), ("completed", {"status": "completed"})):
            ledger.record("s", "t", "1", kind, payload)
        ledger.retain("s", Observation(KEY, "superseded:t:2", 1, {"by": "3"}))
        assert ledger.verify() == []
        yield setup, ledger


POSSIBLE = [
    (statement, kind)
    for statement, kind in DAMAGE
    # What foreign keys refuse here, as an SQLite client that has them switched off does not.
    if kind != "storage" and "'nobody'" not in statement and statement != "DELETE FROM agent_sessions"
]


@pytest.mark.parametrize(("statement", "kind"), POSSIBLE)
def test_damage_is_found(damaged: tuple[PostgresSetup, Ledger], statement: str, kind: str) -> None:
    setup, ledger = damaged
    setup.raw_sql(statement)
    assert kind in {problem.kind for problem in ledger.verify()}


@pytest.mark.parametrize("statement", [statement for statement, kind in POSSIBLE if kind == "drift"])
def test_the_documented_rebuild_repairs_every_list(damaged: tuple[PostgresSetup, Ledger], statement: str) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "ledger-format.md").read_text(encoding="utf-8")
    recipe = text.partition("rebuild the lists in this order:")[2].partition("```sql")[2].partition("```")[0]
    setup, ledger = damaged
    setup.raw_sql(statement)
    for step in recipe.split(";"):
        if step.strip():
            setup.raw_sql(step)
    assert ledger.verify() == []


def test_a_disabled_trigger_is_told(damaged: tuple[PostgresSetup, Ledger]) -> None:
    setup, ledger = damaged
    setup.raw_sql("ALTER TABLE session_events DISABLE TRIGGER lists_of_added")
    try:
        [problem] = ledger.verify()
        assert problem.kind == "storage"
        assert "lists_of_added" in problem.detail
    finally:
        setup.raw_sql("ALTER TABLE session_events ENABLE TRIGGER lists_of_added")
    assert ledger.verify() == []


# --- many at once


@pytest.mark.parametrize("attempt", range(3))
def test_ends_of_execs_and_new_turns_meet(attempt: int) -> None:
    """What ends an exec in one transaction and what begins its turns in another never miss each other."""
    setup = PostgresSetup(postgres_server.shared())
    sessions, execs, rounds = 3, 6, 8
    with setup.open() as ledger:
        for number in range(sessions):
            ledger.create_session(id=f"s{number}", cwd="/f")
        for number in range(execs * rounds):
            ledger.start_exec(id=f"e{number}")
        gate = threading.Barrier(sessions + 2)
        errors: list[TurnlogError] = []

        def begin(session: int) -> None:
            for number in range(rounds):
                gate.wait(30)
                for each in range(execs):
                    exec_id = f"e{number * execs + each}"
                    ledger.record_turn_origin(f"s{session}", "t", exec_id, 1, exec_id)

        def end(how: int) -> None:
            for number in range(rounds):
                gate.wait(30)
                for each in range(how, execs, 2):
                    exec_id = f"e{number * execs + each}"
                    try:
                        if how:
                            ledger.end_exec(exec_id, "failed")
                        else:
                            ledger.retain_for_turn(f"s{each % sessions}", "t", None, f"death:{exec_id}", {})
                    except TurnlogError as error:
                        errors.append(error)

        with ThreadPoolExecutor(sessions + 2) as pool:
            work = [pool.submit(begin, each) for each in range(sessions)] + [
                pool.submit(end, each) for each in range(2)
            ]
            for each in work:
                each.result()
        assert errors == []
        assert [problem.detail for problem in verify._drift(ledger._store._backend)] == []
        held = setup.raw_sql("SELECT count(*) FROM turns WHERE released = 0")
        assert list(held) == [(0,)]


def test_plain_sql_beside_a_writer_leaves_no_drift() -> None:
    """A person's transaction without any lock of its own, and ours, at the same turn."""
    setup = PostgresSetup(postgres_server.shared())
    with setup.open() as ledger:
        made = ledger.create_session(id="s", cwd="/f")
        with psycopg.connect(setup.url()) as person:
            person.execute(
                "INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key,"
                " observed_at, payload, captured_event) VALUES ('s', 't', '1', 'started', '', 5, '{}', %s)",
                (made.captured,),
            )
            writer = threading.Thread(target=ledger.record, args=("s", "t", "1", "completed", {"status": "completed"}))
            writer.start()
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while list(setup.raw_sql(waiting)) == [(0,)]:
                assert writer.is_alive()
            person.commit()
            writer.join(20)
        assert ledger.verify() == []
        assert list(setup.raw_sql("SELECT start_seq IS NULL, completion_seq IS NULL FROM turns")) == [(False, False)]


def test_keys_by_the_database_and_by_turnlog_agree() -> None:
    """The locks of triggers and of verbs are the same."""
    from turnlog.ledger.postgres_tx import lock_key

    setup = PostgresSetup(postgres_server.shared())
    for name in ("", "conversation", "über:🙂", receipt_key("usage", "{}")):
        [(key,)] = setup.raw_sql("SELECT turnlog_lock_key('session', :name)", {"name": name})
        assert key == lock_key("session", name)
