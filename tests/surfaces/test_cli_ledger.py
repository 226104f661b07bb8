"""Copying and pushing ledgers from the command line, and what goes wrong with them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests import postgres_server
from tests.ledger.moving_scenes import content, furnish, new_ledger, rows_of, tables
from tests.postgres_server import PASSWORD
from tests.surfaces.conftest import Turnlog
from turnlog import open_ledger
from turnlog.ledger import homes
from turnlog.ledger.migrate import latest


@pytest.fixture(autouse=True)
def _own_home(home: Path) -> None:
    homes._read_or_make.cache_clear()


@pytest.fixture
def laptop(tmp_path: Path) -> str:
    return furnish(tmp_path)


def test_copy(turnlog_: Turnlog, laptop: str, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path}/copy.db"
    shown = turnlog_("ledger", "copy", laptop, target)
    held = tables(laptop)
    receipts = len(held["copy_events"])
    rows = sum(len(each) for name, each in held.items() if name != "copy_inputs")
    passages = len(held["copy_passages"])
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == f"{receipts} receipts, {rows} rows in all, words of {passages} passages\n"
    assert turnlog_("--ledger", target, "verify").code == 0
    again = turnlog_("ledger", "copy", laptop, target, "--json")
    assert again.json == {"schema_version": 1, "rows": rows, "receipts": receipts, "passages": 0}


def test_copy_into_a_ledger_of_others(turnlog_: Turnlog, laptop: str, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path}/other.db"
    with open_ledger(target) as ledger:
        ledger.create_session(cwd="/f")
    shown = turnlog_("ledger", "copy", laptop, target)
    assert shown.code == 4
    assert shown.err == (
        f"turnlog: {target} is not empty, and no copy of this ledger\n"
        "hint: `turnlog ledger push` adds to a ledger that holds something\n"
    )


def test_push(turnlog_: Turnlog, laptop: str, tmp_path: Path) -> None:
    team = new_ledger("postgres", tmp_path)
    shown = turnlog_("ledger", "push", team)
    receipts = len(content(laptop)["receipts"])
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.endswith(f": {receipts} new receipts, 0 known · 6 conversations, 3 processes\n")
    value = turnlog_("ledger", "push", team, "--json", "--with-archive").json
    assert value["receipts"] == {"new": 0, "known": 0, "conflicts": 0}
    assert value["home_id"] == homes.home_id()
    assert value["passages"] > 0
    assert (value["problems"], value["notes"]) == ([], [])


def test_push_reports_conflicts_and_exits_3(turnlog_: Turnlog, laptop: str, tmp_path: Path) -> None:
    team = f"sqlite:///{tmp_path}/team.db"
    with open_ledger(team) as ledger:
        ledger.create_session(id="session_work", cwd="/f")
        ledger.record("session_work", "thread-w", "turn-w", "completed", {"status": "failed"})
    shown = turnlog_("ledger", "push", team)
    assert shown.code == 3
    assert "conflict: session session_work row" in shown.err
    assert "stays so" in shown.err


def test_help_says_what_leaves_the_machine(turnlog_: Turnlog) -> None:
    shown = turnlog_("ledger", "push", "--help")
    words = " ".join(shown.out.split())
    assert shown.code == 0
    assert "prompts and answers" in words
    assert "secrets included" in words


def test_homes_are_shown(turnlog_: Turnlog, laptop: str) -> None:
    home = homes.here()
    assert home is not None
    sessions = turnlog_("sessions", "--all", "--json").json["sessions"]
    assert {each["home_id"] for each in sessions} == {home.id}
    short = home.id.removeprefix("home_")[:12]
    assert f"home       {home.name} ({short})" in turnlog_("show", "session_work").out
    shown = turnlog_("show", "session_work", "--json").json
    assert shown["session"]["home_id"] == shown["driver"]["exec"]["home_id"] == home.id
    nodes = turnlog_("ps", "--json").json["nodes"]
    assert {each["home_id"] for each in nodes} <= {home.id}


# --- what goes wrong


@pytest.mark.parametrize("command", [["ledger", "push"], ["ledger", "copy", "FROM"]])
def test_a_server_that_is_down(turnlog_: Turnlog, laptop: str, command: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    argv = [laptop if word == "FROM" else word for word in command]
    shown = turnlog_(*argv, f"postgresql://me:hunter2secret@127.0.0.1:{port}/team")
    assert shown.code == 1
    assert shown.err.startswith(f"turnlog: cannot use postgresql://me@127.0.0.1:{port}/team: ")
    assert shown.err.count("\n") == 2
    assert "hint: check that the server runs" in shown.err
    assert "hunter2" not in shown.err


def test_a_wrong_password(turnlog_: Turnlog, laptop: str) -> None:
    server = postgres_server.shared()
    shown = turnlog_("ledger", "push", f"postgresql://locked:wr0ngw0rd@127.0.0.1:{server.port}/postgres")
    assert shown.code == 1
    assert "password" in shown.err
    assert "hint: give the password in PGPASSWORD" in shown.err
    assert "wr0ngw0rd" not in shown.err
    assert PASSWORD not in shown.err


def test_a_missing_database(turnlog_: Turnlog, laptop: str) -> None:
    shown = turnlog_("ledger", "push", postgres_server.shared().url("nowhere"))
    assert shown.code == 1
    assert "hint: make it: createdb --encoding=UTF8 --template=template0 nowhere" in shown.err


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("side", ["from", "to"])
def test_a_newer_schema_on_either_side(turnlog_: Turnlog, laptop: str, tmp_path: Path, kind: str, side: str) -> None:
    (tmp_path / "new").mkdir()
    newer = new_ledger(kind, tmp_path / "new")
    open_ledger(newer).close()
    if kind == "sqlite":
        rows_of(newer, f"PRAGMA user_version = {latest('sqlite') + 1}")
    else:
        rows_of(newer, f"UPDATE ledger_meta SET value = '{latest('postgres') + 1}' WHERE key = 'schema'")
    shown = turnlog_("ledger", "copy", *((newer, laptop) if side == "from" else (laptop, newer)))
    assert shown.code == 1
    assert f"has schema {latest('sqlite') + 1}; this turnlog knows {latest('sqlite')}" in shown.err
    assert "hint: upgrade turnlog" in shown.err


def test_an_older_schema_is_upgraded(turnlog_: Turnlog, tmp_path: Path) -> None:
    from tests.migration.test_sqlite_schema import build

    build(tmp_path / "old.db", 4)
    rows_of(f"sqlite:///{tmp_path}/old.db", "INSERT INTO ledger_meta VALUES ('ledger_id', 'old')")
    assert turnlog_("ledger", "copy", f"sqlite:///{tmp_path}/old.db", f"sqlite:///{tmp_path}/new.db").code == 0


def test_a_ledger_that_does_not_exist(turnlog_: Turnlog, tmp_path: Path) -> None:
    shown = turnlog_("ledger", "push", f"sqlite:///{tmp_path}/team.db")
    assert shown.code == 1
    assert "no ledger at" in shown.err
    assert not (tmp_path / "team.db").exists()
    shown = turnlog_("ledger", "copy", "ledger.db", f"sqlite:///{tmp_path}/team.db", "--json")
    assert (shown.code, shown.error["code"]) == (2, "invalid")
