"""``turnlog prune``: what it drops and says, what it refuses, and that a person is asked."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.surfaces import histories
from tests.surfaces.conftest import Turnlog
from tests.surfaces.scenes import Scene
from turnlog import open_ledger

MAIN = f"codex:{histories.MAIN}"
AFTER = "2026-02-03"


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    root = tmp_path / "codex"
    histories.write(root)
    monkeypatch.setenv("CODEX_HOME", str(root))
    histories.read(os.environ["TURNLOG_LEDGER"], root)
    return MAIN


def test_it_looks_first_and_then_drops(imported: str, turnlog_: Turnlog) -> None:
    looked = turnlog_("--json", "prune", "--older-than", AFTER, "--dry-run").json
    assert looked["dry_run"] is True
    assert looked["size"] is None
    assert (looked["pruned"]["sources"], looked["pruned"]["sessions"]) == (2, 2)
    assert looked["pruned"]["passages"] > 5
    usage = turnlog_("--json", "usage", "--no-import").json
    done = turnlog_("--json", "prune", "--older-than", AFTER, "--yes").json
    assert done["pruned"] == looked["pruned"]
    assert done["dry_run"] is False
    assert done["size"]["problem"] is None
    assert done["size"]["after"] <= done["size"]["before"]
    assert turnlog_("--json", "usage", "--no-import").json == usage
    again = turnlog_("prune", "--older-than", AFTER, "--yes")
    assert (again.code, again.out) == (0, "nothing to prune\n")


def test_what_was_pruned_says_so_everywhere(imported: str, turnlog_: Turnlog) -> None:
    assert turnlog_("prune", "--older-than", AFTER, "--yes").code == 0
    shown = turnlog_("show", imported)
    assert shown.code == 0
    assert "pruned     its transcript up to " in shown.out
    assert "imported without" not in shown.err
    assert "please fix the login" not in shown.out.partition("transcript\n")[2]
    assert turnlog_("--json", "show", imported).json["pruned"]["text_at"] is not None
    found = turnlog_("--json", "search", "login")
    assert "was pruned" in found.error["message"]
    assert turnlog_("--json", "import", "--provider", "codex").json["lines"] == 0
    assert turnlog_("--json", "import", "--reparse").json["lines"] == 0
    assert "was pruned" in turnlog_("--json", "search", "login").error["message"]


def test_a_whole_conversation_goes(imported: str, turnlog_: Turnlog) -> None:
    before = turnlog_("--json", "usage", "total", "--no-import").json["totals"]
    looked = turnlog_("--json", "prune", "--session", imported, "--all", "--dry-run").json
    done = turnlog_("--json", "prune", "--session", imported, "--all", "--yes").json
    assert done["pruned"] == looked["pruned"]
    assert done["pruned"]["receipts"] > 5
    after = turnlog_("--json", "usage", "total", "--no-import").json["totals"]
    assert after["tokens"] == before["tokens"]
    assert after["cost"] == before["cost"]
    assert after["streams"] == before["streams"] == 2
    assert after["gaps"] == [{"kind": "pruned", "count": 1}, *before["gaps"]]
    history = turnlog_("history", imported)
    assert "receipts were removed; kept: 1 stream, 1,000 in · 50 out" in history.out
    assert "its receipts up to" in turnlog_("show", imported).out
    assert turnlog_("--json", "answer", imported).code == 1
    assert "1 × pruned" in turnlog_("show", imported).out
    explained = turnlog_("--json", "usage", "explain", imported).json
    assert [stream["tokens"]["output"] for stream in explained["streams"]] == [50]
    assert turnlog_("verify").code == 0


def test_a_conversation_that_is_driven_is_refused(scene: Scene, turnlog_: Turnlog) -> None:
    with open_ledger(scene.url) as ledger:
        session = ledger.create_session(cwd="/w")
        ledger.claim_driver(session.id, None, ledger.start_exec().id)
    refused = turnlog_("--json", "prune", "--session", session.id, "--all", "--yes")
    assert (refused.code, refused.error["code"]) == (4, "driven")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), "prune what?"),
        (("--older-than", "6m"), "less than a day"),
        (("--older-than", "90"), "has no unit"),
        (("--older-than", "1.5"), "less than a day"),
        (("--older-than", "20260231"), "no such day"),
        (("--older-than", "20990101"), "only what is past"),
        (("--older-than", "soon"), "not an instant"),
        (("--older-than", "2999-01-01"), "only what is past"),
        (("--older-than", "90d", "--all"), "one whole conversation"),
        (("--older-than", "90d", "--provider", "gpt"), "no provider"),
    ],
)
def test_what_makes_no_sense_is_refused(scene: Scene, turnlog_: Turnlog, argv: tuple[str, ...], words: str) -> None:
    refused = turnlog_("--json", "prune", *argv, "--yes")
    assert refused.code == 2
    assert words in refused.error["message"]


def test_a_day_may_be_written_without_dashes(scene: Scene, turnlog_: Turnlog) -> None:
    looked = [turnlog_("prune", "--older-than", day, "--dry-run") for day in ("20260901", "2026-09-01", " 20260901 ")]
    assert [each.code for each in looked] == [0, 0, 0]
    assert len({each.out for each in looked}) == 1


def test_an_unknown_conversation_is_missing(scene: Scene, turnlog_: Turnlog) -> None:
    assert turnlog_("--json", "prune", "--session", "nobody", "--yes").error["code"] == "missing"


def test_nothing_is_dropped_where_nobody_can_be_asked(imported: str, turnlog_: Turnlog) -> None:
    refused = turnlog_("--json", "prune", "--older-than", AFTER)
    assert refused.code == 2
    assert "--yes" in refused.error["hint"]
    assert turnlog_("--json", "search", "login").json["hits"]


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 130), (b"\n", 130), (b"y\n", 0)])
def test_a_person_is_asked(imported: str, turnlog_: Turnlog, answer: bytes, code: int) -> None:
    """On a terminal of its own, of which it is the foreground process."""
    ours, theirs = pty.openpty()
    program = (
        "import fcntl, os, sys, termios\n"
        "os.setsid()\n"
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'turnlog', *sys.argv[1:]])\n"
    )
    argv = [sys.executable, "-c", program, "prune", "--older-than", AFTER]
    with subprocess.Popen(argv, stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        told = b""
        while b"[y/N]" not in told:
            told += os.read(ours, 4096)
        os.write(ours, answer)
        assert process.wait(timeout=30) == code
        os.close(ours)
    assert b"This drops 2 sources of 2 conversations" in told
    found = turnlog_("--json", "search", "login")
    assert (found.code == 0) == (code != 0)
