"""The ledger against its budgets (architecture 7), as ratios in one run where a peer or limit is named.

``make bench`` prints them. Nothing here asserts a time: a busy machine is no defect.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import apsw
import pytest

from tests.bench.big_ledger import build
from tests.bench.table import Row, best, milliseconds, show
from turnlog import Ledger, open_ledger
from turnlog.ledger.backend import named_queries
from turnlog.receipts import canonical, receipt_key

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

SINGLE = 600
BULK = 60_000
TURNS = 600


def payload(number: int) -> dict[str, object]:
    """A Codex usage payload of ordinary size."""
    counters = {
        "inputTokens": number,
        "outputTokens": 3,
        "cachedInputTokens": 2,
        "reasoningOutputTokens": 1,
        "totalTokens": number + 3,
    }
    return {"total": counters, "last": counters, "modelContextWindow": 272_000}


def new_ledger(path: Path) -> tuple[Ledger, apsw.Connection]:
    """A ledger with one conversation, and a bare connection to the same schema with the same durability."""
    ledger = open_ledger(f"sqlite:///{path}")
    ledger.create_session(id="conversation", cwd="/f")
    bare = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    bare.execute("PRAGMA synchronous = FULL")
    bare.execute("PRAGMA foreign_keys = ON")
    return ledger, bare


def bare_row(thread: str, turn: str, number: int) -> tuple[object, ...]:
    text = canonical(payload(number))
    return ("conversation", thread, turn, "usage", receipt_key("usage", text), 1_000, text)


def test_record_one_receipt_durably(tmp_path: Path) -> None:
    ledger, bare = new_ledger(tmp_path / "ledger.db")
    insert = named_queries("sqlite")["insert_native"]
    rows = [bare_row("bare", "turn", number) for number in range(SINGLE)]

    def by_ledger(number: int) -> None:
        ledger.record("conversation", "ledger", "turn", "usage", payload(number))

    def by_hand(number: int) -> None:
        bare.execute("BEGIN IMMEDIATE")
        bare.execute(insert, rows[number])
        bare.execute("COMMIT")

    # In turns, so that a disturbance meets both.
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(SINGLE):
        for work, times in ((by_ledger, ours), (by_hand, theirs)):
            begin = time.perf_counter()
            work(number)
            times.append(time.perf_counter() - begin)
    bare.close()
    ledger.close()
    ratio = median(theirs) / median(ours)
    show(
        f"one receipt, durably (SQLite, WAL, FULL; median of {SINGLE})",
        [
            Row(
                "Ledger.record",
                milliseconds(median(ours)),
                f"bare insert {milliseconds(median(theirs))}",
                f"{ratio:.2f}×",
                "≥ 0.6×",
                ratio >= 0.6,
            )
        ],
    )


def test_bulk_append(tmp_path: Path) -> None:
    numbers = itertools.count()
    sizes: list[float] = []
    rates: dict[str, list[float]] = {"ledger": [], "bare": []}
    insert = named_queries("sqlite")["insert_native"].removesuffix(" RETURNING seq")
    receipts = [("thread", f"turn-{n % TURNS}", "usage", payload(n)) for n in range(BULK)]
    prepared = [bare_row("thread", f"turn-{n % TURNS}", n) for n in range(BULK)]

    def run(name: str, work: Callable[[Ledger, apsw.Connection], object]) -> None:
        path = tmp_path / f"{name}{next(numbers)}.db"
        ledger, bare = new_ledger(path)
        begin = time.perf_counter()
        work(ledger, bare)
        rates[name].append(BULK / (time.perf_counter() - begin))
        bare.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        bare.close()
        ledger.close()
        sizes.append(path.stat().st_size / BULK)

    def by_ledger(ledger: Ledger, bare: apsw.Connection) -> None:
        assert ledger.record_many("conversation", receipts) == (BULK, 0)

    def by_hand(ledger: Ledger, bare: apsw.Connection) -> None:
        bare.execute("BEGIN IMMEDIATE")
        bare.executemany(insert, prepared)
        bare.execute("COMMIT")

    for _ in range(3):
        run("ledger", by_ledger)
        run("bare", by_hand)
    ours, theirs = max(rates["ledger"]), max(rates["bare"])
    size = len(prepared[0][6]) if isinstance(prepared[0][6], str) else 0
    show(
        f"bulk append of {BULK} usage receipts ({size} bytes each, {TURNS} turns)",
        [
            Row("Ledger.record_many", f"{ours:,.0f}/s", "", "", "≥ 30,000/s", ours >= 30_000),
            Row("", "", f"bare executemany {theirs:,.0f}/s", f"{ours / theirs:.2f}×", "≥ 0.6×", ours >= 0.6 * theirs),
            Row("on disk, indexes and lists included", f"{median(sizes):.0f} bytes per receipt"),
        ],
    )


def test_recent_inputs(tmp_path: Path) -> None:
    small, big = 1_000, 100_000
    receipts = {}
    ledgers = {}
    for sessions in (small, big):
        path = tmp_path / f"{sessions}.db"
        receipts[sessions] = build(path, sessions, open_every=5_000)
        ledgers[sessions] = open_ledger(f"sqlite:///{path}", read_only=True)
    middle = f"session_{big // 2:032x}"
    reads: list[tuple[str, Callable[[Ledger, int], object]]] = [
        ("recent_inputs(limit=50)", lambda ledger, n: ledger.recent_inputs(limit=50)),
        ("recent_inputs(since=…, limit=50)", lambda ledger, n: ledger.recent_inputs(since=(n - 40) * 1000, limit=50)),
        ("input_history(key)", lambda ledger, n: ledger.input_history(f"{n // 2:032x}")),
        ("sessions()", lambda ledger, n: ledger.sessions()),
        ("sessions(all=True), middle page", lambda ledger, n: ledger.sessions(all=True, cursor=middle)),
        ("sessions(search=…), no hit", lambda ledger, n: ledger.sessions(all=True, search="nothing")),
        ("latest_session()", lambda ledger, n: ledger.latest_session()),
    ]
    rows = []
    for number, (name, read) in enumerate(reads):
        measured = {}
        for sessions, ledger in ledgers.items():
            if "middle" in name and sessions == small:
                continue
            measured[sessions] = best(lambda ledger=ledger, sessions=sessions, read=read: read(ledger, sessions))  # type: ignore[misc]
        ratio = measured[big] / measured[small] if small in measured else 0.0
        budget = number < 2
        rows.append(
            Row(
                name,
                milliseconds(measured[big]),
                f"at {small}: {milliseconds(measured[small])}" if small in measured else "",
                f"{ratio:.2f}×" if small in measured else "",
                "≤ 20 ms and ≤ 1.5×" if budget else "",
                (measured[big] <= 0.020 and ratio <= 1.5) if budget else None,
            )
        )
    for ledger in ledgers.values():
        ledger.close()
    show(f"lists at {big} sessions with {receipts[big]:,} receipts", rows)
