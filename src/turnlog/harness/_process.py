"""Agent programs: where they are, how they are started in a group of their own, and how that group is ended.

A program is looked for in an environment variable, then on PATH, then in ``.agents/`` beside turnlog's own checkout;
never in the working directory, which is the agent's and may hold anything (contract §2).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio
import psutil

from turnlog.errors import UnavailableError
from turnlog.process import Liveness, ProcessIdentity, identify, liveness

VERSION_DEADLINE: Final = 20.0
TERM_GRACE: Final = 3.0
"""Seconds between TERM and KILL."""

KILL_GRACE: Final = 2.0
POLL: Final = 0.02

_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_left_running: list[subprocess.Popen[bytes]] = []
"""Programs we detached from: kept so that they are reaped when they end, and that Python does not warn about them."""

_local_patterns: Final = {
    "opencode": "node_modules/opencode-*/bin/opencode",
    "codex": "node_modules/@openai/codex-*/vendor/*/bin/codex",
    "claude": "node_modules/@anthropic-ai/claude-code-*/claude",
}
"""Where the programs' platform packages keep their native program below ``.agents/<name>``."""


def locate(program: str, env: Mapping[str, str] | None = None, *, cwd: Path | None = None) -> Path:
    """Return the absolute path of an agent program.

    Raises UnavailableError when the variable ``TURNLOG_<PROGRAM>_BIN`` names nothing runnable, or nothing is found.
    """
    variables = os.environ if env is None else env
    name = f"TURNLOG_{program.upper()}_BIN"
    named = variables.get(name)
    if named:
        path = Path(named).expanduser()
        if not path.is_absolute() or not _runnable(path):
            raise UnavailableError(
                f"{name}={named} is not an absolute path of a program", hint=f"correct or unset {name}"
            )
        return path
    here = _here()
    forbidden = {os.path.realpath(folder) for folder in (cwd or here, here) if folder is not None}
    folders = [
        folder
        for folder in variables.get("PATH", "").split(os.pathsep)
        if Path(folder).is_absolute() and os.path.realpath(folder) not in forbidden
    ]
    found = shutil.which(program, path=os.pathsep.join(folders)) if folders else None
    if found:
        return Path(found)
    own = Path(__file__).resolve().parents[3] / ".agents" / program
    # In reverse, x64 comes before x64-baseline.
    for candidate in sorted(own.glob(_local_patterns[program]), key=str, reverse=True):
        if _runnable(candidate):
            return candidate
    raise UnavailableError(
        f"the program {program} is not installed", hint=f"install {program}, or set {name} to its absolute path"
    )


def _here() -> Path | None:
    """Return the working directory; None when it was deleted: then no program lies in it."""
    try:
        return Path.cwd()
    except OSError:
        return None


def _runnable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def parse_version(text: str) -> tuple[int, int, int] | None:
    """Return the first version in a text as three numbers, or None."""
    found = _VERSION.search(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


async def program_version(path: Path, env: Mapping[str, str] | None = None) -> str:
    """Ask a program for its version. Raises UnavailableError when it does not tell one."""
    try:
        with anyio.fail_after(VERSION_DEADLINE):
            done = await anyio.run_process(
                [str(path), "--version"], stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=False, env=env
            )
    except (OSError, TimeoutError) as error:
        raise UnavailableError(f"{path} --version does not run: {error}", hint=f"reinstall {path.name}") from error
    text = done.stdout.decode(errors="replace")
    if parse_version(text) is None:
        raise UnavailableError(f"{path} --version says no version", hint=f"reinstall {path.name}")
    return text.strip().splitlines()[-1]


class Program:
    """A program we started, in its own session and process group, with a private log and no stdin."""

    def __init__(self, popen: subprocess.Popen[bytes], identity: ProcessIdentity, log: Path) -> None:
        self._popen = popen
        self.identity = identity
        self.log = log

    @classmethod
    def start(cls, argv: list[str], *, cwd: Path, env: Mapping[str, str], log: Path) -> Program:
        """Start ``argv``; stdout and stderr go to ``log`` (0600). Raises UnavailableError when it cannot run."""
        _reap()
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            popen = subprocess.Popen(
                argv,
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                start_new_session=True,
            )
        except OSError as error:
            raise UnavailableError(
                f"cannot start {argv[0]}: {error}", hint="check the program and the folder"
            ) from error
        finally:
            os.close(descriptor)
        identity = identify(popen.pid)
        if identity is None:  # it ended already; the caller sees that by exit_code
            identity = ProcessIdentity(None, popen.pid, 0)
        return cls(popen, identity, log)

    def exit_code(self) -> int | None:
        """Return the exit code (negative: signal), or None while it runs."""
        return self._popen.poll()

    def log_tail(self, size: int = 2000) -> str:
        """Return the end of the log as text."""
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read().decode(errors="replace").strip()
        return ""

    def leave(self) -> None:
        """Let it run on without us."""
        if self._popen.poll() is None:
            _left_running.append(self._popen)

    async def end(self) -> None:
        """End the group, TERM then KILL, and wait for the exit; bounded."""
        await end_group(self.identity)
        # A program with threads can look ended before the system lets us reap it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            await anyio.to_thread.run_sync(self._popen.wait, KILL_GRACE)


async def end_group(identity: ProcessIdentity) -> None:
    """End a group leader with its group and descendants: TERM, then KILL after a grace time.

    Descendants count because agents run commands in groups of their own; those would go on working in the user's
    folder after the agent is gone. Does nothing when the recorded process no longer exists.
    """
    if liveness(identity.boot_id, identity.pid, identity.started_at) is not Liveness.ALIVE:
        return
    family = _family(identity.pid)
    for sent, grace in ((signal.SIGTERM, TERM_GRACE), (signal.SIGKILL, KILL_GRACE)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(identity.pid, sent)
        for member in family:
            with contextlib.suppress(psutil.Error):
                member.send_signal(sent)  # psutil checks the start time: never a stranger with a reused pid
        until = time.monotonic() + grace
        while time.monotonic() < until:
            if not any(_runs(member) for member in family):
                _reap()
                return
            await anyio.sleep(POLL)


def _reap() -> None:
    """Take the exit of programs that we once left running."""
    _left_running[:] = [popen for popen in _left_running if popen.poll() is None]


def _family(pid: int) -> list[psutil.Process]:
    try:
        leader = psutil.Process(pid)
        return [leader, *leader.children(recursive=True)]
    except psutil.Error:
        return []


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
