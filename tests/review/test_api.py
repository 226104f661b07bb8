"""Found in review: what the facade says to unusual, but reasonable, calls."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import turnlog
from turnlog import InvalidError, Ledger, MissingError, TurnlogError
from turnlog.drive import Caller, start_exec, stop_process
from turnlog.errors import CorruptError, UnavailableError
from turnlog.surfaces.cli import requests as cli_requests
from turnlog.surfaces.cli.app import run as command


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with turnlog.open_ledger(f"sqlite:///{path}") as opened:
        yield opened


def test_an_empty_url_is_not_the_default_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLOG_LEDGER", f"sqlite:///{tmp_path}/default.db")
    with pytest.raises(InvalidError):
        turnlog.open_ledger("")
    assert command(["--ledger", "", "verify"]) == 2
    assert command(["verify", "--ledger="]) == 2
    monkeypatch.setenv("TURNLOG_LEDGER", "")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with turnlog.open_ledger() as opened:  # an empty variable is an unset one
        assert opened.url.endswith("/turnlog/ledger.db")


def test_the_parent_of_an_exec_is_one_of_this_ledger(ledger: Ledger) -> None:
    with pytest.raises(MissingError):
        ledger.start_exec(parent_id="nobody")
    assert ledger.execs() == []
    foreign = Caller("session_elsewhere", 1, "nobody", "0" * 32, "sqlite:////elsewhere.db")
    started = start_exec(ledger, foreign, command=["turnlog"], cwd="/x")
    assert (started.parent_id, started.via_agent) == (None, True)


@pytest.mark.parametrize(("kind", "text"), [("steer", None), ("steer", " \n"), ("permission", None)])
def test_a_request_that_says_nothing_is_refused(ledger: Ledger, kind: str, text: str | None) -> None:
    session = ledger.create_session(cwd="/x")
    with pytest.raises(InvalidError):
        ledger.request(session.id, kind, text)
    with pytest.raises(MissingError):
        ledger.request(session.id, "interrupt", exec_id="nobody")
    assert ledger.requests(session.id) == []
    assert ledger.request(session.id, "interrupt")


def test_a_conversation_of_an_unknown_kind_is_not_made(ledger: Ledger) -> None:
    with pytest.raises(InvalidError):
        ledger.create_session(cwd="/x", kind="conversion")
    assert ledger.sessions(all=True) == []


def test_a_row_that_is_no_receipt_is_invalid(ledger: Ledger) -> None:
    session = ledger.create_session(cwd="/x")
    rows: list[Any] = [("thread", "turn", "started", {}), ("thread", "turn")]
    with pytest.raises(InvalidError):
        ledger.record_many(session.id, rows)
    assert len(ledger.history(session.id)) == 1


def test_a_list_over_a_damaged_ledger_says_so(ledger: Ledger, path: Path) -> None:
    session = ledger.create_session(cwd="/x")
    raw = apsw.Connection(str(path))
    for statement in (
        "PRAGMA foreign_keys = OFF",
        "DROP TRIGGER captured_is_kept",
        f"DELETE FROM session_events WHERE seq = {session.captured}",
    ):
        raw.execute(statement)
    raw.close()
    for read in (ledger.inputs, ledger.recent_inputs):
        with pytest.raises(CorruptError):
            read()


def test_verify_of_a_file_that_cannot_be_opened_is_a_finding(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    whole, half = tmp_path / "whole.db", tmp_path / "half.db"
    with turnlog.open_ledger(f"sqlite:///{whole}") as opened:
        opened.create_session(cwd="/x")
        opened.backup(half)
    content = half.read_bytes()
    half.write_bytes(content[: len(content) // 2])
    capfd.readouterr()
    assert command(["--ledger", f"sqlite:///{half}", "verify"]) == 3
    assert "storage" in capfd.readouterr().out
    assert command(["--ledger", f"sqlite:///{half}", "--json", "verify"]) == 3
    assert '"kind":"storage"' in capfd.readouterr().out


def test_a_request_is_withdrawn_when_who_asked_stops_waiting(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = ledger.create_session(cwd="/x")
    ledger.claim_driver(session.id, None, ledger.start_exec().id)

    def give_up(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", give_up)
    assert cli_requests.POLL_S > 0
    assert command(["--ledger", f"sqlite:///{path}", "interrupt", session.id]) == 130
    assert [request.state for request in ledger.requests(session.id)] == ["refused"]


@pytest.mark.parametrize(
    ("error", "expected"), [(ProcessLookupError(), MissingError), (PermissionError(), UnavailableError)]
)
def test_ending_a_process_that_cannot_be_ended(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, error: OSError, expected: type[TurnlogError]
) -> None:
    started = ledger.start_exec()

    def kill(*_: int) -> None:
        raise error

    monkeypatch.setattr(os, "kill", kill)
    with pytest.raises(expected):
        stop_process(ledger, started.id)


def test_the_daily_report_shows_a_person_thirty_days_and_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    now = [1_000 * 86_400_000]
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    message = {"id": "m", "tokens": {"input": 1, "output": 1, "reasoning": 0, "cache": {"read": 0, "write": 0}}}
    with turnlog.open_ledger(url, now=lambda: now[0]) as opened:
        session = opened.create_session(cwd="/x")
        for day in (1_000 * 86_400_000, int(time.time() * 1000)):
            now[0] = day
            opened.record(session.id, "thread", f"turn-{day}", "started", {})
            usage = {"provider": "opencode", "message": {**message, "time": {"created": day, "completed": day}}}
            opened.record(session.id, "thread", f"turn-{day}", "usage", usage)
    capfd.readouterr()
    command(["--ledger", url, "usage", "daily", "--timezone", "UTC"])
    shown = capfd.readouterr()
    assert len(shown.out.splitlines()) == 3, "head, one day, total"
    assert "the last 30 days" in shown.err
    command(["--ledger", url, "usage", "daily", "--timezone", "UTC", "--since", "1970-01-01"])
    assert len(capfd.readouterr().out.splitlines()) == 4
    command(["--ledger", url, "--json", "usage", "daily", "--timezone", "UTC"])
    assert len(json.loads(capfd.readouterr().out)["rows"]) == 2
