"""The programs as their owners run them, without turnlog, and what the command line then says of their histories."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from tests.live.cli import WAIT_S, Cli, events
from turnlog import EventKind
from turnlog.harness._process import locate

Receipts = list[tuple[str, str | None, str | None, str]]


class Native:
    """One program with the home of a ``Cli``: its own command, its own history."""

    def __init__(self, cli: Cli) -> None:
        self.cli = cli
        self._program = str(locate(cli.provider, cli.env, cwd=cli.work))
        # OpenCode works where the shell says it is, not where the process is.
        self._env = {**cli.env, "PWD": str(cli.work)}

    def start(self, prompt: str, *, resume: str | None = None, fork: bool = False) -> subprocess.Popen[bytes]:
        """Begin one turn; in the native conversation ``resume``, or in a copy of it."""
        return subprocess.Popen(
            [self._program, *self._words(resume, fork=fork), prompt],
            cwd=self.cli.work,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def say(self, prompt: str, *, resume: str | None = None, fork: bool = False) -> str:
        """Do one turn to its end and return what the program printed."""
        process = self.start(prompt, resume=resume, fork=fork)
        out, err = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, (process.returncode, out, err)
        return out.decode()

    @contextlib.contextmanager
    def server(self) -> Iterator[Server]:
        """Run Codex's server on its pipes."""
        process = subprocess.Popen(
            [self._program, "app-server"],
            cwd=self.cli.work,
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with process:
            server = Server(process)
            server.ask("initialize", clientInfo={"name": "owner", "version": "1"})
            yield server
            server.close()
            process.wait(WAIT_S)

    def _words(self, resume: str | None, *, fork: bool) -> list[str]:
        if self.cli.provider == "claude":
            words = ["-p", "--dangerously-skip-permissions"]
            words += ["--resume", resume] if resume else []
            return [*words, *(["--fork-session"] if fork else [])]
        if self.cli.provider == "codex":
            return ["exec", *(["resume", resume] if resume else [])]
        words = ["run", *(["--session", resume] if resume else [])]
        return [*words, *(["--fork"] if fork else [])]


class Server:
    """Codex's server: one JSON object a line, answers by number, the rest as it comes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._number = 0
        self._ended: list[str] = []

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and return its result."""
        self._number += 1
        line = orjson.dumps({"id": self._number, "method": method, "params": params}) + b"\n"
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()
        answer = self.hear(lambda said: said.get("id") == self._number and "method" not in said)
        result: dict[str, Any] = answer["result"]
        return result

    def hear(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first line of a kind; others before it are passed over, but ends of turns are remembered."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said: dict[str, Any] = orjson.loads(line)
            if said.get("method") == "turn/completed":
                self._ended.append(said["params"]["threadId"])
            if wanted(said):
                return said
        raise AssertionError("the server has ended")

    def turn(self, thread: str, prompt: str) -> None:
        """Do one turn to its end."""
        self.ask("turn/start", threadId=thread, input=[{"type": "text", "text": prompt}])
        self.ended(thread)

    def close(self) -> None:
        """Nothing more is asked: the server ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def ended(self, thread: str) -> None:
        """Wait for the end of a turn; it may have come before the answer that promised the turn."""
        if thread not in self._ended:
            self.hear(lambda _: thread in self._ended)
        self._ended.remove(thread)


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a program at once, with what it started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=WAIT_S)


def imported(cli: Cli, **expected: int) -> dict[str, Any]:
    """Import the program's own home without problems; ``expected`` are members of the answer."""
    done: dict[str, Any] = cli("import", "--provider", cli.provider)
    assert done["problems"] == []
    assert {name: done[name] for name in expected} == expected
    return done


def total(cli: Cli) -> dict[str, Any]:
    """What the report says of everything, without importing."""
    row: dict[str, Any] = cli("usage", "total", "--no-import")["totals"]
    return row


def counted(row: dict[str, Any]) -> tuple[int | None, int | None, int | None]:
    """Everything sent, read from a cache, answered."""
    tokens = row["tokens"]
    return tokens["total_input"], tokens["cache_read"], tokens["output"]


def calls(count: int) -> tuple[int, int, int]:
    """What so many calls of the stub cost, as ``counted`` says it."""
    return count * 1600, count * 400, count * 50


def by_session(cli: Cli) -> dict[str, tuple[int | None, int | None, int | None]]:
    rows = cli("usage", "session", "--no-import")["rows"]
    return {row["key"]: counted(row) for row in rows}


def sessions(cli: Cli) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cli("sessions", "--all")["sessions"]
    return found


def only_session(cli: Cli) -> str:
    (found,) = sessions(cli)
    return str(found["id"])


def native_id(session: str) -> str:
    return session.partition(":")[2]


def receipts(cli: Cli, session: str) -> Receipts:
    """The provider's receipts of a conversation, in no order."""
    native = {EventKind.STARTED, EventKind.USAGE, EventKind.OUTPUT, EventKind.COMPLETED}
    return sorted(
        (str(event.kind), event.thread, event.turn, repr(event.payload))
        for event in events(cli, session)
        if event.kind in native
    )


def turns(cli: Cli, session: str) -> list[str]:
    """The turns of a conversation in the order in which they began."""
    return [str(event.turn) for event in events(cli, session) if event.kind is EventKind.STARTED]


def printed(cli: Cli, *args: str) -> str:
    """What a person reads."""
    command = [sys.executable, "-m", "turnlog", *args]
    done = subprocess.run(
        command, cwd=cli.work, env=cli.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT_S, check=True
    )
    return done.stdout.decode()


def said(cli: Cli, session: str, role: str) -> list[str]:
    """What one role said in a conversation, as it is exported."""
    lines = [orjson.loads(line) for line in printed(cli, "export", session, "--format", "jsonl").splitlines()]
    return [line["text"] for line in lines if line.get("role") == role and line["session"] == session]


def settled(cli: Cli) -> None:
    """Nothing more is to be learned from the disk, and the ledger agrees with itself."""
    before = total(cli)
    held = {row["id"]: receipts(cli, row["id"]) for row in sessions(cli)}
    done = imported(cli)
    assert done["receipts"]["new"] == 0
    assert total(cli) == before
    assert {row["id"]: receipts(cli, row["id"]) for row in sessions(cli)} == held
    assert cli("verify")["problems"] == []
