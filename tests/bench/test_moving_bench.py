"""Copying and pushing against what the server can take: the same rows by COPY and by INSERT into the same schema."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests import postgres_server
from tests.bench.table import Row, show
from tests.postgres_server import Server
from turnlog import Ledger, open_ledger

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

SESSIONS = 400
TURNS = 10
USAGE = 8

_COLUMNS = "session_id, provider_thread, provider_turn, kind, receipt_key, observed_at, payload"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server.durable() as made:
        yield made


def fill(ledger: Ledger) -> int:
    """Conversations of ordinary turns; returns how many receipts."""
    for number in range(SESSIONS):
        session = ledger.create_session(id=f"s{number}", cwd="/f", provider="codex", created_at=1).id
        rows: list[tuple[str, str, str, object]] = []
        for turn in range(TURNS):
            counters = [{"total": {"inputTokens": turn * 100 + call, "pad": "x" * 150}} for call in range(USAGE)]
            rows.append(("t", str(turn), "started", {}))
            rows += [("t", str(turn), "usage", each) for each in counters]
            rows.append(("t", str(turn), "completed", {"status": "completed"}))
        ledger.record_many(session, rows)
    return SESSIONS * (1 + TURNS * (USAGE + 2))


def bare(server: Server, ledger: Ledger, write: Callable[[psycopg.Cursor, list[tuple[object, ...]]], None]) -> float:
    """Return the seconds for the bare rows, in transactions as large as a push's."""
    name = server.new_database()
    with open_ledger(server.url(name)) as target:
        for number in range(SESSIONS):
            target.create_session(id=f"s{number}", cwd="/f", provider="codex", created_at=1)
    rows: list[tuple[object, ...]] = [
        (e.session_id, e.thread, e.turn, e.kind.value, str(e.seq), e.observed_at, "{}" + "x" * 190)
        for number in range(SESSIONS)
        for e in ledger.history(f"s{number}")
        if e.kind != "captured"
    ]
    with psycopg.connect(server.url(name)) as connection, connection.cursor() as cursor:
        begin = time.perf_counter()
        for start in range(0, len(rows), 1_000):
            write(cursor, rows[start : start + 1_000])
            connection.commit()
        return time.perf_counter() - begin


def by_copy(cursor: psycopg.Cursor, rows: list[tuple[object, ...]]) -> None:
    with cursor.copy(f"COPY session_events ({_COLUMNS}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def by_insert(cursor: psycopg.Cursor, rows: list[tuple[object, ...]]) -> None:
    cursor.executemany(f"INSERT INTO session_events ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s)", rows)


def test_moving(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnlog.api.moving._fold", lambda store: None)  # a cache, which is made once for all
    with open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        count = fill(ledger)
        limits = {"COPY": bare(server, ledger, by_copy), "INSERT": bare(server, ledger, by_insert)}
        rows = []
        moves: dict[str, Callable[[str], object]] = {"push": ledger.push_to, "copy": ledger.copy_to}
        for what, move in moves.items():
            url = server.url(server.new_database())
            open_ledger(url).close()
            begin = time.perf_counter()
            move(url)
            took = time.perf_counter() - begin
            rows += [
                Row(
                    f"{what} to PostgreSQL",
                    f"{count / took:,.0f} receipts/s",
                    f"{name} {count / limit:,.0f}/s",
                    f"{limit / took:.2f}",
                )
                for name, limit in limits.items()
            ]
            begin = time.perf_counter()
            move(url)
            rows.append(Row(f"{what} again, nothing new", f"{(time.perf_counter() - begin) * 1000:,.0f} ms"))
        begin = time.perf_counter()
        ledger.copy_to(f"sqlite:///{tmp_path / 'copy.db'}")
        rows.append(Row("copy to SQLite", f"{count / (time.perf_counter() - begin):,.0f} receipts/s"))
    show("moving between ledgers", rows)
