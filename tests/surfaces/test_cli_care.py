"""Backup, verify, doctor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import turnlog
from tests.surfaces.conftest import Turnlog
from tests.surfaces.scenes import Scene


def damage(path: Path, sql: str) -> None:
    """Change the file as somebody else would: never through a second SQLite in this process."""
    code = "import apsw, sys; apsw.Connection(sys.argv[1]).execute(sys.argv[2])"
    subprocess.run([sys.executable, "-c", code, str(path), sql], check=True, timeout=60)


def test_backup_is_a_ledger(turnlog_: Turnlog, scene: Scene, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    shown = turnlog_("ledger", "backup", str(target))
    assert (shown.code, shown.out) == (0, f"{target}  {target.stat().st_size:,} bytes\n")
    assert turnlog_("--ledger", f"sqlite:///{target}", "history", "aaaa", "--json").json == (
        turnlog_("history", "aaaa", "--json").json
    )
    again = turnlog_("ledger", "backup", str(target), "--json")
    assert (again.code, again.error["code"]) == (2, "invalid")
    other = tmp_path / "other.db"
    value = turnlog_("--json", "ledger", "backup", str(other)).json
    assert value == {"schema_version": 1, "path": str(other), "bytes": other.stat().st_size}
    assert turnlog_("ledger", "backup", str(tmp_path / "no" / "x.db")).code == 2


def test_verify_of_a_sound_ledger(turnlog_: Turnlog, scene: Scene) -> None:
    shown = turnlog_("verify")
    assert (shown.code, shown.out, shown.err) == (0, f"no problems in {scene.url}\n", "")
    assert turnlog_("verify", "--json").json == {"schema_version": 1, "ledger": scene.url, "problems": []}


def test_verify_lists_damage_and_exits_3(turnlog_: Turnlog, scene: Scene, tmp_path: Path) -> None:
    damage(tmp_path / "ledger.db", "UPDATE session_events SET payload = '{' WHERE kind = 'output'")
    shown = turnlog_("verify")
    assert shown.code == 3
    assert shown.lines[0].split() == ["PROBLEM", "WHERE", "DETAIL"]
    assert shown.lines[1].startswith("unreadable  session session_aaaa")
    assert shown.err == f"1 problem in {scene.url}\n"
    value = turnlog_("verify", "--json")
    assert value.code == 3
    assert value.json["problems"][0]["kind"] == "unreadable"


def test_damage_does_not_hide_the_rest(turnlog_: Turnlog, scene: Scene, tmp_path: Path) -> None:
    damage(tmp_path / "ledger.db", "UPDATE session_events SET payload = '{' WHERE kind = 'completed'")
    strict = turnlog_("history", "aaaa")
    assert (strict.code, strict.out) == (1, "")
    assert "hint: run `turnlog verify`" in strict.err
    shown = turnlog_("show", "aaaa")
    assert shown.code == 3
    assert "folder     /home/me/project\n" in shown.out
    assert "turnlog: row " in shown.err
    value = turnlog_("show", "aaaa", "--json")
    assert (value.code, value.json["problems"][0]["code"], value.error["code"]) == (3, "corrupt", "corrupt")
    assert turnlog_("inputs").code == 0
    assert turnlog_("sessions").code == 0


def test_what_is_no_ledger_is_said_so(turnlog_: Turnlog, tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"not a database, but long enough to be looked at" * 30)
    for command in ("sessions", "verify", "usage"):
        shown = turnlog_(command)
        assert shown.code == 2
        assert "is not a database" in shown.err
    assert "is not a database" in turnlog_("doctor").out


def test_doctor_without_agents_and_ledger(turnlog_: Turnlog, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home))
    monkeypatch.setenv("TURNLOG_OPENCODE_BIN", str(home / "missing"))
    before = sorted(home.rglob("*"))
    shown = turnlog_("doctor")
    assert shown.code == 3
    assert f"✓ config     {home}/config/turnlog/config.toml (not there: defaults)" in shown.lines
    assert "(not there yet: `turnlog import` or `run` makes it)" in shown.out
    assert f"✗ opencode   TURNLOG_OPENCODE_BIN={home}/missing is not an absolute path of a program" in shown.lines
    assert "             hint: correct or unset TURNLOG_OPENCODE_BIN" in shown.lines
    value = turnlog_("doctor", "--json").json
    assert value["ledger"]["exists"] is False
    assert value["agents"][0]["version"] is None
    assert value["turnlog"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert sorted(home.rglob("*")) == before
    assert not Path(os.environ["TURNLOG_LEDGER"].removeprefix("sqlite:///")).exists()


def test_doctor_with_an_agent_and_a_ledger(
    turnlog_: Turnlog, scene: Scene, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = home / "opencode"
    program.write_text("#!/bin/sh\necho 1.18.33\n")
    program.chmod(0o755)
    monkeypatch.setenv("TURNLOG_OPENCODE_BIN", str(program))
    shown = turnlog_("doctor")
    assert f"✓ opencode   1.18.33 {program}" in shown.lines
    assert f"ledger     {scene.url.removeprefix('sqlite:///')}, " in shown.out
    assert "✗ ledger" not in shown.out


def test_doctor_with_a_broken_config(turnlog_: Turnlog, home: Path) -> None:
    (home / "config" / "turnlog").mkdir(parents=True)
    (home / "config" / "turnlog" / "config.toml").write_text("ledger = [")
    shown = turnlog_("doctor")
    assert shown.code == 3
    assert "✗ config" in shown.out


def test_recover_with_nothing_unfinished(turnlog_: Turnlog, tmp_path: Path) -> None:
    with turnlog.open_ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        ledger.create_session(cwd="/w")
    assert turnlog_("recover").out == "nothing is unfinished\n"
    assert turnlog_("recover", "--json").json == {"schema_version": 1, "sessions": [], "failures": []}
    with turnlog.open_ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        assert ledger.execs() == []
