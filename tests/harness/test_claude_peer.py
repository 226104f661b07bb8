"""The Claude harness against a scripted program: what the real one cannot be made to show."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from tests.harness.driving import Driven, idle
from turnlog.errors import InvalidError, MissingError, RefusedError, UnavailableError, UncertainError
from turnlog.harness import Delivery, HarnessConfig, SteerOutcome, _process, harness_for
from turnlog.harness.claude import background, record
from turnlog.harness.claude import engine as engine_module
from turnlog.harness.claude.live import ClaudeHarness
from turnlog.process import identify
from turnlog.testing.claude_peer import Step, claude_peer, flood, leave, long_line, raw, say, wait

pytestmark = pytest.mark.timeout(150)

COUNTS = {"inputTokens": 10, "outputTokens": 3, "cacheReadInputTokens": 4, "cacheCreationInputTokens": 2}


def totals(times: int) -> dict[str, Any]:
    return {"m": {**{name: count * times for name, count in COUNTS.items()}, "costUSD": times / 10}}


def result(number: int = 1, **more: Any) -> Step:
    """A result as 2.1.197 gives it."""
    line = {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "result": f"answer {number}",
        "session_id": "$session",
        "uuid": f"result-{number}",
        "usage": {"input_tokens": 10, "output_tokens": 3},
        "modelUsage": totals(number),
        "total_cost_usd": number / 10,
    }
    return say(**{**line, **more})


def begin() -> list[Step]:
    """A turn begins, as 2.1.197 tells it."""
    return [wait("user"), say(type="system", subtype="init", session_id="$session"), echo("$uuid")]


def echo(uuid: str) -> Step:
    return say(type="user", uuid=uuid, isReplay=True, message={"role": "user", "content": []})


class Place:
    """A folder with a scripted Claude in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = root / "state"
        self.projects = root / "home" / ".claude" / "projects" / "-work"
        self.projects.mkdir(parents=True)

    def harness(self, steps: list[Step], *, permissions: str = "ask", **more: Any) -> ClaudeHarness:
        peer = {name: more.pop(name) for name in ("version", "ready", "deaf") if name in more}
        program = claude_peer(self.root / "peer", steps, **peer)
        env = {"TURNLOG_CLAUDE_BIN": str(program), "CLAUDE_CONFIG_DIR": str(self.root / "home" / ".claude")}
        config = HarnessConfig(
            cwd=self.root, title="peer", state_dir=self.state, env=env, permissions=permissions, **more
        )
        return ClaudeHarness(config)

    def argv(self) -> list[str]:
        found: list[str] = orjson.loads((self.root / "peer" / "argv.json").read_bytes())
        return found

    def read(self) -> list[dict[str, Any]]:
        """What the program read from its stdin."""
        return [orjson.loads(line) for line in (self.root / "peer" / "read.jsonl").read_bytes().splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def freeze(pid: int) -> None:
    """Stop a program where it stands, and wait until it does."""
    os.kill(pid, signal.SIGSTOP)
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.005)


def go(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


# --- correlation and counting ---------------------------------------------------------------------------------------


def test_an_old_version_without_differences_of_its_own(place: Place) -> None:
    steps = [*begin(), result(1), *begin(), result(3, uuid="result-2"), wait("nothing")]

    async def run() -> None:
        async with Driven(place.harness(steps, version="2.1.197")) as driven:
            for times, cost in ((1, 0.1), (2, 0.3)):
                turn = await driven.turn("go")
                (usage,) = driven.payloads("usage", turn)
                assert usage["model_usage"] == totals(times)
                assert usage["total_cost_usd"] == cost
                assert driven.payloads("started", turn) == [{}]
            assert driven.notes == []

    go(run)


def test_a_turn_of_claudes_own_between_ours(place: Place) -> None:
    steps = [
        *begin(),
        result(1),
        say(type="system", subtype="init", session_id="$session"),
        say(
            type="assistant", message={"id": "msg_7", "model": "m", "content": [{"type": "text", "text": "by myself"}]}
        ),
        result(2),
        *begin(),
        result(3),
    ]

    async def run() -> None:
        async with Driven(place.harness(steps)) as driven:
            first = await driven.turn("go")
            second = await driven.turn("go on")
            assert [driven.payloads("output", turn) for turn in (first, "auto:msg_7", second)] == [
                [{"text": "answer 1"}],
                [{"text": "answer 2"}],
                [{"text": "answer 3"}],
            ]
            assert driven.payloads("started", "auto:msg_7") == []
            assert [usage["model_usage"] for usage in driven.payloads("usage")] == [totals(1)] * 3

    go(run)


def tasks(*names: str) -> Step:
    return say(type="system", subtype="background_tasks_changed", tasks=[{"task_id": name} for name in names])


def then(word: str) -> list[Step]:
    """Go on when the test says so, with ``word``."""
    answer = {"subtype": "success", "request_id": "$request", "response": {}}
    return [wait(word), say(type="control_response", response=answer)]


def test_a_background_task_that_has_ended_is_waited_for_until_it_is_reported(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the end of the task and the turn that tells of it nothing runs."""
    monkeypatch.setattr(background, "REPORTING", 60.0)
    own = [
        say(type="system", subtype="init", session_id="$session"),
        say(type="assistant", message={"id": "msg_7", "model": "m", "content": [{"type": "text", "text": "it says"}]}),
        result(2),
    ]
    steps = [*begin(), tasks("t"), result(1), tasks(), *then("gap"), *then("report"), *own, *then("more")]

    async def run() -> None:
        async with Driven(place.harness(steps)) as driven:
            engine = driven.harness._engine  # type: ignore[attr-defined]
            turn = await driven.turn("go")
            await engine.control({"subtype": "gap"})
            assert await driven.harness.busy()
            await engine.control({"subtype": "report"})
            await idle(driven.harness)
            ends = [receipt.turn for receipt in driven.receipts if receipt.kind == "completed"]
            assert ends == [turn, "auto:msg_7"], "what was told was taken, too"
            await engine.control({"subtype": "more"})

    go(run)


def test_a_background_task_that_reports_nothing_is_not_waited_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "REPORTING", 0.05)
    steps = [*begin(), tasks("t"), result(1), *then("end"), tasks(), *then("more")]

    async def run() -> None:
        async with Driven(place.harness(steps)) as driven:
            engine = driven.harness._engine  # type: ignore[attr-defined]
            await driven.turn("go")
            assert await driven.harness.busy(), "a task runs"
            await engine.control({"subtype": "end"})
            await engine.control({"subtype": "more"})
            await idle(driven.harness)

    go(run)


def test_a_result_that_belongs_to_nothing_is_an_observation(place: Place) -> None:
    steps = [result(1, session_id="someone-else", uuid="r1"), *begin(), result(2)]

    async def run() -> None:
        async with Driven(place.harness(steps)) as driven:
            turn = await driven.turn("go")
            assert [note.source for note in driven.notes] == [f"unmatched:{driven.thread}:r1"]
            assert {receipt.turn for receipt in driven.receipts} == {turn}
            (usage,) = driven.payloads("usage", turn)
            assert usage["model_usage"] == totals(1), "the totals of the process went on"

    go(run)


# --- lines of any kind ----------------------------------------------------------------------------------------------


def test_unknown_lines_are_noted_and_survived(place: Place) -> None:
    steps = [
        raw("Warning: something on the wrong stream"),
        raw(""),
        raw("[1, 2]"),
        raw('{"type": "novelty", "text": "\\ud800"}'),
        *begin(),
        say(type="novelty"),
        result(1),
    ]

    async def run() -> None:
        async with Driven(place.harness(steps)) as driven:
            turn = await driven.turn("go")
            assert driven.payloads("output", turn) == [{"text": "answer 1"}]
            noted = {note.evidence["kind"]: note.evidence for note in driven.notes}
            assert set(noted) == {"not_json", "not_an_object", "novelty"}
            assert noted["not_json"]["sample"] == "Warning: something on the wrong stream"

    go(run)


def test_lines_of_any_length(place: Place) -> None:
    steps = [long_line(50_000_000), long_line(70_000_000), *begin(), result(1, result="x" * 1_000_000)]

    async def run() -> None:
        async with Driven(place.harness(steps)) as driven:
            turn = await driven.turn("go")
            (output,) = driven.payloads("output", turn)
            assert len(output["text"]) == 1_000_000
            kinds = [(note.evidence["kind"], len(note.evidence["sample"])) for note in driven.notes]
            assert [kind for kind, _ in kinds] == ["long", "line_too_long"]
            assert max(size for _, size in kinds) <= 300

    go(run)


def test_a_flood_on_stderr_blocks_nothing_and_is_bounded(place: Place) -> None:
    async def run() -> None:
        async with Driven(place.harness([flood(8_000_000), *begin(), result(1)])) as driven:
            await driven.turn("go")
            (log,) = place.state.glob("claude-*.log")
            assert 0 < log.stat().st_size <= 1 << 20
            assert log.stat().st_mode & 0o777 == 0o600

    go(run)


# --- starting -------------------------------------------------------------------------------------------------------


def test_the_files_of_an_engine_are_private_and_go_with_it(place: Place) -> None:
    async def run() -> None:
        harness = place.harness([*begin(), result(1)])
        async with Driven(harness) as driven:
            identity = await harness.start()
            assert (identity.endpoint, identity.version) == (None, "2.1.332")
            assert identity.pid is not None
            assert os.getpgid(identity.pid) == identity.pid
            assert place.state.stat().st_mode & 0o777 == 0o700
            (entry,) = place.state.glob("claude-*.json")
            assert entry.stat().st_mode & 0o777 == 0o600
            turn = await driven.turn("go")
        assert {path.name for path in place.state.iterdir()} == {"claude.sent"}
        assert (place.state / "claude.sent").read_text() == f"sent {turn}\nended {turn}\n"
        assert identify(identity.pid) is None

    go(run)


@pytest.mark.parametrize(
    ("words", "error", "match", "hint"),
    [
        ("Error: Session ID 5a1d is already in use.\n", UnavailableError, "already in use", "another Claude"),
        ("No conversation found with session ID: 5a1d\n", MissingError, "no conversation", "cleanupPeriodDays"),
        ("error: token=abc is bad\n", UnavailableError, "code 1.*token=\\[redacted\\]", "log"),
        ("", UnavailableError, "it said nothing", "log"),
    ],
)
def test_a_program_that_ends_at_once_is_explained(
    place: Place, words: str, error: type[Exception], match: str, hint: str
) -> None:
    async def run() -> None:
        harness = place.harness([leave(1, words)], ready=False)
        with pytest.raises(error, match=match) as caught:
            await harness.start()
        assert hint in caught.value.hint  # type: ignore[attr-defined]
        assert not await harness.alive()
        assert list(place.state.glob("*.json")) == []

    go(run)


def test_a_program_that_is_never_ready_is_ended(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "READY_DEADLINE", 0.3)

    async def run() -> None:
        with pytest.raises(UnavailableError, match="not ready"):
            await place.harness([], ready=False).start()

    go(run)


def test_an_old_program_is_refused_before_and_explained_after(place: Place) -> None:
    async def run() -> None:
        harness = place.harness([leave(1, "error: unknown option")], version="2.0.60", ready=False)
        for attempt in (harness.preflight, harness.start):
            with pytest.raises(UnavailableError, match=r"2\.0\.60 .* too old"):
                await attempt()
        await place.harness([]).preflight()

    go(run)


def test_what_is_configured_wrongly(place: Place) -> None:
    assert harness_for("claude") is ClaudeHarness
    for more, match in (
        ({"permissions": "maybe"}, "policy"),
        ({"thread": "../../x"}, "session id"),
        ({"endpoint": "http://127.0.0.1:1"}, "endpoint"),
    ):
        with pytest.raises(InvalidError, match=match):
            place.harness([], **more)

    async def run() -> None:
        harness = place.harness([])
        for attempt in (harness.open_thread(), harness.send("x", "y"), harness.steer("x", "y")):
            with pytest.raises(UnavailableError):
                await attempt
        with pytest.raises(InvalidError):
            await harness.steer("x", "  ")
        await harness.stop()
        await harness.detach()

    go(run)


@pytest.mark.parametrize("policy", ["ask", "deny", "allow"])
def test_arguments(place: Place, policy: str) -> None:
    async def run() -> None:
        harness = place.harness([], permissions=policy, model="opus")
        async with Driven(harness) as driven:
            argv = place.argv()
            assert argv[argv.index("--session-id") + 1] == driven.thread
            assert argv[argv.index("--model") + 1] == "opus"
            assert ("--dangerously-skip-permissions" in argv) == (policy == "allow")
            assert ("--permission-prompt-tool" in argv) == (policy != "allow")
            assert ("--settings" in argv) == ("--strict-mcp-config" in argv) == (policy == "deny")

    go(run)


def test_a_known_conversation_is_resumed_and_totals_go_on_from_nothing_known(place: Place) -> None:
    thread = "5a1d0000-0000-4000-8000-000000000001"
    (place.projects / f"{thread}.jsonl").write_bytes(b"")

    async def run() -> None:
        async with Driven(place.harness([*begin(), result(5), *begin(), result(6)], thread=thread)) as driven:
            assert driven.thread == thread
            argv = place.argv()
            assert argv[argv.index("--resume") + 1] == thread
            first, second = await driven.turn("go"), await driven.turn("go on")
            assert [u["model_usage"] for t in (first, second) for u in driven.payloads("usage", t)] == [None, totals(1)]

    go(run)


def test_another_schema_or_system_prompt_needs_another_process(place: Place) -> None:
    schema = {"type": "object"}
    steps = [*begin(), result(1, structured_output={"a": 1})]

    async def run() -> None:
        harness = place.harness(steps)
        async with Driven(harness) as driven:
            first = await harness.start()
            turn = await driven.send("go", schema=schema)
            await driven.until(lambda: driven.completion(turn) is not None)
            assert driven.payloads("output", turn) == [{"value": {"a": 1}}]
            argv = place.argv()
            assert orjson.loads(argv[argv.index("--json-schema") + 1]) == schema
            second = await harness.start()
            assert second.pid != first.pid
            assert identify(first.pid) is None
            turn = await driven.send("go", schema=True, system="Be brief.")
            await driven.until(lambda: driven.completion(turn) is not None)
            argv = place.argv()
            assert argv[argv.index("--json-schema") + 1] == "{}"
            assert argv[argv.index("--append-system-prompt") + 1] == "Be brief."
            assert not driven.ended

    go(run)


def test_a_restart_that_fails_refuses_the_request(place: Place) -> None:
    async def run() -> None:
        harness = place.harness([])
        async with Driven(harness) as driven:
            place.harness([leave(1, "Error: --json-schema is not a valid JSON Schema\n")], ready=False)
            with pytest.raises(RefusedError, match="not a valid JSON Schema"):
                await driven.send("go", schema={"type": "strin"})
            await driven.until(lambda: driven.ended)

    go(run)


# --- interrupts, steers, permissions --------------------------------------------------------------------------------


def test_a_program_that_ignores_interrupts_is_ended(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "CONTROL_DEADLINE", 0.3)
    monkeypatch.setattr(_process, "TERM_GRACE", 0.3)

    async def run() -> None:
        harness = place.harness([*begin(), wait("interrupt"), wait("nothing")], deaf=True)
        async with Driven(harness) as driven:
            pid = (await harness.start()).pid
            turn = await driven.send("go")
            await driven.until(lambda: driven.payloads("started", turn) != [])
            with pytest.raises(UncertainError, match="interrupt"):
                await harness.interrupt()
            assert await harness.busy()
            await harness.stop()
            await driven.until(lambda: driven.ended)
            assert pid is not None
            assert identify(pid) is None
            assert driven.completion(turn) is None

    go(run)


def test_an_interrupt_of_a_program_without_reasons(place: Place) -> None:
    answer = say(type="control_response", response={"subtype": "success", "request_id": "$request"})
    end = result(1, subtype="error_during_execution", is_error=True, result=None)

    async def run() -> None:
        harness = place.harness([*begin(), wait("interrupt"), answer, end])
        async with Driven(harness) as driven:
            await harness.interrupt()  # idle: says nothing
            turn = await driven.send("go")
            await driven.until(lambda: driven.payloads("started", turn) != [])
            await harness.interrupt()
            await driven.until(lambda: driven.completion(turn) is not None)
            assert driven.completion(turn)["status"] == "interrupted"
            (usage,) = driven.payloads("usage", turn)
            assert usage["interrupted"] is True
            sent = [line["request"] for line in place.read() if line["type"] == "control_request"]
            assert sent == [{"subtype": "initialize"}, {"subtype": "interrupt", "cancel_queued": True}]

    go(run)


def test_lines_dropped_by_an_interrupt_are_given_up(place: Place) -> None:
    answer = {"subtype": "success", "request_id": "$request", "response": {"cancelled": ["$uuid"]}}
    end = result(1, subtype="error_during_execution", is_error=True, user_message_uuid="$uuid1")
    steps = [*begin(), wait("user"), wait("interrupt"), say(type="control_response", response=answer), end]

    async def run() -> None:
        harness = place.harness(steps)
        async with Driven(harness) as driven:
            assert await harness.steer(harness.new_request_id(), "hello") is SteerOutcome.NOT_STEERABLE
            turn = await driven.send("go")
            await driven.until(lambda: driven.payloads("started", turn) != [])
            steer = harness.new_request_id()
            assert await harness.steer(steer, "and this") is SteerOutcome.SENT
            await harness.interrupt()
            await driven.until(lambda: driven.completion(turn) is not None)
            assert driven.stalled == [steer]
            assert await harness.lookup(steer) is Delivery.FOUND
            assert not await harness.busy()

    go(run)


@pytest.mark.parametrize("answer", ["once", "always", "reject"])
def test_permissions(place: Place, answer: str) -> None:
    rule = {"type": "addRules", "rules": [{"toolName": "Bash"}], "behavior": "allow", "destination": "localSettings"}
    request = {
        "subtype": "can_use_tool",
        "tool_name": "Bash",
        "input": {"command": "date"},
        "permission_suggestions": [rule, {"type": "setMode", "mode": "acceptEdits"}],
    }
    echoed = {"subtype": "success", "request_id": "q1", "response": {}}
    steps = [
        *begin(),
        say(type="control_request", request_id="q1", request=request),
        wait("control_response"),
        say(type="control_response", response=echoed),
        result(1),
    ]

    async def run() -> None:
        harness = place.harness(steps)
        async with Driven(harness) as driven:
            turn = await driven.send("go")
            await driven.until(lambda: bool(driven.asks))
            (question,) = driven.asks
            assert (question.action, question.detail, question.turn) == ("Bash", "date", turn)
            with pytest.raises(InvalidError):
                await harness.answer("q1", "perhaps")
            with pytest.raises(RefusedError):
                await harness.answer("q2", answer)
            await harness.answer("q1", answer, "not now" if answer == "reject" else None)
            with pytest.raises(RefusedError):
                await harness.answer("q1", answer)
            await driven.until(lambda: driven.completion(turn) is not None)
            settled = [event for event in driven.events if event.type == "permission_settled"]
            assert [event.status for event in settled] == [answer]
            (line,) = [line["response"]["response"] for line in place.read() if line["type"] == "control_response"]
            if answer == "reject":
                assert line == {"behavior": "deny", "message": "not now"}
            else:
                assert line["updatedInput"] == {"command": "date"}
                lasting = [{**rule, "destination": "session"}] if answer == "always" else None
                assert line.get("updatedPermissions") == lasting

    go(run)


def test_a_policy_answers_without_us(place: Place) -> None:
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}}
    steps = [
        *begin(),
        say(type="control_request", request_id="q1", request=request),
        wait("control_response"),
        result(1),
    ]

    async def run() -> None:
        async with Driven(place.harness(steps, permissions="deny")) as driven:
            await driven.turn("go")
            assert driven.asks == []
            (line,) = [line["response"]["response"] for line in place.read() if line["type"] == "control_response"]
            assert line["behavior"] == "deny"

    go(run)


# --- ends -----------------------------------------------------------------------------------------------------------


def test_a_death_is_told_with_its_words_and_completes_nothing(place: Place) -> None:
    words = "panic: Authorization: Bearer abc\n"

    async def run() -> None:
        harness = place.harness([*begin(), leave(7, words)], model="opus")
        async with Driven(harness) as driven:
            turn = await driven.send("go")
            await driven.until(lambda: driven.ended)
            assert driven.completion(turn) is None
            note = driven.notes[-1]
            assert note.source.startswith(f"disconnect:{driven.thread}:")
            assert note.turn == turn
            assert note.evidence["exit_code"] == 7
            assert note.evidence["terminal_error_message"] == "panic: authorization: [redacted]"
            assert note.evidence["last_event_type"] == "user"
            (error,) = [event for event in driven.events if event.type == "error"]
            assert (error.code, error.turn_id) == ("claude_disconnected", turn)
            assert not await harness.alive()
            assert not await harness.busy()
            with pytest.raises(RefusedError):
                await driven.send("more")
            with pytest.raises(RefusedError):
                await harness.answer("q", "once")
            assert await harness.lookup(turn) is Delivery.FOUND

    go(run)


def test_a_line_that_claude_only_half_took_is_uncertain(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "WRITE_DEADLINE", 0.3)

    async def run() -> None:
        harness = place.harness([])
        async with Driven(harness) as driven:
            pid = (await harness.start()).pid
            assert pid is not None
            freeze(pid)
            with pytest.raises(UncertainError, match="in time"):
                await driven.send("x" * 4_000_000)
            with pytest.raises(RefusedError):
                await driven.send("more")
            os.kill(pid, signal.SIGCONT)

    go(run)


def test_a_pipe_that_takes_nothing_refuses(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "WRITE_DEADLINE", 0.3)

    async def run() -> None:
        harness = place.harness([])
        async with Driven(harness):
            pid = (await harness.start()).pid
            assert pid is not None
            freeze(pid)
            stdin = harness._engine._popen.stdin  # type: ignore[union-attr]
            assert stdin is not None
            while True:
                try:
                    os.write(stdin.fileno(), b" " * 4096)
                except BlockingIOError:
                    break
            request = harness.new_request_id()
            with pytest.raises(RefusedError, match="in time"):
                await harness.send(request, "x")
            assert not await harness.busy()
            os.kill(pid, signal.SIGCONT)

    go(run)


def test_detach_lets_it_finish(place: Place) -> None:
    async def run() -> None:
        harness = place.harness([*begin(), wait("user"), result(1)])
        async with Driven(harness, stop=False) as driven:
            pid = (await harness.start()).pid
            await driven.send("go")
        assert pid is not None
        assert [found.engine.pid for _, found in record.running(place.state, driven.thread)] in ([pid], [])
        again = place.harness([], thread=driven.thread)
        await again.start()  # waits for the end of the first
        assert record.running(place.state, driven.thread)[0][1].engine.pid != pid
        await again.stop()

    go(run)


def test_an_earlier_process_that_does_not_end_is_ended(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "QUIET_LIMIT", 0.2)
    thread = "5a1d0000-0000-4000-8000-000000000001"
    hanging = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    identity = identify(hanging.pid)
    assert identity is not None
    record.private_folder(place.state)
    record.write_record(place.state / "claude-1.json", record.Record(thread, identity))
    record.write_record(place.state / "claude-2.json", record.Record(thread, identity))
    (place.state / "claude-3.json").write_bytes(b"{")

    async def run() -> None:
        harness = place.harness([], thread=thread)
        await harness.start()
        assert hanging.wait(5) == -signal.SIGTERM
        assert len(list(place.state.glob("*.json"))) == 1
        await harness.stop()

    with hanging:
        go(run)
