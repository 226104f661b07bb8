"""Histories are imported while the programs write them: nothing is lost, invented, or different in the end."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.live.cli import WAIT_S, Cli, status_of, until
from tests.live.natives import (
    Native,
    by_session,
    calls,
    counted,
    imported,
    native_id,
    only_session,
    receipts,
    settled,
    total,
    turns,
)
from tests.live.programs import PROVIDERS, command_line
from turnlog.testing.stub_llm import StubLlm

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

STEP = "until_test_-e_go;do_sleep_0.05;done;rm_go"
"""A command that ends once there is a file ``go``, and takes it away."""


@pytest.fixture
def stub() -> Iterator[StubLlm]:
    with StubLlm() as running:
        yield running


@pytest.fixture(params=PROVIDERS)
def native(request: pytest.FixtureRequest, stub: StubLlm, tmp_path: Path) -> Native:
    return Native(command_line(str(request.param), tmp_path, stub))


def elsewhere(cli: Cli, name: str) -> Cli:
    """Another ledger for the same programs."""
    root = cli.root / name
    root.mkdir()
    return Cli(root, cli.work, cli.env, cli.provider)


class Watching:
    """``turnlog import --watch`` in a process of its own; what it prints comes as it is printed."""

    def __init__(self, cli: Cli) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "turnlog", "--json", "import", "--watch", "--provider", cli.provider],
            cwd=cli.work,
            env=cli.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def next(self, seconds: float) -> dict[str, Any]:
        """Return the next import that found something. Raises queue.Empty."""
        found: dict[str, Any] = orjson.loads(self._lines.get(timeout=seconds))
        return found

    def end(self) -> tuple[int, bytes]:
        self._process.send_signal(signal.SIGINT)
        code = self._process.wait(WAIT_S)
        assert self._process.stderr is not None
        return code, self._process.stderr.read()

    def close(self) -> None:
        """End it whatever it does."""
        self._process.kill()
        self._process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()


def test_imports_during_a_turn_tell_the_same_in_the_end_as_one_import(native: Native) -> None:
    cli = native.cli
    native.say("[[stub: tool]] one")
    imported(cli)
    session = only_session(cli)
    running = native.start(f"[[stub: loop n=3 cmd={STEP}]] two", resume=native_id(session))
    seen: list[tuple[int | None, str | None]] = []

    def grown() -> bool:
        imported(cli)
        begun = turns(cli, session)
        if len(begun) < 2:
            return False
        before = seen[-1:]
        seen.append((total(cli)["tokens"]["output"], status_of(cli, session, begun[1])))
        return before != seen[-1:]

    for _ in range(3):  # each step is held until the one before was seen
        until(grown, "the turn grows")
        (cli.work / "go").touch()
    while running.poll() is None:
        grown()
    assert running.communicate(timeout=WAIT_S)[0]
    imported(cli)
    assert len({output for output, status in seen if status is None}) > 2, "it was seen to grow, without an end"
    assert [output for output, _ in seen] == sorted(output or 0 for output, _ in seen), "no total ever falls"
    anew = elsewhere(cli, "anew")
    imported(anew)
    once, often = receipts(anew, session), receipts(cli, session)
    # Counters of an answer that was still being written may have been seen; they are of the same call.
    assert [row for row in often if row[0] != "usage"] == [row for row in once if row[0] != "usage"]
    assert set(once) <= set(often)
    assert by_session(cli) == by_session(anew) == {session: calls(6)}
    assert total(cli)["gaps"] == []
    settled(cli)


def test_a_driven_turn_is_imported_while_it_runs(native: Native) -> None:
    cli = native.cli
    running = cli.start("run", "--provider", cli.provider, "--permissions", "allow", "[[stub: loop n=3 cmd=sleep_0.4]]")
    while running.process.poll() is None:
        imported(cli)
    done = running.result()
    assert (done["status"], done["answer"]) == ("completed", "stub answer")
    imported(cli)
    assert only_session(cli) == done["session"], "a conversation that is found before turnlog knows its name is joined"
    assert (counted(total(cli)), total(cli)["gaps"]) == (calls(4), [])
    settled(cli)


def test_a_watching_import_sees_a_new_turn_by_itself_and_ends_on_ctrl_c(native: Native) -> None:
    cli = native.cli
    native.say("[[stub: tool]] one")
    watching = Watching(cli)
    try:
        assert watching.next(WAIT_S)["receipts"]["new"] == 5
        session = only_session(cli)
        native.say("[[stub: text text=second]] two", resume=native_id(session))
        while len(found := turns(cli, session)) < 2 or status_of(cli, session, found[1]) is None:
            watching.next(WAIT_S)
        assert cli("answer", session)["text"] == "second"
        assert counted(total(cli)) == calls(3)
        code, errors = watching.end()
    finally:
        watching.close()
    assert code == 130
    assert b"Traceback" not in errors
    settled(cli)
