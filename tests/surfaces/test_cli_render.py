"""What is shown while a turn runs: events in, text out; and questions to the person at the terminal."""

from __future__ import annotations

import io
import os
import pty
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import anyio
import anyio.lowlevel
import pytest

from turnlog.harness import Ask, ConversationEvent
from turnlog.surfaces.cli import render
from turnlog.surfaces.cli.ask import read_line
from turnlog.surfaces.cli.render import Quiet, Screen
from turnlog.surfaces.cli.sink import Sink

ASK = Ask("per_1", "ses_1", "msg_1", "bash", "rm -rf \x1b[2Kbuild")


class Script(Sink):
    """A sink that remembers, in order, what goes where."""

    def __init__(self) -> None:
        self.written: list[tuple[str, str]] = []

    def out(self, text: str) -> None:
        self.written.append(("out", text))

    def err(self, text: str) -> None:
        self.written.append(("err", text))

    def close(self) -> None:
        pass

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.written)

    @property
    def data(self) -> str:
        return "".join(text for where, text in self.written if where == "out")


def screen(*, color: bool = False) -> tuple[Screen, Script]:
    script = Script()
    shown = Screen(script, color=color, ask=True)
    shown.session("session_0123456789abcdef", "a" * 32)
    return shown, script


def piece(text: str, item: str = "prt_1") -> ConversationEvent:
    return ConversationEvent("text_delta", turn_id="m", content=text, item={"kind": "message", "id": item})


def tool(kind: str, part: str = "prt_t", **more: Any) -> ConversationEvent:
    item = {"kind": "tool", "id": part, "name": "bash", "summary": "npm test", "state": "running", "duration_ms": None}
    return ConversationEvent(f"item_{kind}", turn_id="m", item={**item, **more})


def test_text_as_it_comes_and_tools_as_one_line() -> None:
    shown, script = screen()
    for event in (
        ConversationEvent("turn_started", turn_id="m"),
        piece("I will "),
        piece("look.\x1b[31m"),
        tool("started"),
        tool("updated"),
        tool("completed", state="completed", duration_ms=1234),
        tool("completed", "prt_u", name="edit\x1b]0;x\x07", state="error", duration_ms=70),
        piece("Done.", "prt_2"),
        ConversationEvent("usage_checkpoint", usage={}),
        ConversationEvent("turn_completed", turn_id="m", status="completed"),
    ):
        shown.event(event)
    shown.finish()
    assert script.text == (
        "session 0123456789ab\nI will look.\n✓ bash  npm test  1.2 s\n✗ edit  npm test  error  70 ms\n\nDone.\n"
    )
    assert script.data == "I will look.\n\nDone.\n"


def test_two_messages_are_two_paragraphs() -> None:
    shown, script = screen()
    for event in (piece("one\n", "a"), piece("two", "a"), piece("three", "b")):
        shown.event(event)
    shown.finish()
    assert script.data == "one\ntwo\n\nthree\n"


def test_an_error_and_a_notice_stand_on_lines_of_their_own() -> None:
    shown, script = screen()
    shown.event(piece("half a sen"))
    shown.event(ConversationEvent("error", turn_id="m", code="opencode_error", message="rate\nlimited\x1b[2J"))
    shown.notice("the engine is slow")
    assert script.text.splitlines()[1:] == ["half a sen", "✗ rate limited", "turnlog: the engine is slow"]


def test_the_bottom_line_says_what_runs_and_is_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    shown, script = screen(color=True)
    assert script.text.endswith("\x1b[2m… waiting for the agent\x1b[0m")
    shown.event(ConversationEvent("turn_started", turn_id="m"))
    assert script.text.endswith("\r\x1b[K")
    shown.event(tool("started", summary="x" * 100))
    assert script.text.endswith(f"\x1b[2m… bash  {'x' * 29}…\x1b[0m")
    shown.event(tool("started", "prt_2", summary="two"))
    assert script.text.endswith("\x1b[2m… bash  two and 1 more\x1b[0m")
    shown.event(tool("completed", summary="x" * 100, state="completed", duration_ms=5))
    last = script.text.rsplit("\r\x1b[K", 1)[1]
    assert last == f"\x1b[32m✓\x1b[0m bash  {'x' * 24}…\x1b[2m  5 ms\x1b[0m\n\x1b[2m… bash  two\x1b[0m"
    shown.event(piece("text"))
    assert script.text.endswith("\r\x1b[Ktext")
    shown.finish()
    assert script.text.endswith("text\n")


# --- questions


class Terminal:
    """A pseudo-terminal as standard input."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.theirs)
        os.close(self._ours)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    with Terminal() as opened, os.fdopen(os.dup(opened.theirs), "r") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr(render, "at_terminal", lambda: True)
        yield opened


async def asked(script: Script, times: int = 1) -> None:
    """Wait until the person was asked so often; then the answer can be typed."""
    with anyio.fail_after(20):
        while script.text.count("allow it?") < times:
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    ("typed", "answer"), [("o", "once"), ("A", "always"), ("reject", "reject"), ("?\n\nr", "reject")]
)
def test_the_person_answers(terminal: Terminal, typed: str, answer: str) -> None:
    async def main() -> None:
        shown, script = screen()
        answers: list[str | None] = []

        async def ask() -> None:
            answers.append(await shown.permission(ASK))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            for times, line in enumerate(typed.split("\n"), 1):
                await asked(script, times)
                terminal.type(f"{line}\n")
        assert answers == [answer]
        assert "? bash: rm -rf build\n  allow it? [o]nce, [a]lways, [r]eject: " in script.text

    anyio.run(main)


def test_what_was_typed_before_the_question_is_no_answer(terminal: Terminal) -> None:
    async def main() -> None:
        shown, script = screen()
        terminal.type("a\n")
        answers: list[str | None] = []

        async def ask() -> None:
            answers.append(await shown.permission(ASK))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await asked(script)
            assert answers == []
            terminal.type("r\n")
        assert answers == ["reject"]

    anyio.run(main)


def test_a_question_answered_elsewhere_is_taken_back_and_eats_no_line(terminal: Terminal) -> None:
    async def main() -> None:
        shown, script = screen()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shown.permission, ASK)
            await asked(script)
            shown.event(piece("meanwhile"))
            assert "meanwhile" not in script.text  # nothing is shown over a question
            tasks.cancel_scope.cancel()
        assert script.text.endswith("\n  answered elsewhere\nmeanwhile")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shown.permission, ASK)
            await asked(script, 2)
            terminal.type("o\n")

    anyio.run(main)


def test_the_end_of_input_leaves_the_question_open(terminal: Terminal) -> None:
    async def main() -> None:
        shown, script = screen()
        answers: list[str | None] = []

        async def ask() -> None:
            answers.append(await shown.permission(ASK))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await asked(script)
            terminal.type("\x04")
        assert answers == [None]
        assert "left open: turnlog permit 0123456789ab per_1" in script.text

    anyio.run(main)


def test_without_a_terminal_the_question_is_told() -> None:
    script = Script()
    shown = Quiet(script, color=False, ask=True)
    shown.session("session_0123456789abcdef", "a" * 32)
    assert anyio.run(shown.permission, ASK) is None
    assert script.text == (
        "turnlog: permission asked: bash: rm -rf build\nhint: turnlog permit 0123456789ab per_1 once|always|reject\n"
    )


def test_reading_a_line_does_not_hold_up_the_loop(terminal: Terminal) -> None:
    async def main() -> None:
        with anyio.move_on_after(0.05) as scope:
            await read_line(terminal.theirs)
        assert scope.cancelled_caught

    anyio.run(main)


# --- the sink


def test_a_slow_reader_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    class Slow(io.StringIO):
        def write(self, text: str) -> int:
            assert gate.wait(30)
            return super().write(text)

    slow, quick = Slow(), io.StringIO()
    monkeypatch.setattr("sys.stdout", slow)
    monkeypatch.setattr("sys.stderr", quick)
    sink = Sink()
    begun = time.monotonic()
    for number in range(1000):
        sink.out(f"{number}\n")
    sink.err("end")
    assert time.monotonic() - begun < 10
    gate.set()
    sink.close()
    sink.close()
    assert slow.getvalue().splitlines() == [str(number) for number in range(1000)]
    assert quick.getvalue() == "end"


def test_a_reader_that_left_is_not_written_to_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    stderr = io.StringIO()
    with os.fdopen(write, "w") as gone:
        monkeypatch.setattr("sys.stdout", gone)
        monkeypatch.setattr("sys.stderr", stderr)
        sink = Sink()
        sink.out("a\n")
        sink.out("b\n")
        sink.err("c\n")
        sink.close()
        print("later, and no error either", file=gone, flush=True)
    assert stderr.getvalue() == "c\n"
