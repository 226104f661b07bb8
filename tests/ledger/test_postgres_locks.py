"""Who waits for whom on PostgreSQL: writers of one conversation, drivers, nobody else."""

from __future__ import annotations

import threading

import pytest

from tests import postgres_server
from tests.postgres_server import PostgresSetup, backend_of
from turnlog import Ledger, TurnlogError, UnavailableError

THREAD = "thread"


@pytest.fixture
def setup() -> PostgresSetup:
    return PostgresSetup(postgres_server.shared())


def fill(ledger: Ledger, receipts: int = 3) -> None:
    ledger.create_session(id="conversation", cwd="/f")
    ledger.record_many("conversation", [(THREAD, str(n), "usage", {"n": n}) for n in range(receipts)])


def test_writers_of_other_conversations_do_not_wait(setup: PostgresSetup) -> None:
    """No global lock: a transaction that stays open holds up its own conversation only."""
    with setup.open() as ledger, setup.impatient() as other:
        for each in ("mine", "theirs"):
            ledger.create_session(id=each, cwd="/f")
        with backend_of(ledger).write() as tx:
            tx.insert_native(("mine", THREAD, "1", "started", "", 1, "{}"))
            other.record("theirs", THREAD, "1", "started", {})
            with pytest.raises(UnavailableError, match="locked by another"):
                other.record("mine", THREAD, "2", "started", {})
            assert [event.kind for event in other.history("mine")] == ["captured"]
        other.record("mine", THREAD, "2", "started", {})
        assert [event.turn for event in ledger.history("mine")] == [None, "1", "2"]


def test_seq_is_the_order_of_commits_within_a_conversation(setup: PostgresSetup) -> None:
    """A writer that waits for another takes its seq afterwards."""
    with setup.open() as ledger:
        fill(ledger, 0)
        done = threading.Event()

        def later() -> None:
            ledger.record("conversation", THREAD, "later", "started", {})
            done.set()

        writer = threading.Thread(target=later)
        with backend_of(ledger).write() as tx:
            assert tx.one("session", id="conversation") is not None
            writer.start()
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while list(setup.raw_sql(waiting)) == [(0,)]:
                assert not done.is_set()
            first = tx.insert_native(("conversation", THREAD, "first", "started", "", 1, "{}"))
        writer.join(20)
        assert [event.turn for event in ledger.history("conversation")] == [None, "first", "later"]
        assert first is not None


def test_waits_are_parameters(setup: PostgresSetup) -> None:
    with setup.impatient() as ledger:
        fill(ledger)
        backend = backend_of(ledger)
        with (
            backend.session_lock("conversation"),
            pytest.raises(UnavailableError, match="busy"),
            backend.session_lock("conversation"),
        ):
            pass
        with backend.session_lock("conversation"):
            pass


def test_a_lock_whose_connection_died_is_free_again(setup: PostgresSetup) -> None:
    """The tuple still fences; nobody waits for a lock that ended."""
    with setup.open() as ledger, setup.impatient() as other:
        fill(ledger)
        with backend_of(ledger).session_lock("conversation"):
            setup.raw_sql(
                "SELECT pg_terminate_backend(l.pid) FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted"
            )
            with backend_of(other).session_lock("conversation"):
                pass
        with backend_of(ledger).session_lock("conversation"):
            pass


def test_many_threads_may_drive_at_once(setup: PostgresSetup) -> None:
    """The lock of a driver has a connection of its own: writes inside cannot be starved of one."""
    with setup.open() as ledger:
        names = [f"s{number}" for number in range(12)]
        for each in names:
            ledger.create_session(id=each, cwd="/f")
            ledger.start_exec(id=f"e-{each}")
        drivers = {each: ledger.claim_driver(each, None, f"e-{each}") for each in names}
        gate = threading.Barrier(len(names))
        failed: list[BaseException] = []

        def drive(name: str) -> None:
            try:
                with ledger.driving(name, drivers[name]):
                    gate.wait(30)
                    ledger.record(name, THREAD, "1", "started", {})
            except (TurnlogError, threading.BrokenBarrierError) as error:
                failed.append(error)

        threads = [threading.Thread(target=drive, args=(each,)) for each in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(40)
        assert failed == []
