"""Every command runs with a home of its own: no test sees, or touches, the user's folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.surfaces.scenes import Scene, build
from turnlog.surfaces.cli.app import run

if TYPE_CHECKING:
    from tests.surfaces.import_history import History

DROPPED = ("TURNLOG_DEBUG", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TURNLOG_OPENCODE_BIN")


class Outcome(msgspec.Struct, frozen=True):
    """What a command gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, str]:
        value: dict[str, str] = json.loads(self.err)["error"]
        return value

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Turnlog = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "home"
    folder.mkdir()
    for name in DROPPED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    for name in ("DATA", "CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(folder / name.lower()))
    monkeypatch.setenv("TURNLOG_LEDGER", f"sqlite:///{tmp_path}/ledger.db")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("TERM", "xterm-256color")
    time.tzset()
    yield folder
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return build(tmp_path / "ledger.db")


@pytest.fixture
def turnlog_(capfd: pytest.CaptureFixture[str]) -> Turnlog:
    """Run a command in this process."""

    def invoke(*argv: str) -> Outcome:
        capfd.readouterr()
        code = run(argv)
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return invoke


@pytest.fixture
def history(turnlog_: Turnlog, tmp_path: Path) -> History:
    """A folder for histories, and the command line that imports them."""
    from tests.surfaces.import_history import History

    folder = tmp_path / "histories"
    folder.mkdir()
    return History(turnlog_, folder)


def shell(*argv: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Outcome:
    """Run a command as a process of its own, without a terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "turnlog", *argv],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, **(env or {})},
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())
