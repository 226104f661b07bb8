"""The real command line in a process of its own, with a hermetic home; waits on the ledger, never on time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

import turnlog
from turnlog import Event, EventKind, Ledger
from turnlog.testing.stub_llm import StubLlm

WAIT_S = 100.0
"""How long anything may take that is waited for: it only bounds a hang."""


HELD = "[[stub: tool cmd=touch_made;until_test_-e_go;do_sleep_0.05;done]]"
"""Makes the file ``made``, and goes on only once there is a file ``go``."""


class Cli:
    """``turnlog`` on one ledger. ``env`` holds what the agent program needs."""

    def __init__(self, root: Path, work: Path, env: dict[str, str], provider: str = "opencode") -> None:
        self.root = root
        self.work = work
        self.provider = provider
        self.url = f"sqlite:///{root / 'ledger.db'}"
        self.env = {**os.environ, **env, "TURNLOG_LEDGER": self.url, "NO_COLOR": "1"}

    def ledger(self) -> Ledger:
        return turnlog.open_ledger(self.url)

    def start(self, *args: str) -> Running:
        return Running(
            subprocess.Popen(
                [sys.executable, "-m", "turnlog", "--json", *args],
                cwd=self.work,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )

    def __call__(self, *args: str, code: int | None = 0) -> Any:
        return self.start(*args).result(code)

    def run(self, prompt: str, *args: str, code: int = 0) -> Any:
        return self("run", "--provider", self.provider, *args, prompt, code=code)

    def resume(self, session: str, prompt: str, *args: str, code: int = 0) -> Any:
        return self("resume", session, *args, prompt, code=code)

    def recover_changes_nothing(self, session: str) -> None:
        """Recovery, twice: the rows that a person reads stay the same (promise 2)."""
        self("recover", session, code=None)
        first = rows(self, session)
        self("recover", session, code=None)
        assert rows(self, session) == first
        with self.ledger() as ledger:
            assert ledger.verify() == []


class Running:
    """A command that runs."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def result(self, code: int | None = 0) -> Any:
        out, err = self.process.communicate(timeout=WAIT_S)
        if code is not None:
            assert self.process.returncode == code, (self.process.returncode, out, err)
        return json.loads(out or err or "null")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=WAIT_S)


def until(found: Callable[[], Any], what: str) -> Any:
    """Wait for a fact of the ledger; polling stands in for a notification, with a deadline."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        value = found()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not seen within {WAIT_S} s: {what}")


def hangs(stub: StubLlm) -> None:
    """Wait until the model was asked something that it does not answer before it is released.

    By then the program has taken the prompt, and all that was before it is written down.
    """
    stub.wait(lambda log: any(entry["mode"] == "hang" and entry["outcome"] is None for entry in log), WAIT_S)


def session_of(cli: Cli) -> str:
    """The conversation of the command that was started last, once it has a turn."""

    def find() -> str | None:
        with cli.ledger() as ledger:
            session = ledger.latest_session()
            return session.id if session is not None else None

    return str(until(find, "a session"))


def events(cli: Cli, session: str) -> list[Event]:
    with cli.ledger() as ledger:
        return ledger.history(session)


def kinds(cli: Cli, session: str) -> list[str]:
    return [str(event.kind) for event in events(cli, session) if event.turn is not None]


def rows(cli: Cli, session: str) -> list[tuple[Any, ...]]:
    """What is recorded of a conversation, without the records of recovery itself."""
    return [
        (event.seq, event.kind, event.turn, repr(event.payload))
        for event in events(cli, session)
        if event.kind is not EventKind.OBSERVED
    ]


def begun(cli: Cli, session: str, count: int = 1) -> list[Event]:
    """Wait until so many turns have started."""

    def find() -> list[Event] | None:
        found = [event for event in events(cli, session) if event.kind is EventKind.STARTED]
        return found if len(found) >= count else None

    return list(until(find, f"{count} started turns"))


def observed(cli: Cli, session: str, source: str) -> list[Event]:
    """Observations whose source begins with these words."""
    return [
        event
        for event in events(cli, session)
        if event.kind is EventKind.OBSERVED and str(event.payload.get("source", "")).startswith(source)
    ]


def engine_of(cli: Cli, session: str) -> psutil.Process:
    """The agent program that serves a conversation."""

    def find() -> tuple[int, int] | None:
        with cli.ledger() as ledger:
            return ledger.process(session)

    pid, _ = until(find, "an engine process")
    return psutil.Process(pid)


def kill_group(process: psutil.Process) -> None:
    """End a program and what it started, by its own process group."""
    os.killpg(os.getpgid(process.pid), signal.SIGKILL)


def status_of(cli: Cli, session: str, turn: str) -> str | None:
    """The recorded completion of a turn, or None."""
    found = [e.payload["status"] for e in events(cli, session) if e.turn == turn and e.kind is EventKind.COMPLETED]
    return found[0] if found else None
