"""Following all conversations from a cursor: nothing is skipped, nothing comes twice, on both backends."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.rows import TupleRow

from tests import postgres_server
from tests.ledger.children import child
from tests.ledger.sqlite_setup import SqliteSetup
from tests.postgres_server import PostgresSetup
from turnlog import InvalidError, Ledger, StaleError
from turnlog.errors import OldLedgerError
from turnlog.ledger import open_store
from turnlog.ledger.tail import Tail
from turnlog.testing.store_suite import StoreSetup


@pytest.fixture(params=["sqlite", "postgres"])
def setup(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSetup:
    return SqliteSetup(tmp_path) if request.param == "sqlite" else PostgresSetup(postgres_server.shared())


@pytest.fixture
def ledger(setup: StoreSetup) -> Iterator[Ledger]:
    with setup.open() as ledger:
        for each in ("a", "b"):
            ledger.create_session(id=each, cwd="/f")
        yield ledger


def tail(ledger: Ledger) -> Tail:
    return ledger._store.tail


def everything(reader: Tail, cursor: str | None, limit: int) -> tuple[list[int], str]:
    seen: list[int] = []
    while True:
        rows, after = reader.read(cursor, limit)
        if not rows:
            assert after == cursor or cursor is None
            return seen, after
        assert len(rows) <= limit
        seen += [row.seq for row in rows]
        cursor = after


# --- both


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_pages_hold_every_receipt_once(ledger: Ledger, limit: int) -> None:
    for number in range(5):
        ledger.record("a", "t", str(number), "usage", {"n": number})
        ledger.record("b", "t", str(number), "started", {})
    wanted = sorted(event.seq for each in ("a", "b") for event in ledger.history(each))
    seen, cursor = everything(tail(ledger), None, limit)
    assert seen == wanted
    assert everything(tail(ledger), cursor, limit) == ([], cursor)
    seq = ledger.record("a", "t", "late", "completed", {"status": "completed"})
    rows, _ = tail(ledger).read(cursor, limit)
    assert [(row.seq, row.session_id, row.turn, row.kind) for row in rows] == [(seq, "a", "late", "completed")]


def test_rows_are_those_of_the_history(ledger: Ledger) -> None:
    exec_id = ledger.start_exec(id="e").id
    ledger.record_turn_origin("a", "t", "1", 7, exec_id)
    ledger.record("a", "t", "1", "usage", {"n": 1})
    rows, _ = tail(ledger).read(None, 100)
    assert [row.parse() for row in rows if row.session_id == "a"] == ledger.history("a")
    assert (rows[-1].exec_id, rows[-1].provider_generation) == (exec_id, 7)


def test_the_end_is_behind_everything(ledger: Ledger) -> None:
    cursor = tail(ledger).end()
    assert tail(ledger).read(cursor, 10) == ([], cursor)
    seq = ledger.record("a", "t", "1", "started", {})
    assert [row.seq for row in tail(ledger).read(cursor, 10)[0]] == [seq]


@pytest.mark.parametrize("cursor", ["", "5", "pg:1", "a:b:c", "sqlite-x:-1:0", "x:1:99999999999999999999"])
def test_what_is_no_cursor_is_refused(ledger: Ledger, cursor: str) -> None:
    with pytest.raises(InvalidError):
        tail(ledger).read(cursor, 10)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_is_positive(ledger: Ledger, limit: int) -> None:
    with pytest.raises(InvalidError):
        tail(ledger).read(None, limit)


def test_a_cursor_of_another_ledger_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    with SqliteSetup(tmp_path / "other").open() as other:
        other.create_session(id="x", cwd="/f")
        _, foreign = tail(other).read(None, 10)
        with pytest.raises(StaleError):
            tail(ledger).read(foreign, 10)
        with pytest.raises(StaleError):
            tail(other).read(tail(ledger).end(), 10)


def test_a_cursor_from_the_future_is_refused(ledger: Ledger) -> None:
    """The ledger went back to an older state: the same numbers will come again for other receipts."""
    home, transaction, _ = tail(ledger).end().split(":")
    future = f"{home}:{int(transaction) and 2**60}:{2**60}"
    with pytest.raises(StaleError):
        tail(ledger).read(future, 10)


# --- PostgreSQL: transactions held open


INSERT = (
    "INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key, observed_at, payload)"
    " VALUES (%s, 't', %s, 'usage', %s, 1, '{}') RETURNING seq"
)


class Writers:
    """Some transactions at once, each in a conversation of its own, begun and committed in any order."""

    def __init__(self, stack: ExitStack, url: str, count: int) -> None:
        self.connections: list[psycopg.Connection[TupleRow]] = [
            stack.enter_context(psycopg.connect(url)) for _ in range(count)
        ]
        self.written: list[int] = []
        self.pending: list[list[int]] = [[] for _ in range(count)]
        self.number = 0

    def write(self, who: int) -> int:
        self.number += 1
        row = self.connections[who].execute(INSERT, (f"s{who}", str(self.number), str(self.number))).fetchone()
        assert row is not None
        self.pending[who].append(row[0])
        return int(row[0])

    def commit(self, who: int) -> None:
        self.connections[who].commit()
        self.written += self.pending[who]
        self.pending[who] = []

    def abort(self, who: int) -> None:
        self.connections[who].rollback()
        self.pending[who] = []


def open_writers(stack: ExitStack, count: int) -> tuple[Ledger, Writers]:
    setup = PostgresSetup(postgres_server.shared())
    ledger = stack.enter_context(setup.open())
    for number in range(count):
        ledger.create_session(id=f"s{number}", cwd="/f")
    return ledger, Writers(stack, setup.url(), count)


def test_an_older_transaction_that_commits_later_is_not_skipped() -> None:
    with ExitStack() as stack:
        ledger, writers = open_writers(stack, 2)
        cursor = tail(ledger).end()
        older = writers.write(0)
        newer = writers.write(1)
        assert older < newer
        writers.commit(1)
        rows, cursor = tail(ledger).read(cursor, 10)
        assert rows == []  # by seq alone it would be told now, and the older one never
        writers.commit(0)
        rows, cursor = tail(ledger).read(cursor, 10)
        assert [row.seq for row in rows] == [older, newer]
        assert tail(ledger).read(cursor, 10) == ([], cursor)


def test_an_end_taken_while_somebody_writes_misses_nothing() -> None:
    with ExitStack() as stack:
        ledger, writers = open_writers(stack, 2)
        older, newer = writers.write(0), writers.write(1)
        writers.commit(1)
        cursor = tail(ledger).end()
        writers.commit(0)
        rows, _ = tail(ledger).read(cursor, 10)
        assert [row.seq for row in rows] == [older, newer]


WRITERS = 4
schedules = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["write", "commit", "write", "abort"]), st.integers(0, WRITERS - 1)),
        st.tuples(st.just("read"), st.integers(1, 3)),
    ),
    max_size=40,
)


@given(schedules)
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_order_transactions_commit_in_every_receipt_is_told_once(schedule: list[tuple[str, int]]) -> None:
    with ExitStack() as stack:
        ledger, writers = open_writers(stack, WRITERS)
        reader, cursor = tail(ledger), tail(ledger).end()
        seen: list[tuple[str, int]] = []

        def read(limit: int) -> int:
            nonlocal cursor
            rows, cursor = reader.read(cursor, limit)
            seen.extend((row.session_id, row.seq) for row in rows)
            return len(rows)

        for what, number in schedule:
            if what == "read":
                read(number)
            else:
                getattr(writers, what)(number)
        for who in range(WRITERS):
            writers.commit(who)
        while read(3):
            pass
        assert sorted(seq for _, seq in seen) == sorted(writers.written)
        for who in range(WRITERS):
            mine = [seq for session, seq in seen if session == f"s{who}"]
            assert mine == sorted(mine)


# --- PostgreSQL: moved


def test_a_restored_ledger_begins_anew_and_skips_nothing(tmp_path: Path) -> None:
    """Transaction ids of restored rows were another database's. Until somebody writes there, it cannot be followed."""
    server = postgres_server.shared()
    source, target = server.new_database(), server.new_database()
    with open_ledger_store(server.url(source)) as ledger:
        ledger.create_session(id="a", cwd="/f")
        for number in range(20):
            ledger.record("a", "t", str(number), "usage", {"n": number})
        old = [event.seq for event in ledger.history("a")]
        _, cursor = tail(ledger).read(None, 100)
    dump = tmp_path / "dump"
    for program, *args in (
        ("pg_dump", "--format=custom", f"--file={dump}", f"--dbname={server.url(source)}"),
        ("pg_restore", "--no-owner", f"--dbname={server.url(target)}", str(dump)),
    ):
        subprocess.run([server.binaries / program, *args], check=True)
    with open_ledger_store(server.url(target), read_only=True) as reader, pytest.raises(OldLedgerError):
        tail(reader).read(None, 10)
    with open_ledger_store(server.url(target)) as ledger:
        with pytest.raises(StaleError):
            tail(ledger).read(cursor, 10)
        new = ledger.record("a", "t", "new", "usage", {"n": 99})
        assert everything(tail(ledger), None, 7)[0] == [*old, new]
        assert ledger.verify() == []
        assert ledger.history("a")[-1].payload == {"n": 99}


def open_ledger_store(url: str, *, read_only: bool = False) -> Ledger:
    return Ledger(open_store(url, read_only=read_only))


# --- waiting


WRITER = """
import sys
import turnlog
with turnlog.open_ledger(sys.argv[1]) as ledger:
    print("ready")
    for line in sys.stdin:
        ledger.record("a", "t", line.strip(), "usage", {"n": line})
"""


def test_whoever_follows_is_woken_by_a_commit_of_another_process(ledger: Ledger, setup: StoreSetup) -> None:
    stop = threading.Event()
    with child(WRITER, setup.url()) as writer:
        assert writer.line() == "ready"
        took = []
        pages = ledger.follow(ledger.tail_end(), stop=stop)
        assert next(pages).receipts == ()
        for number in range(10):
            began = time.monotonic()
            writer.say(str(number))
            while not (page := next(pages)).receipts:
                pass
            took.append(time.monotonic() - began)
            assert [each.turn for each in page.receipts] == [str(number)]
            assert next(pages).receipts == ()
        stop.set()
        assert list(pages) == []
    assert min(took) < 0.2


def test_the_server_tells_while_somebody_listens(tmp_path: Path) -> None:
    """Nobody is told where nobody listens: commits that tell others wait for each other."""
    setup = PostgresSetup(postgres_server.shared())
    with setup.open() as ledger, psycopg.connect(setup.url(), autocommit=True) as ear:
        ledger.create_session(id="a", cwd="/f")
        ear.execute("LISTEN turnlog")
        ledger.record("a", "t", "1", "started", {})
        assert list(ear.notifies(timeout=0.1, stop_after=1)) == []
        with setup.open() as follower:
            pages = follower.follow(None)
            while next(pages).receipts:
                pass
            next(pages)  # after the first pause
            assert setup.raw_sql("SELECT count(*) FROM watchers") == [(1,)]
            ledger.record("a", "t", "2", "started", {})
            assert len(list(ear.notifies(timeout=5, stop_after=1))) == 1
            del pages
        assert setup.raw_sql("SELECT count(*) FROM watchers") == [(0,)]


def test_one_that_only_reads_follows_too(ledger: Ledger, setup: StoreSetup) -> None:
    with setup.open(read_only=True) as reader:
        pages = reader.follow(reader.tail_end())
        assert next(pages).receipts == ()
        seq = ledger.record("a", "t", "1", "started", {})
        while not (page := next(pages)).receipts:
            pass
        assert [each.seq for each in page.receipts] == [seq]
        del pages


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_filters_let_only_some_through_and_move_on(ledger: Ledger, limit: int) -> None:
    for number in range(4):
        ledger.record("a", "t", str(number), "usage", {"n": number})
        ledger.record("b", "t", str(number), "started", {})
    for only in ({"session": "a"}, {"kind": "started"}, {"session": "b", "kind": "started"}):
        wanted = [
            event.seq
            for each in ("a", "b")
            for event in ledger.history(each)
            if only.get("session", each) == each and only.get("kind", event.kind) == event.kind
        ]
        seen: list[int] = []
        cursor = None
        while (page := ledger.tail(cursor, limit=limit, **only)).receipts:
            seen += [each.seq for each in page.receipts]
            cursor = page.cursor
        assert sorted(seen) == sorted(wanted)
        assert ledger.tail(page.cursor).receipts == ()
