"""The team ledger against its budgets, PostgreSQL beside SQLite: each against a bare INSERT with its own durability.

``make bench`` prints them. Nothing here asserts a time: a busy machine is no defect.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import apsw
import psycopg
import pytest

from tests import postgres_server
from tests.bench import big_ledger, big_postgres, usage_ledger
from tests.bench.table import Row, best, milliseconds, show
from tests.bench.test_ledger_bench import payload
from tests.postgres_server import Server
from turnlog import Ledger, open_ledger
from turnlog.ledger.backend import named_queries
from turnlog.receipts import canonical, receipt_key

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]

APPENDS = 400
WRITERS = (1, 2, 8)


class Place(Protocol):
    """A kind of database, where ledgers can be made."""

    def new(self) -> str: ...

    def bare(self, url: str, closing: ExitStack) -> Callable[[tuple[Any, ...]], None]: ...

    def big(self, url: str, sessions: int, usages: int) -> int: ...

    def rolled(self, url: str) -> None: ...


class Sqlite:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = 0

    def new(self) -> str:
        self.number += 1
        return f"sqlite:///{self.folder}/{self.number}.db"

    def bare(self, url: str, closing: ExitStack) -> Callable[[tuple[Any, ...]], None]:
        connection = apsw.Connection(url.removeprefix("sqlite:///"), flags=apsw.SQLITE_OPEN_READWRITE)
        closing.callback(connection.close)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.setbusytimeout(10_000)
        insert = named_queries("sqlite")["insert_native"]

        def append(row: tuple[Any, ...]) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(insert, row)
            connection.execute("COMMIT")

        return append

    def big(self, url: str, sessions: int, usages: int) -> int:
        return big_ledger.build(Path(url.removeprefix("sqlite:///")), sessions, open_every=5_000, usages=usages)

    def rolled(self, url: str) -> None:
        usage_ledger.rolled(Path(url.removeprefix("sqlite:///")), 30_000, 1_000_000)


class Postgres:
    def __init__(self, server: Server) -> None:
        self.server = server

    def new(self) -> str:
        return self.server.url(self.server.new_database())

    def bare(self, url: str, closing: ExitStack) -> Callable[[tuple[Any, ...]], None]:
        connection = psycopg.connect(url, autocommit=True)
        insert = (
            "INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key, observed_at,"
            " payload) VALUES (%s, %s, %s, %s, %s, %s, %s)"
        )
        closing.callback(connection.close)

        def append(row: tuple[Any, ...]) -> None:
            connection.execute(insert, row, prepare=True)

        return append

    def big(self, url: str, sessions: int, usages: int) -> int:
        return big_postgres.build(url, sessions, open_every=5_000, usages=usages)

    def rolled(self, url: str) -> None:
        big_postgres.roll(url, 30_000, 1_000_000)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """With the durability that a server has by default."""
    with postgres_server.durable() as server:
        yield server


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def place(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> Place:
    return Sqlite(tmp_path) if request.param == "SQLite" else Postgres(server)


def name(place: Place) -> str:
    return "SQLite, WAL, FULL" if isinstance(place, Sqlite) else "PostgreSQL, fsync, over a Unix socket"


def together(work: list[Callable[[int], None]]) -> float:
    """Let each do its appends at the same time in a thread of its own; return appends per second."""
    gate = threading.Barrier(len(work) + 1)

    def run(each: Callable[[int], None]) -> None:
        gate.wait(60)
        for number in range(APPENDS // len(work)):
            each(number)

    threads = [threading.Thread(target=run, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    gate.wait(60)
    begin = time.perf_counter()
    for thread in threads:
        thread.join()
    return APPENDS / (time.perf_counter() - begin)


def test_appends_by_writers(place: Place) -> None:
    """Each writer has a conversation of its own, as turnlogs on several machines have."""
    rows = []
    for writers in WRITERS:
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(3):
            url = place.new()
            with ExitStack() as closing:
                handles = [closing.enter_context(open_ledger(url)) for _ in range(writers)]
                for number in range(writers):
                    handles[0].create_session(id=f"s{number}", cwd="/f")
                ours.append(together([partial(by_ledger, handle, f"s{n}") for n, handle in enumerate(handles)]))
                bare = [place.bare(url, closing) for _ in range(writers)]
                theirs.append(together([partial(by_hand, append, f"s{n}") for n, append in enumerate(bare)]))
        ratio = median(ours) / median(theirs)
        budget = ("≥ 0.6×", ratio >= 0.6) if writers == 1 and isinstance(place, Sqlite) else ("", None)
        rows.append(
            Row(
                f"{writers} writers" if writers > 1 else "1 writer",
                f"{median(ours):,.0f}/s",
                f"bare insert {median(theirs):,.0f}/s",
                f"{ratio:.2f}×",
                *budget,
            )
        )
    show(f"appends, one receipt in each transaction ({name(place)})", rows)


def by_ledger(ledger: Ledger, session: str, number: int) -> None:
    ledger.record(session, "ledger", "turn", "usage", payload(number))


def by_hand(append: Callable[[tuple[Any, ...]], None], session: str, number: int) -> None:
    text = canonical(payload(number))
    append((session, "bare", "turn", "usage", receipt_key("usage", text), 1_000, text))


READS: list[tuple[str, float | None, Callable[[Ledger, int], object]]] = [
    ("recent_inputs(limit=50)", 1.5, lambda ledger, n: ledger.recent_inputs(limit=50)),
    ("recent_inputs(since=…)", 1.5, lambda ledger, n: ledger.recent_inputs(since=(n - 40) * 1000, limit=50)),
    ("sessions(interactive=False)", 1.5, lambda ledger, n: ledger.sessions(interactive=False)),
    ("sessions(all=True), middle", None, lambda ledger, n: ledger.sessions(all=True, cursor=f"session_{n // 2:032x}")),
    ("activity(limit=50)", 1.5, lambda ledger, n: ledger.activity(since=0, limit=50)),
    ("input_history(key)", 1.5, lambda ledger, n: ledger.input_history(f"{n // 2:032x}")),
    ("driven_sessions(exec)", 1.5, lambda ledger, n: ledger.driven_sessions("exec")),
]


def test_lists_stay_flat(place: Place) -> None:
    lists(place, 1_000, 100_000, usages=2)


def test_lists_stay_flat_where_inputs_have_many_receipts(place: Place) -> None:
    """What one input costs, where 100 000 of them have 5 M receipts; what all cost is the same with fewer of them."""
    url = lists(place, 1_000, 5_000, usages=big_ledger.DENSE)
    rows = []
    with open_ledger(url) as ledger:
        begin = time.perf_counter()
        ledger.usage_report("total")
        rows.append(Row("roll-ups made", milliseconds(time.perf_counter() - begin)))
        rows += [
            Row(f"usage {by}", milliseconds(best(partial(ledger.usage_report, by), 5)))
            for by in ("daily", "model", "total", "session")
        ]
    show(f"reports over 5 000 inputs of {big_ledger.DENSE} usage receipts ({name(place)})", rows)


def lists(place: Place, small: int, big: int, *, usages: int) -> str:
    """Measure the reads of a small and a big ledger; return where the big one is."""
    receipts = {}
    ledgers = {}
    for sessions in (small, big):
        url = place.new()
        receipts[sessions] = place.big(url, sessions, usages)
        ledgers[sessions] = open_ledger(url, read_only=True)
    rows = []
    for read_name, budget, read in READS:
        measured = {n: best(partial(read, ledger, n), 15) for n, ledger in ledgers.items()}
        ratio = measured[big] / measured[small]
        rows.append(
            Row(
                read_name,
                milliseconds(measured[big]),
                f"at {small}: {milliseconds(measured[small])}",
                f"{ratio:.2f}×",
                f"≤ 20 ms and ≤ {budget:g}×" if budget else "",
                measured[big] <= 0.020 and ratio <= budget if budget else None,
            )
        )
    for ledger in ledgers.values():
        ledger.close()
    show(f"lists at {big:,} sessions with {receipts[big]:,} receipts ({name(place)})", rows)
    return url


def test_usage_daily_over_a_million_calls(place: Place) -> None:
    url = place.new()
    place.rolled(url)
    variables = {**os.environ, "TURNLOG_LEDGER": url, "TZ": "Europe/Berlin"}
    with open_ledger(url, read_only=True) as ledger:
        inside = best(lambda: ledger.usage_report("daily", timezone="Europe/Berlin"), 3)
    command = [sys.executable, "-m", "turnlog", "usage", "daily", "--json", "--no-import"]
    whole = best(lambda: subprocess.run(command, env=variables, check=True, capture_output=True), 3)
    show(
        f"usage daily over 1 M calls in 30 000 conversations ({name(place)})",
        [
            Row(
                "whole process",
                milliseconds(whole),
                f"in process {milliseconds(inside)}",
                "",
                "≤ 250 ms",
                whole <= 0.25,
            )
        ],
    )


def test_watch_latency(place: Place) -> None:
    """From the acknowledgement of a receipt to its being handed to who follows."""
    url = place.new()
    delays: list[float] = []
    with open_ledger(url) as ledger, open_ledger(url, read_only=True) as reader:
        ledger.create_session(id="s", cwd="/f")
        seen: dict[int, float] = {}
        stop = threading.Event()
        ready = threading.Event()

        def follow() -> None:
            for page in reader.follow(reader.tail_end(), stop=stop):
                ready.set()
                seen.update({each.seq: time.perf_counter() for each in page.receipts})

        follower = threading.Thread(target=follow)
        follower.start()
        assert ready.wait(30), "the follower told nothing"
        for number in range(50):
            seq = ledger.record("s", "t", "turn", "usage", {"n": number})
            written = time.perf_counter()
            while seq not in seen and time.perf_counter() - written < 10:
                time.sleep(0.0005)
            delays.append(seen.get(seq, written + 10) - written)
        stop.set()
        follower.join(30)
    worst = f"worst {milliseconds(max(delays))}"
    show(f"watch ({name(place)})", [Row("from acknowledged to followed, median", milliseconds(median(delays)), worst)])


def test_push(server: Server, tmp_path: Path) -> None:
    """A laptop's ledger into the team's."""
    sessions, calls = 500, 30_000
    usage_ledger.imported(tmp_path / "ledger.db", sessions, calls)
    url = server.url(server.new_database())
    open_ledger(url).close()
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        begin = time.perf_counter()
        ledger.push_to(url)
        took = time.perf_counter() - begin
        again = best(lambda: ledger.push_to(url), 3)
    with open_ledger(url) as team:
        [(receipts,)] = server.sql("SELECT count(*) FROM session_events", database=url.split("/")[3].split("?")[0])
        assert len(team.sessions(all=True, limit=None)) == sessions
    show(
        f"push of {receipts:,} receipts of {sessions} conversations from SQLite to PostgreSQL",
        [Row("all of them", f"{receipts / took:,.0f}/s", f"{took:.1f} s"), Row("nothing is new", milliseconds(again))],
    )
