"""The frame of the command line: options, help, errors in two lines, start-up cost, streams that go away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.surfaces.conftest import Turnlog, shell
from tests.surfaces.scenes import Scene
from turnlog.surfaces.cli import app, inputs
from turnlog.surfaces.cli.usage_show import TITLES

HEAVY = {"typer", "click", "rich", "anyio", "httpx", "apsw", "msgspec", "turnlog.api", "turnlog.ledger", "jsonschema"}


def loaded_by(*argv: str) -> set[str]:
    code = f"import sys; from turnlog.surfaces.cli.app import run; run({list(argv)!r}); print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, timeout=60)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("argv", [["--version"], ["--help"], ["nonsense"]])
def test_what_needs_no_ledger_loads_nothing_heavy(argv: list[str]) -> None:
    assert loaded_by(*argv) & HEAVY == set()


def test_help_of_a_command_loads_neither_ledger_nor_event_loop() -> None:
    assert loaded_by("run", "--help") & {"anyio", "httpx", "apsw", "turnlog.ledger", "jsonschema", "rich"} == set()


@pytest.mark.usefixtures("scene")
def test_reading_loads_no_event_loop() -> None:
    assert loaded_by("sessions") & {"anyio", "httpx", "jsonschema"} == set()


def test_version(turnlog_: Turnlog) -> None:
    assert turnlog_("--version").out == f"turnlog {metadata.version('turnlog')}\n"


def test_help_names_every_command_and_says_what_the_command_itself_says(turnlog_: Turnlog) -> None:
    page = turnlog_("--help").out
    for name, (_, _, what) in app.COMMANDS.items():
        assert f"  {name:<20} {what}\n" in page
        shown = turnlog_(*name.split(), "--help")
        assert shown.code == 0
        assert f"Usage: turnlog {name} " in shown.out
        assert "Example: turnlog " in shown.out
        assert all(option in shown.out for option in ("--json", "--ledger URL", "--no-color"))
        assert turnlog_("help", *name.split()).out == shown.out


def test_no_command_is_a_usage_error_with_the_help_on_stderr(turnlog_: Turnlog) -> None:
    shown = turnlog_()
    assert (shown.code, shown.out) == (2, "")
    assert "Commands" not in shown.err
    assert "sessions" in shown.err


@pytest.mark.parametrize(
    ("argv", "what", "hint"),
    [
        (
            ["sesions"],
            "no such command: sesions",
            "did you mean `turnlog sessions`? `turnlog --help` lists the commands",
        ),
        (["serve"], "no such command: serve", "`turnlog --help` lists the commands"),
        (["mcp"], "no such command: mcp", "`turnlog --help` lists the commands"),
        (["--nope"], "no such option: --nope", "`turnlog --help` lists options and commands"),
        (["ledger"], "`turnlog ledger` needs to be told what", "try `turnlog ledger backup`"),
        (["--ledger"], "--ledger needs a URL", "write --ledger sqlite:////absolute/path"),
        (["show"], "missing argument 'SESSION'", "`turnlog show --help` shows how it is used"),
        (["run", "fix", "it"], "got unexpected extra argument(s) (it)", "put the text in quotes: it is one argument"),
        (["usage", "yearly"], "no usage report 'yearly'", f"choose one of {', '.join(TITLES)}"),
        (["inputs", "--limit", "0"], "--limit must be positive", "write --limit 50"),
        (["--ledger", "mysql://x", "sessions"], "'mysql://x' is not a ledger URL", None),
    ],
)
def test_usage_errors_are_two_lines_and_exit_2(turnlog_: Turnlog, argv: list[str], what: str, hint: str | None) -> None:
    shown = turnlog_(*argv)
    assert (shown.code, shown.out) == (2, "")
    first, second = shown.err.splitlines()
    assert first == f"turnlog: {what}"
    assert second.startswith("hint: ")
    assert hint is None or second == f"hint: {hint}"


def test_errors_under_json_are_an_object_on_stderr(turnlog_: Turnlog) -> None:
    for argv in (["--json", "sesions"], ["show", "--json"], ["--json", "usage", "--nope"]):
        shown = turnlog_(*argv)
        assert (shown.code, shown.out) == (2, "")
        assert set(shown.error) == {"code", "message", "hint"}
        assert shown.error["code"] == "invalid"


@pytest.mark.usefixtures("scene")
def test_global_options_stand_before_or_after_the_command(turnlog_: Turnlog, monkeypatch: pytest.MonkeyPatch) -> None:
    url = os.environ["TURNLOG_LEDGER"]
    expected = turnlog_("sessions", "--json").json
    assert len(expected["sessions"]) == 2
    assert turnlog_("--json", "sessions").json == expected
    assert turnlog_("--no-color", "--json", "sessions", "--all", "--no-color").code == 0
    monkeypatch.setenv("TURNLOG_LEDGER", "sqlite:////nowhere/at/all.db")
    assert turnlog_("--ledger", url, "--json", "sessions").json == expected
    assert turnlog_(f"--ledger={url}", "sessions", "--json").json == expected
    assert turnlog_("sessions", "--json", "--ledger", url).json == expected
    assert turnlog_("--ledger", "sqlite:////nowhere.db", "sessions", f"--ledger={url}", "--json").json == expected


@pytest.mark.usefixtures("scene")
def test_json_that_is_data_is_not_an_option(turnlog_: Turnlog) -> None:
    assert turnlog_("show", "--", "--json").err.startswith("turnlog: no session '--json'\nhint: ")


def test_the_ledger_is_found_by_flag_then_environment_then_file_then_default(
    turnlog_: Turnlog, scene: Scene, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TURNLOG_LEDGER")
    before = sorted(home.rglob("*"))
    missing = turnlog_("sessions")
    assert missing.code == 1
    assert missing.err.startswith(
        f"turnlog: no ledger at {home}/data/turnlog/ledger.db\nhint: `turnlog import` or `run` makes one"
    )
    assert sorted(home.rglob("*")) == before, "reading makes nothing"
    (home / "config" / "turnlog").mkdir(parents=True)
    (home / "config" / "turnlog" / "config.toml").write_text(f'ledger = "{scene.url}"\n')
    assert turnlog_("sessions").code == 0


def test_an_unexpected_error_is_two_lines_and_a_traceback_only_when_asked_for(
    turnlog_: Turnlog, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> int:
        raise ZeroDivisionError("by \x1b[31mzero\nand more")

    monkeypatch.setattr(inputs, "inputs", broken)
    shown = turnlog_("inputs")
    assert shown.code == 1
    assert shown.err.splitlines()[0] == "turnlog: ZeroDivisionError: by zero and more"
    assert shown.err.splitlines()[1].startswith("hint: run it again with TURNLOG_DEBUG=1")
    assert json.loads(turnlog_("inputs", "--json").err)["error"]["code"] == "internal"
    monkeypatch.setenv("TURNLOG_DEBUG", "1")
    assert "Traceback" in turnlog_("inputs").err


def test_an_interrupted_reader_leaves_with_130(turnlog_: Turnlog, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(inputs, "inputs", interrupted)
    assert turnlog_("inputs").code == 130


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_reader_that_leaves_is_quiet(scene: Scene, options: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "turnlog", "history", scene.fixed, *options],
            stdout=write,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_output_that_cannot_be_written_is_an_error(scene: Scene) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-m", "turnlog", "history", scene.fixed],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    assert done.returncode == 1
    assert b"turnlog: OSError: [Errno 28]" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.usefixtures("scene")
def test_a_terminal_of_another_encoding_is_no_error() -> None:
    shown = shell("sessions", env={"PYTHONIOENCODING": "ascii"})
    assert shown.code == 0
    assert "Gr??e" in shown.out


def test_json_is_utf8_whatever_the_terminal_is(scene: Scene) -> None:
    shown = shell("show", "--json", scene.gappy, env={"PYTHONIOENCODING": "ascii"})
    assert shown.json["session"]["title"] == "Größe 日本語"
