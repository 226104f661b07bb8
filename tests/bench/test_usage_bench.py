"""Usage reports against their budgets (architecture 7): folding what is new, and the whole process of a report.

``make bench`` prints them. Nothing here asserts a time: a busy machine is no defect.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.bench.table import Row, best, milliseconds, show
from tests.bench.usage_ledger import imported, rolled
from turnlog import open_ledger

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

REPORTS = ("daily", "weekly", "monthly", "blocks", "session", "model", "project", "task", "total")


def test_folding_a_first_import(tmp_path: Path) -> None:
    sessions, calls = 3_000, 100_000
    imported(tmp_path / "ledger.db", sessions, calls)
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        began = time.perf_counter(), time.process_time()
        ledger.refresh_usage()
        took, worked = time.perf_counter() - began[0], time.process_time() - began[1]
        streams = ledger.usage_report("total").totals.streams
        again = best(ledger.refresh_usage)
        name = "claude:" + "0" * 32
        one = best(
            lambda: (
                ledger.record(name, "0" * 32, f"t{time.perf_counter_ns()}", "started", {}) and ledger.refresh_usage()
            )
        )
    show(
        f"roll-ups after a first import: {streams:,} calls in {sessions:,} conversations",
        [
            Row("all of them", f"{took:.2f} s ({worked / streams * 1e6:.0f} µs per call)", "", "", "≤ 3 s", took <= 3),
            Row("nothing is new", milliseconds(again)),
            Row("one conversation of 33 calls changed", milliseconds(one)),
        ],
    )


def test_reports_over_a_million_calls(tmp_path: Path) -> None:
    rolled(tmp_path / "ledger.db", 30_000, 1_000_000)
    variables = {**os.environ, "TURNLOG_LEDGER": f"sqlite:///{tmp_path}/ledger.db", "TZ": "Europe/Berlin"}
    rows = []
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db", read_only=True) as ledger:
        for by in REPORTS:
            inside = best(partial(ledger.usage_report, by, timezone="Europe/Berlin"), 3)
            command = [sys.executable, "-m", "turnlog", "usage", by, "--json"]
            whole = best(partial(subprocess.run, command, env=variables, check=True, capture_output=True), 3)
            budget = ("≤ 250 ms", whole <= 0.25) if by == "daily" else ("", None)
            rows.append(Row(f"usage {by}", milliseconds(whole), f"in process {milliseconds(inside)}", "", *budget))
    nothing = best(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), 3)
    show(
        "usage over 1 M calls in 30 000 conversations, whole process",
        [*rows, Row("python alone", milliseconds(nothing))],
    )
