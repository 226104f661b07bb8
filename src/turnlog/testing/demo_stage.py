"""Where the demo plays: a folder, a home, a model stub, an OpenCode, and the certainty that all of it ends.

Everything that is started carries a mark in its environment, so nothing that was started can be missed at the end,
not even what an agent left behind when its server was killed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

import psutil

from turnlog import Ledger, open_ledger
from turnlog.errors import UnavailableError
from turnlog.harness._process import locate
from turnlog.model import EventKind
from turnlog.process import Liveness, boot_id, liveness
from turnlog.testing.opencode_home import opencode_home
from turnlog.testing.stub_llm import StubLlm

MARK: Final = "TURNLOG_DEMO"
DEADLINE_S: Final = 60.0
"""Longest wait for one command or one fact; a demo that takes longer is broken and says so."""

POLL_S: Final = 0.02
PACE_S: Final = 1.0
"""How long half an answer stays on the screen before it is cut off. For the eye only: nothing depends on it."""

_FOREIGN: Final = ("OPENCODE_", "TURNLOG_", "XDG_")
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")


class DemoError(Exception):
    """The demo cannot go on; ``hint`` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class Stage:
    """A temporary world as a context manager; leaving it ends every process of it and removes the folder."""

    def __init__(self, *, keep: bool = False) -> None:
        self._opencode = find_opencode()
        self._keep = keep
        self._token = secrets.token_hex(8)
        self._folder = Path(tempfile.mkdtemp(prefix="turnlog-demo-"))
        self._stub = StubLlm()
        self._running: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._stub.__enter__()
        home = opencode_home(self._folder, self._stub.url)
        self.folder = home.work
        self.ledger_path = self._folder / "ledger.db"
        self.url = f"sqlite:///{self.ledger_path}"
        self._env = {
            **{name: value for name, value in os.environ.items() if not _is_foreign(name)},
            **home.env,
            "TURNLOG_LEDGER": self.url,
            "TURNLOG_OPENCODE_BIN": str(self._opencode),
            MARK: self._token,
        }
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._settle()
        finally:
            self._sweep()
            self._stub.__exit__()
            if not self._keep:
                shutil.rmtree(self._folder, ignore_errors=True)

    def opencode_version(self) -> str:
        """Return what the program says of itself."""
        done = subprocess.run(
            [str(self._opencode), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=DEADLINE_S,
            env=self._env,
        )
        return done.stdout.decode(errors="replace").strip() or "of unknown version"

    def turnlog(self, *words: str, meanwhile: Callable[[], None] | None = None) -> int:
        """Run the real command line in a process of its own, on this terminal; return its exit code."""
        sys.stdout.flush()
        self._running = subprocess.Popen(
            [sys.executable, "-m", "turnlog", *words], cwd=self.folder, env=self._env, stdin=subprocess.DEVNULL
        )
        if meanwhile is not None:
            meanwhile()
        try:
            code = self._running.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise DemoError(
                f"{shlex.join(['turnlog', *words])} did not end within {DEADLINE_S:g} s",
                "look at the log of its engine with --keep; a slow machine may need another try",
            ) from None
        self._running = None
        return code

    def newest_session(self) -> str:
        """Return the id of the conversation that was driven last."""
        with open_ledger(self.url, read_only=True) as ledger:
            session = ledger.latest_session()
        if session is None:
            raise DemoError("no conversation was recorded", "this is a bug in turnlog")
        return session.id

    def kill_engine(self, after: str) -> int:
        """Wait until the turn of a conversation newer than ``after`` has begun, then kill its engine's group.

        Returns the id of the process group. What is waited for are rows of the ledger, written by the command that
        runs meanwhile, and the model's being asked.
        """
        deadline = time.monotonic() + DEADLINE_S
        with open_ledger(self.url, read_only=True) as ledger:
            while (engine := self._engine_of_turn(ledger, after)) is None:
                if self._running is None or self._running.poll() is not None:
                    raise DemoError("the command ended before its turn began", "its own words are above")
                if time.monotonic() > deadline:
                    raise DemoError(f"no turn began within {DEADLINE_S:g} s", "try again on a less busy machine")
                time.sleep(POLL_S)
        time.sleep(PACE_S)
        pid, started_at = engine
        if liveness(boot_id(), pid, started_at) is not Liveness.ALIVE:
            raise DemoError(f"the recorded engine, pid {pid}, does not run", "this is a bug in turnlog")
        os.killpg(pid, signal.SIGKILL)
        return pid

    def _engine_of_turn(self, ledger: Ledger, after: str) -> tuple[int, int] | None:
        """Return pid and start time of the engine of the newest turn, once that has begun and its model hangs."""
        session = ledger.latest_session()
        if session is None or session.id == after or not any(entry["mode"] == "hang" for entry in self._stub.log()):
            return None
        if all(event.kind is not EventKind.STARTED for event in ledger.history(session.id)):
            return None
        return ledger.process(session.id)

    def _settle(self) -> None:
        """End the command that still runs, if any: politely, so that it records what it knows, then not."""
        running, self._running = self._running, None
        if running is None or running.poll() is not None:
            return
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            running.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(10)
                return

    def _sweep(self) -> None:
        """Kill every process that carries our mark; children of children carry it too."""
        ours = [process for process in psutil.process_iter() if process.pid != os.getpid() and self._is_ours(process)]
        for process in ours:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(ours, timeout=5)

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(MARK) == self._token
        except (psutil.Error, OSError):
            return False


def find_opencode() -> Path:
    """Return the OpenCode to use. Raises DemoError with a hint when there is none."""
    try:
        return locate("opencode")
    except UnavailableError as error:
        wrong = os.environ.get("TURNLOG_OPENCODE_BIN")
        raise DemoError(
            error.message,
            error.hint if wrong else "`make agents` installs it beside this checkout; that needs npm",
        ) from error


def _is_foreign(name: str) -> bool:
    """Tell whether a variable of the caller could lead the demo out of its folder or off this machine."""
    return name.startswith(_FOREIGN) or name.lower() in _PROXIES
