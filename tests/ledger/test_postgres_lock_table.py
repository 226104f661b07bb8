"""A server has room for some thousand locks: no transaction of a ledger takes more than some hundred of them."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.rows import TupleRow

from tests import postgres_server
from tests.postgres_server import PostgresSetup, Server, backend_of
from turnlog import Ledger, UnavailableError
from turnlog.model import Problem

pytestmark = pytest.mark.timeout(300)

MANY = 5_000
"""More than the server of the tests has room for (64 for each of 60 connections)."""
FEW = 1_100
"""Five hundred that turnlog takes, as many that triggers take, and the few of tables."""

SESSIONS = (
    "INSERT INTO agent_sessions (id, title, title_source, created_at, input_published, cwd)"
    " SELECT 's' || i, 't', 'generated', 1, 0, '/f' FROM generate_series(1, :many) AS n (i)"
)
STARTS = (
    "INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key, observed_at, payload,"
    " exec_id) SELECT 's' || i, 'thread', 'turn', 'started', '', 1, '{}', {exec}"
    " FROM generate_series(1, :many) AS n (i)"
)
HELD = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()"


@pytest.fixture
def server() -> Server:
    return postgres_server.shared()


@pytest.fixture
def setup(server: Server) -> PostgresSetup:
    return PostgresSetup(server)


@pytest.fixture
def plain(setup: PostgresSetup) -> Iterator[psycopg.Connection[TupleRow]]:
    with psycopg.connect(setup.url(), autocommit=True) as connection:
        yield connection


def execs(setup: PostgresSetup, many: int) -> None:
    setup.raw_sql(
        "INSERT INTO execs (id, trace_id, started_at) SELECT 'e' || i, 't', 1 FROM generate_series(1, :many) AS n (i)",
        {"many": many},
    )


def drift(ledger: Ledger) -> list[Problem]:
    """Where lists differ from their facts; what is made here is no whole ledger otherwise."""
    return [each for each in ledger.verify() if each.kind == "drift"]


def changed_by_one_statement(connection: psycopg.Connection[TupleRow], statement: str, held: int = FEW) -> None:
    with connection.transaction():
        connection.execute(statement.encode())
        [(locks,)] = connection.execute(HELD)
        assert locks < held


def test_one_statement_may_append_to_thousands_of_conversations_of_as_many_processes(
    setup: PostgresSetup, plain: psycopg.Connection[TupleRow]
) -> None:
    with setup.open() as ledger:
        setup.raw_sql(SESSIONS, {"many": MANY})
        execs(setup, MANY)
        statement = STARTS.replace("{exec}", "'e' || i").replace(":many", str(MANY))
        changed_by_one_statement(plain, statement)
        assert setup.raw_sql("SELECT count(*) FROM turns WHERE completion_seq IS NULL AND released = 0") == [(MANY,)]
        assert drift(ledger) == []


def test_one_statement_may_close_thousands_of_conversations(
    setup: PostgresSetup, plain: psycopg.Connection[TupleRow]
) -> None:
    with setup.open() as ledger:
        setup.raw_sql(SESSIONS, {"many": MANY})
        setup.raw_sql(STARTS.replace("{exec}", "NULL"), {"many": MANY})
        changed_by_one_statement(plain, "UPDATE agent_sessions SET completed_at = 2")
        assert setup.raw_sql("SELECT count(*) FROM turns WHERE released = 1") == [(MANY,)]
        assert drift(ledger) == []


def test_the_end_of_a_process_that_left_thousands_of_turns_open_lets_all_go(setup: PostgresSetup) -> None:
    with setup.open() as ledger:
        ledger.start_exec(id="e")
        setup.raw_sql(SESSIONS, {"many": MANY})
        setup.raw_sql(STARTS.replace("{exec}", "'e'"), {"many": MANY})
        assert setup.raw_sql("SELECT count(*) FROM turns WHERE released = 0") == [(MANY,)]
        ledger.end_exec("e", "failed")
        assert setup.raw_sql("SELECT count(*) FROM turns WHERE released = 1") == [(MANY,)]
        assert drift(ledger) == []


def test_one_transaction_of_ours_may_write_into_thousands_of_conversations(setup: PostgresSetup) -> None:
    with setup.open() as ledger:
        setup.raw_sql(SESSIONS, {"many": MANY})
        rows = [(f"s{i}", "thread", "turn", "usage", f"{i:064x}", 1, "{}") for i in range(1, MANY + 1)]
        with backend_of(ledger).write() as tx:
            for row in rows[: MANY // 2]:
                assert tx.one("session", id=row[0]) is not None
            assert None not in tx.insert_natives(rows)
            assert tx.connection is not None
            [(locks,)] = tx.connection.execute(HELD)
            assert locks < FEW
        assert setup.raw_sql("SELECT count(*) FROM turns") == [(MANY,)]
        assert drift(ledger) == []


def test_many_receipts_of_one_conversation_are_one_lock(setup: PostgresSetup) -> None:
    """Nobody else waits for it, however long it is."""
    with setup.open() as ledger, setup.impatient() as other:
        for name in ("long", "other"):
            ledger.create_session(id=name, cwd="/f")
        with backend_of(ledger).write() as tx:
            for number in range(1_500):
                assert tx.insert_native(("long", "thread", str(number), "started", "", 1, "{}")) is not None
            other.record("other", "thread", "1", "started", {})
        assert len(ledger.history("long")) == 1_501


def test_whoever_touches_so_many_is_alone_with_them(setup: PostgresSetup) -> None:
    """Another writer waits, a reader does not; a writer that was first is waited for."""
    with setup.open() as ledger, setup.impatient() as other:
        setup.raw_sql(SESSIONS, {"many": 600})
        rows = [(f"s{i}", "thread", "turn", "usage", f"{i:064x}", 1, "{}") for i in range(1, 601)]
        with backend_of(ledger).write() as tx:
            tx.insert_natives(rows)
            with pytest.raises(UnavailableError, match="locked by another"):
                other.record("s600", "thread", "turn", "started", {})
            assert other.history("s600") == []
        with backend_of(ledger).write() as tx:
            tx.insert_native(("s1", "thread", "turn", "started", "", 1, "{}"))
            with pytest.raises(UnavailableError, match="locked by another"), backend_of(other).write() as many:
                many.insert_natives([(*row[:4], f"x{row[4]}", *row[5:]) for row in rows])
        other.record("s600", "thread", "turn", "started", {})
        assert drift(ledger) == []
