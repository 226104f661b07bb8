"""Where agent programs are looked for, and where never."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.harness.driving import until
from turnlog.errors import UnavailableError
from turnlog.harness import _process
from turnlog.harness._process import Program, end_group, locate, parse_version, program_version
from turnlog.process import ProcessIdentity


def program(path: Path, text: str = "#!/bin/sh\necho 1.2.3\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put turnlog's own checkout where it has no agents."""
    package = tmp_path / "checkout" / "src" / "turnlog" / "harness" / "_process.py"
    package.parent.mkdir(parents=True)
    monkeypatch.setattr(_process, "__file__", str(package))
    return tmp_path / "checkout"


def test_the_variable_comes_first(tmp_path: Path) -> None:
    named, on_path = program(tmp_path / "a" / "oc"), program(tmp_path / "b" / "opencode")
    env = {"TURNLOG_OPENCODE_BIN": str(named), "PATH": str(on_path.parent)}
    assert locate("opencode", env) == named
    assert locate("opencode", {"PATH": env["PATH"]}) == on_path


@pytest.mark.parametrize("value", ["missing", "./opencode", "opencode"])
def test_a_variable_that_names_nothing_is_an_error_not_a_reason_to_look_on(tmp_path: Path, value: str) -> None:
    on_path = program(tmp_path / "b" / "opencode")
    with pytest.raises(UnavailableError) as caught:
        locate("opencode", {"TURNLOG_OPENCODE_BIN": value, "PATH": str(on_path.parent)})
    assert "TURNLOG_OPENCODE_BIN" in caught.value.hint


def test_the_working_directory_is_never_searched(
    tmp_path: Path, nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "work" / "opencode")
    program(tmp_path / "work" / ".agents/opencode/node_modules/opencode-x/bin/opencode")
    monkeypatch.chdir(tmp_path / "work")
    for path in ("", ".", f":{tmp_path}/work:", "work", str(tmp_path / "work")):
        with pytest.raises(UnavailableError, match="not installed"):
            locate("opencode", {"PATH": path})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnavailableError):
        locate("opencode", {"PATH": str(tmp_path / "work")}, cwd=tmp_path / "work")


def test_the_checkouts_own_agents_come_last(tmp_path: Path, nowhere: Path) -> None:
    folder = nowhere / ".agents" / "opencode" / "node_modules"
    program(folder / "opencode-linux-x64-baseline" / "bin" / "opencode")
    better = program(folder / "opencode-linux-x64" / "bin" / "opencode")
    assert locate("opencode", {"PATH": str(tmp_path)}) == better
    on_path = program(tmp_path / "b" / "opencode")
    assert locate("opencode", {"PATH": str(on_path.parent)}) == on_path


def test_versions(tmp_path: Path) -> None:
    assert parse_version("codex-cli 0.171.0") == (0, 171, 0)
    assert parse_version("none") is None
    assert asyncio.run(program_version(program(tmp_path / "p"))) == "1.2.3"
    for text in ("#!/bin/sh\necho hello\n", "#!/nonexistent/x\n"):
        with pytest.raises(UnavailableError):
            asyncio.run(program_version(program(tmp_path / "p", text)))


def test_a_program_has_no_stdin_and_a_private_log(tmp_path: Path) -> None:
    async def run() -> Program:
        code = "import sys; print(repr(sys.stdin.read()), flush=True); print('err', file=sys.stderr)"
        started = Program.start([sys.executable, "-c", code], cwd=tmp_path, env={}, log=tmp_path / "log")
        await until(lambda: started.exit_code() is not None)
        return started

    started = asyncio.run(run())
    assert started.exit_code() == 0
    assert started.log_tail() == "''\nerr"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_a_program_that_cannot_start(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="cannot start"):
        Program.start([str(tmp_path / "nothing")], cwd=tmp_path, env={}, log=tmp_path / "log")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="link"):
        Program.start([sys.executable], cwd=tmp_path, env={}, log=tmp_path / "link")


def test_a_stranger_with_the_same_pid_is_not_ended(tmp_path: Path) -> None:
    async def run() -> None:
        code = "import time; time.sleep(60)"
        started = Program.start([sys.executable, "-c", code], cwd=tmp_path, env={}, log=tmp_path / "log")
        known = started.identity
        await end_group(ProcessIdentity(known.boot_id, known.pid, known.started_at - 60_000))
        assert started.exit_code() is None
        await started.end()
        assert started.exit_code() == -15

    asyncio.run(run())
