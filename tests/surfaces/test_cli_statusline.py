"""The status line: one line from one small file, whoever asks and how often."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import turnlog
from tests import postgres_server
from tests.surfaces import histories
from tests.surfaces.conftest import Outcome, Turnlog, shell
from turnlog.receipts import Observation
from turnlog.surfaces.cli.context import Cli, Globals
from turnlog.surfaces.cli.statusline import REFRESH_S, claim, place, read
from turnlog.surfaces.cli.statusline_refresh import compute

NATIVE = "ses_1"


@pytest.fixture(autouse=True)
def no_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "OPENCODE_DB", "TURNLOG_CALLER", "TURNLOG_PRICES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def row() -> Path:
    return place(None)


def now_ms() -> int:
    return int(time.time() * 1000)


def today() -> str:
    return time.strftime("%Y-%m-%d")


def settle(path: Path) -> None:
    """Wait for the process that refreshes: it has the lock until it ends."""
    with path.with_suffix(".lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


def write(path: Path, **members: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {"at": now_ms(), "day": today(), "timezone": "UTC", "today": None, "sessions": {}, "limits": []}
    path.write_text(json.dumps({**facts, **members}))


def sums(**members: Any) -> dict[str, Any]:
    facts = {"tokens": None, "low": False, "reported_usd": None, "estimated_usd": None, "unpriced_calls": 0}
    return {**facts, "cost_low": False, **members}


def message(number: int, at: int, cost: float | None) -> dict[str, Any]:
    tokens = {"input": 1000, "output": 50, "reasoning": 0, "total": 1350, "cache": {"read": 300, "write": 0}}
    facts = {"id": f"m{number}", "modelID": "made-up-model-9", "tokens": tokens, "finish": "stop", "cost": cost}
    return {"provider": "opencode", "message": {**facts, "time": {"created": at}}, "session_version": "1.18.33"}


@pytest.fixture
def used(tmp_path: Path) -> str:
    """A ledger in which one conversation did work today, and another one a week ago."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    week = 7 * 86_400_000
    with turnlog.open_ledger(url) as ledger:
        for native, ages in ((NATIVE, (0, 0)), ("ses_old", (week,))):
            session = ledger.create_session(id=f"opencode:{native}", cwd="/f", provider="opencode")
            for number, age in enumerate(ages):
                at = now_ms() - age
                turn = f"{native}-{number}"
                ledger.record(session.id, native, turn, "started", {"at": at})
                ledger.record(session.id, native, turn, "usage", message(number, at, 0.25))
                ledger.record(session.id, native, turn, "completed", {"status": "completed"})
        evidence = {"provider": "codex", "primary": {"used_percent": 58, "window_minutes": 300}}
        ledger.retain(session.id, Observation(session.artifact_key, "limits:1", now_ms(), evidence))
    return url


# --- what is shown


def test_without_a_ledger_it_says_so_and_makes_none(row: Path, tmp_path: Path) -> None:
    for _ in range(2):
        assert shell("usage", "statusline") == Outcome(0, "turnlog: no usage known yet\n", "")
        settle(row)
    assert not (tmp_path / "ledger.db").exists()
    assert (read(row) or {})["today"] is None


def test_the_first_call_starts_what_the_next_one_shows(used: str, row: Path) -> None:
    hook = json.dumps({"session_id": NATIVE, "model": {"id": "x"}}).encode()
    assert shell("usage", "statusline", stdin=hook).out == "turnlog: no usage known yet\n"
    settle(row)
    shown = shell("usage", "statusline", stdin=hook)
    assert shown == Outcome(0, "today 2.7k tokens $0.5000 · session 2.7k tokens $0.5000 · codex 58%/5h\n", "")
    value = shell("usage", "statusline", "--json", stdin=hook).json
    assert value["today"] == value["session"] == sums(tokens=2_700, reported_usd=0.5)
    assert (value["schema_version"], value["day"], value["timezone"]) == (1, today(), "UTC")


def test_sums_are_those_of_the_reports(used: str) -> None:
    found = compute(Cli(Globals(ledger=used)), "ses_old")
    assert found["today"] == sums(tokens=2_700, reported_usd=0.5)
    assert found["sessions"] == {
        NATIVE: sums(tokens=2_700, reported_usd=0.5),
        "ses_old": sums(tokens=1_350, reported_usd=0.25),
    }
    assert compute(Cli(Globals(ledger=used)), "nobody")["sessions"]["nobody"] is None


def test_a_lower_bound_is_marked_and_reported_and_estimated_stay_apart(turnlog_: Turnlog, row: Path) -> None:
    low = sums(tokens=1_234_567, low=True, reported_usd=1.2, estimated_usd=3.419, cost_low=True)
    write(row, today=low)
    assert turnlog_("usage", "statusline").out == "today ≥1.23M tokens ≥$1.20 ≥$3.41 est\n"
    write(row, today=sums(tokens=10, unpriced_calls=2, cost_low=True))
    assert turnlog_("usage", "statusline").out == "today 10 tokens unpriced\n"


def test_a_zero_is_shown_only_where_it_was_counted(turnlog_: Turnlog, row: Path) -> None:
    write(row, today=sums())
    assert turnlog_("usage", "statusline").out == "turnlog: no usage known yet\n"
    write(row, today=sums(tokens=0, reported_usd=0.0))
    assert turnlog_("usage", "statusline").out == "today 0 tokens $0.00\n"


def test_the_programs_own_figures_win(row: Path) -> None:
    soon = now_ms() // 1000 + 3600
    write(row, sessions={"s": sums(tokens=1_000, estimated_usd=9.0)}, limits=[limit("claude", 99), limit("codex", 5)])
    hook = {
        "session_id": "s",
        "cost": {"total_cost_usd": 0.4234},
        "rate_limits": {
            "five_hour": {"used_percentage": 23.5, "resets_at": soon},
            "seven_day": {"used_percentage": 41.2, "resets_at": soon},
        },
    }
    shown = shell("usage", "statusline", stdin=json.dumps(hook).encode())
    assert shown.out == "session 1k tokens $0.4234 · claude 24%/5h 41%/7d · codex 5%/5h\n"


def limit(provider: str, used: float, **window: Any) -> dict[str, Any]:
    facts = {"used_percent": used, "window_minutes": 300, "resets_at": None, **window}
    return {"provider": provider, "at": 1, "windows": [facts], "plan": None}


def test_of_a_window_that_began_anew_nothing_is_known(turnlog_: Turnlog, row: Path) -> None:
    now = now_ms()
    limits = [limit("a", 10, resets_at=now - 1), limit("b", 20, resets_at=now + 60_000, window_minutes=77)]
    write(row, limits=[*limits, limit("c", 30, window_minutes=None)])
    assert turnlog_("usage", "statusline").out == "b 20%/77m · c 30%\n"


def test_yesterdays_sum_is_not_todays(turnlog_: Turnlog, row: Path) -> None:
    write(row, day="2026-01-01", today=sums(tokens=5), sessions={})
    assert turnlog_("usage", "statusline").out == "turnlog: no usage known yet\n"
    settle(row)
    assert (read(row) or {})["day"] == today()


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b'{"at": "x"}', b'{"at": 1, "sessions": []}', b"\xff\x00"])
def test_a_damaged_file_is_as_none(row: Path, text: bytes) -> None:
    row.parent.mkdir(parents=True)
    row.write_bytes(text)
    assert shell("usage", "statusline").out == "turnlog: no usage known yet\n"
    settle(row)
    assert read(row) is not None


@pytest.mark.parametrize(
    "hook",
    [
        b"",
        b"{",
        b"[1]",
        b"null",
        b"\xff\xfe\x00",
        b'{"session_id": 7, "cost": "x", "rate_limits": []}',
        b'{"session_id": "", "cost": {"total_cost_usd": true}, "rate_limits": {"five_hour": {"used_percentage": "9"}}}',
        b"{" * 100_000,
        b'{"a": "' + b"x" * 2_000_000 + b'"}',
    ],
)
def test_a_hook_that_cannot_be_read_is_as_none(row: Path, hook: bytes) -> None:
    write(row, today=sums(tokens=5))
    assert shell("usage", "statusline", stdin=hook) == Outcome(0, "today 5 tokens\n", "")


def test_a_stdin_that_stays_open_does_not_hold_it_up(row: Path) -> None:
    write(row, today=sums(tokens=5))
    argv = [sys.executable, "-m", "turnlog", "usage", "statusline"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read() == b"today 5 tokens\n"
        assert process.wait(30) == 0


def test_foreign_names_cannot_drive_the_terminal(turnlog_: Turnlog, row: Path) -> None:
    write(row, limits=[limit("a\x1b[2J\nb", 10)])
    assert turnlog_("usage", "statusline").out == "a b 10%/5h\n"


def test_options_may_stand_behind_it_and_wrong_ones_are_refused(used: str, row: Path, turnlog_: Turnlog) -> None:
    write(place(used), today=sums(tokens=7))
    assert turnlog_("usage", "statusline", "--ledger", used).out == "today 7 tokens\n"
    assert turnlog_("--ledger", used, "usage", "statusline").out == "today 7 tokens\n"
    assert turnlog_("usage", "statusline", "--frobnicate").code == 2
    assert "status bar" in turnlog_("usage", "statusline", "--help").out


# --- at once, and fast


def test_of_many_that_ask_at_once_one_refreshes(row: Path) -> None:
    code = (
        "import sys, pathlib; from turnlog.surfaces.cli.statusline import claim; sys.stdin.read(1);"
        "print(claim(pathlib.Path(sys.argv[1])) is not None, flush=True); sys.stdin.read()"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(row)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(20)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"x")
        process.stdin.flush()
    answers = [process.stdout.readline() for process in processes if process.stdout]
    for process in processes:
        process.communicate()
    assert sorted(answers) == [b"False\n"] * 19 + [b"True\n"]


def test_twenty_calls_at_once_all_answer(used: str, row: Path) -> None:
    argv = [sys.executable, "-m", "turnlog", "usage", "statusline"]
    processes = [
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(20)
    ]
    outcomes = [(process.communicate(timeout=60), process.returncode) for process in processes]
    assert {code for _, code in outcomes} == {0}
    assert {err for (_, err), _ in outcomes} == {b""}
    settle(row)
    assert (read(row) or {})["today"] == sums(tokens=2_700, reported_usd=0.5)


def test_a_refresh_is_not_tried_again_at_once_whatever_became_of_it(row: Path) -> None:
    first = claim(row)
    assert first is not None
    assert claim(row) is None  # at work
    os.close(first)
    assert claim(row) is None  # it died, a moment ago
    old = time.time() - REFRESH_S - 1
    os.utime(row.with_suffix(".lock"), (old, old))
    again = claim(row)
    assert again is not None
    os.close(again)
    future = time.time() + 86_400  # the clock went back
    os.utime(row.with_suffix(".lock"), (future, future))
    last = claim(row)
    assert last is not None
    os.close(last)


def test_a_cache_folder_that_cannot_be_made_is_no_error(row: Path, turnlog_: Turnlog) -> None:
    row.parent.parent.mkdir(parents=True)
    row.parent.write_text("a file")
    assert turnlog_("usage", "statusline") == Outcome(0, "turnlog: no usage known yet\n", "")


def test_each_way_to_name_a_ledger_has_a_file_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path
) -> None:
    paths = {place(None), place("sqlite:////x.db"), place("sqlite:///x.db")}
    monkeypatch.chdir(home)
    paths.add(place("sqlite:///x.db"))
    assert place("sqlite:////x.db") in paths
    monkeypatch.setenv("TURNLOG_LEDGER", "sqlite:////y.db")
    paths.add(place(None))
    assert len(paths) == 5
    assert place("sqlite:////y.db") == place(None)


HEAVY = ("typer", "rich", "msgspec", "apsw", "orjson", "turnlog.ledger", "turnlog.config", "platformdirs", "subprocess")


@pytest.mark.parametrize("fresh", [True, False])
def test_nothing_heavy_is_imported_to_answer(row: Path, fresh: bool) -> None:
    if fresh:
        write(row, today=sums(tokens=5, low=True, reported_usd=1.0), limits=[limit("codex", 5)])
    code = (
        "import sys; from turnlog.surfaces.cli.app import run; run(['usage', 'statusline']);"
        "print([name for name in sys.argv[1:] if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *HEAVY], stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == b"[]"
    if not fresh:
        settle(row)


def test_the_refresh_imports_nothing_from_the_working_directory(used: str, row: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.mkdir()
    for name in ("msgspec", "apsw", "orjson"):
        (trap / f"{name}.py").write_text("open('sprung', 'w')\nraise SystemExit(1)\n")
    argv = [sys.executable, "-P", "-m", "turnlog", "usage", "statusline"]
    subprocess.run(argv, cwd=trap, stdin=subprocess.DEVNULL, check=True, timeout=60, capture_output=True)
    settle(row)
    assert (read(row) or {})["today"] == sums(tokens=2_700, reported_usd=0.5)
    assert not (trap / "sprung").exists()


def test_a_ledger_that_cannot_be_read_keeps_what_was_known(row: Path, tmp_path: Path, turnlog_: Turnlog) -> None:
    (tmp_path / "ledger.db").write_bytes(b"not a database, but long enough to be looked at" * 30)
    write(row, at=now_ms() - 3_600_000, today=sums(tokens=5))
    assert shell("usage", "statusline").out == "today 5 tokens\n"
    settle(row)
    assert shell("usage", "statusline").out == "today 5 tokens\n"


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_histories_go_into_a_file_but_not_into_a_team_ledger(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    histories.write(tmp_path / "codex")
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    if kind == "postgres":
        url = postgres_server.PostgresSetup(postgres_server.shared()).url()
    turnlog.open_ledger(url).close()
    compute(Cli(Globals(ledger=url)), None)
    with turnlog.open_ledger(url) as ledger:
        assert len(ledger.sessions(all=True)) == (2 if kind == "sqlite" else 0)
        assert bool(ledger.search("login").hits) == (kind == "sqlite")
