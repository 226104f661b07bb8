"""``turnlog watch``: every receipt once and in order, whoever writes; resumable; it ends when nobody reads."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from tests import postgres_server
from tests.ledger.children import child
from tests.ledger.sqlite_setup import raw
from tests.postgres_server import PostgresSetup
from tests.surfaces.conftest import Turnlog
from tests.surfaces.scenes import DONE, Scene
from turnlog import open_ledger

WRITER = """
import sys
import turnlog
url, session, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with turnlog.open_ledger(url) as ledger:
    print("ready")
    sys.stdin.readline()
    for number in range(count):
        ledger.record(session, "t", str(number), "usage", {"n": number})
        print(number, flush=True)
print("done")
"""


class Watch:
    """A watch as a process of its own, whose lines are read as they come."""

    def __init__(self, *argv: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "turnlog", "--json", "watch", *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    @property
    def out(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def line(self) -> dict[str, Any]:
        text = self.out.readline()
        assert text, self.process.stderr and self.process.stderr.read()
        value: dict[str, Any] = json.loads(text)
        return value

    def until(self, seq: int) -> list[dict[str, Any]]:
        found = [self.line()]
        while found[-1]["seq"] < seq:
            found.append(self.line())
        return found


@contextlib.contextmanager
def watching(*argv: str) -> Iterator[Watch]:
    watch = Watch(*argv)
    try:
        yield watch
    finally:
        watch.process.kill()
        watch.process.communicate()


def seqs(scene: Scene) -> list[int]:
    with raw(Path(scene.url.removeprefix("sqlite:///"))) as connection:
        return [row[0] for row in connection.execute("SELECT seq FROM session_events ORDER BY seq")]


def test_from_the_start_every_receipt_comes_with_a_cursor(scene: Scene) -> None:
    wanted = seqs(scene)
    with watching("--from", "start") as watch:
        lines = watch.until(wanted[-1])
    assert [line["seq"] for line in lines] == wanted
    with open_ledger(scene.url) as ledger:
        [event] = [each for each in ledger.history(scene.fixed) if each.turn == DONE and each.kind == "output"]
    [told] = [line for line in lines if line["seq"] == event.seq]
    assert (told["session_id"], told["kind"], told["payload"]) == (scene.fixed, "output", event.payload)
    assert told["observed_at"].startswith("2026-02-02T")
    with watching("--from", lines[4]["cursor"]) as watch:
        assert [line["seq"] for line in watch.until(wanted[-1])] == wanted[5:]


def test_without_a_cursor_nothing_old_is_printed(scene: Scene) -> None:
    with watching() as watch, open_ledger(scene.url) as ledger:
        wait_until_it_reads(watch)
        seq = ledger.record(scene.closed, "t", "new", "started", {})
        assert watch.line()["seq"] == seq


def wait_until_it_reads(watch: Watch) -> None:
    """Wait until the watch has the ledger open and has begun to wait: it then sleeps in short steps."""
    process = psutil.Process(watch.process.pid)
    while not (
        any(each.path.endswith("ledger.db") for each in process.open_files()) and process.num_ctx_switches().voluntary
    ):
        assert watch.process.poll() is None
    before = process.num_ctx_switches().voluntary
    deadline = time.monotonic() + 30
    while process.num_ctx_switches().voluntary < before + 3:
        assert time.monotonic() < deadline


def test_one_conversation_and_one_kind_alone(scene: Scene) -> None:
    with open_ledger(scene.url) as ledger:
        wanted = [each.seq for each in ledger.history(scene.fixed) if each.kind == "started"]
        assert len(wanted) == 2
        last = ledger.record(scene.fixed, "t", "last", "started", {})
    with watching("--from", "0", "--session", scene.fixed, "--kind", "started") as watch:
        assert [line["seq"] for line in watch.until(last)] == [*wanted, last]
    with watching("--from", "0", "--kind", "started") as watch:
        lines = watch.until(last)
    assert {line["kind"] for line in lines} == {"started"}
    assert len({line["session_id"] for line in lines}) == 2


def test_many_writers_and_one_that_is_killed(scene: Scene) -> None:
    count = 120
    with open_ledger(scene.url) as ledger, contextlib.ExitStack() as stack:
        names = [ledger.create_session(id=f"w{number}", cwd="/w").id for number in range(3)]
        begin = seqs(scene)[-1]
        watch = stack.enter_context(watching("--from", f"{ledger.tail_end()}"))
        writers = [stack.enter_context(child(WRITER, scene.url, name, str(count))) for name in names]
        for writer in writers:
            assert writer.line() == "ready"
        for writer in writers:
            writer.say()
        victim = writers.pop()
        while victim.line() != "20":
            pass
        victim.kill()
        for writer in writers:
            assert writer.finish()[-1] == "done"
        last = ledger.record("w0", "t", "last", "completed", {"status": "completed"})
        lines = watch.until(last)
        wanted = [each for each in seqs(scene) if each > begin]
    assert [line["seq"] for line in lines] == wanted
    assert len(wanted) > 2 * count + 20
    for name in names[:2]:
        told = [line["payload"]["n"] for line in lines if line["session_id"] == name and line["kind"] == "usage"]
        assert told == list(range(count))


def test_a_receipt_comes_soon_and_waiting_costs_little(scene: Scene) -> None:
    with watching() as watch, open_ledger(scene.url) as ledger:
        wait_until_it_reads(watch)
        took = []
        for number in range(5):
            before = time.monotonic()
            ledger.record(scene.closed, "t", f"n{number}", "started", {})
            watch.line()
            took.append(time.monotonic() - before)
    assert min(took) < 0.2


def test_an_interrupt_tells_where_to_go_on(scene: Scene) -> None:
    with watching("--from", "start") as watch:
        last = watch.until(seqs(scene)[-1])[-1]
        watch.process.send_signal(signal.SIGINT)
        _, err = watch.process.communicate(timeout=30)
    assert watch.process.returncode == 130
    error = json.loads(err)["error"]
    assert error["code"] == "interrupted"
    assert last["cursor"] in error["hint"]


def test_it_ends_when_nobody_reads_any_more(scene: Scene) -> None:
    with watching("--from", "start") as watch:
        watch.line()
        watch.out.close()
        assert watch.process.wait(timeout=30) == 0


def test_a_receipt_that_cannot_be_read_is_told_as_such_and_hides_no_other(scene: Scene) -> None:
    path = Path(scene.url.removeprefix("sqlite:///"))
    with raw(path) as connection:
        connection.execute("UPDATE session_events SET payload = '{torn' WHERE kind = 'output'")
        connection.execute(
            "INSERT INTO session_events (session_id, kind, receipt_key, observed_at, payload)"
            " VALUES (?, 'dreamt', 'x', 1, '{}')",
            (scene.fixed,),
        )
    wanted = seqs(scene)
    with watching("--from", "start") as watch:
        lines = watch.until(wanted[-1])
    assert [line["seq"] for line in lines] == wanted
    [torn] = [line for line in lines if "problem" in line]
    assert (torn["kind"], torn["payload"]) == ("output", None)
    assert lines[-1]["kind"] == "dreamt"


def test_lines_for_people_are_safe(scene: Scene) -> None:
    argv = [sys.executable, "-m", "turnlog", "watch", "--from", "start"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in seqs(scene)]
        process.kill()
    assert not any("\x1b" in line for line in lines)
    [answer] = [line for line in lines if "  output " in line]
    assert answer.split("  ")[1] == "aaaa00000000"
    assert answer.endswith("  output     It was the time zone. Fixed.\n")


def test_a_ledger_on_a_server_is_followed_too() -> None:
    setup = PostgresSetup(postgres_server.shared())
    with setup.open() as ledger:
        ledger.create_session(id="a", cwd="/w")
        with watching("--ledger", setup.url(), "--from", "start") as watch:
            assert watch.line()["kind"] == "captured"
            seq = ledger.record("a", "t", "1", "started", {})
            told = watch.line()
            assert (told["seq"], told["turn"]) == (seq, "1")
        with watching("--ledger", setup.url(), "--from", told["cursor"]) as watch:
            seq = ledger.record("a", "t", "2", "started", {})
            assert watch.line()["seq"] == seq


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("--from", "yesterday"), "invalid"),
        (("--from", "sqlite-0000:0:1"), "stale"),
        (("--kind", "dreams"), "invalid"),
        (("--session", "nobody"), "missing"),
    ],
)
def test_what_it_cannot_follow_is_refused(scene: Scene, turnlog_: Turnlog, argv: tuple[str, str], code: str) -> None:
    assert turnlog_("--json", "watch", *argv).error["code"] == code


def test_without_a_ledger_it_says_so(turnlog_: Turnlog) -> None:
    assert not os.path.exists(os.environ["TURNLOG_LEDGER"].removeprefix("sqlite:///"))  # noqa: PTH110
    assert turnlog_("--json", "watch").error["code"] == "no_ledger"
