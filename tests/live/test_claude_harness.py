"""The real Claude Code against the model stub: what providers.md §4 says it does, and that we see it so."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import orjson
import psutil
import pytest

from tests.harness.driving import Driven, delivered, idle, keys, until
from tests.unit.usage_cases import Rows
from turnlog.errors import RefusedError, UnavailableError
from turnlog.harness import Delivery, HarnessConfig, SteerOutcome
from turnlog.harness.claude.live import ClaudeHarness
from turnlog.model import EventKind
from turnlog.process import Liveness, identify, liveness
from turnlog.receipts import canonical
from turnlog.testing.claude_home import MODEL, ClaudeHome, claude_home
from turnlog.testing.stub import plan as plans
from turnlog.testing.stub.plan import Answer, Call, Marker, View
from turnlog.testing.stub_llm import StubLlm
from turnlog.usage import Reduction, reduce_usage

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

CALL = {"inputTokens": 1000, "outputTokens": 50, "cacheReadInputTokens": 400, "cacheCreationInputTokens": 200}
"""One stub call as Claude counts it (providers.md §1)."""

COST = 0.00623
"""What Claude says one stub call costs."""


@pytest.fixture(scope="module")
def stub() -> Iterator[StubLlm]:
    with StubLlm() as running:
        yield running


@pytest.fixture
def home(stub: StubLlm, tmp_path: Path) -> ClaudeHome:
    return claude_home(tmp_path, stub.url)


def claude(home: ClaudeHome, permissions: str = "allow", **more: Any) -> ClaudeHarness:
    config = HarnessConfig(
        cwd=home.work, title="live", state_dir=home.state, env=home.env, permissions=permissions, **more
    )
    return ClaudeHarness(config)


def counted(payload: Any) -> dict[str, Any]:
    """Return the stub's counters of a wire receipt."""
    ((model, usage),) = payload["model_usage"].items()
    assert model == MODEL
    return {name: usage[name] for name in CALL}


def times(number: int) -> dict[str, int]:
    return {name: value * number for name, value in CALL.items()}


def reduced(driven: Driven) -> Reduction:
    """Reduce everything a harness gave, in the order it gave it, each receipt once."""
    rows = Rows()
    for receipt in {(r.turn, r.kind, canonical(r.payload)): r for r in driven.receipts}.values():
        rows.add(EventKind(receipt.kind), receipt.payload, receipt.thread, receipt.turn)
    return reduce_usage(rows)


def ended(pid: str) -> bool:
    """Tell whether a process is gone; nobody may have taken the exit of one whose parent died."""
    known = identify(int(pid))
    return known is None or liveness(known.boot_id, known.pid, known.started_at) is Liveness.DEAD


async def file_alone(home: ClaudeHome, driven: Driven, *own: str) -> Any:
    """Read the session's file as a process would that saw nothing, twice with the same result (promise 2)."""
    other = msgspec.structs.replace(home, state=home.root / "other")
    harness = claude(other, thread=driven.thread, own_requests=frozenset(own))
    first, second = await harness.recover(), await harness.recover()
    assert first == second
    return first


def test_text_turn(home: ClaudeHome) -> None:
    async def run() -> None:
        harness = claude(home)
        await harness.preflight()
        async with Driven(harness) as driven:
            identity = await harness.start()
            assert identity.version == "2.1.332"
            assert not await harness.busy()
            request = await driven.turn("[[stub: text text=hello_world]] plain")
            assert driven.payloads("started", request) == [{}]
            assert driven.payloads("output", request) == [{"text": "hello world"}]
            (usage,) = driven.payloads("usage", request)
            assert counted(usage) == CALL
            assert usage["total_cost_usd"] == pytest.approx(COST)
            completion = driven.completion(request)
            assert (completion["status"], completion["subtype"]) == ("completed", "success")
            assert completion["result_id"] == usage["result_id"]
            order = [r.kind for r in driven.receipts if r.turn == request]
            assert order == ["started", "output", "usage", "completed"]
            types = driven.event_types(request)
            assert (types[0], types[-1]) == ("turn_started", "turn_completed")
            assert types.count("usage_checkpoint") == 1
            assert driven.text_of(request) == "hello world"
            assert await harness.lookup(request) is Delivery.FOUND
            assert await harness.lookup(harness.new_request_id()) is Delivery.ABSENT
            assert (await harness.recover()).receipts == ()
            assert driven.notes == []
        batch = await file_alone(home, driven, request)
        assert [(r.turn, r.kind) for r in batch.receipts] == [
            (request, kind) for kind in ("started", "usage", "output", "completed")
        ]
        assert batch.receipts[2].payload == {"text": "hello world"}

    asyncio.run(run())


def test_thinking_is_told_apart_from_text(home: ClaudeHome) -> None:
    async def run() -> None:
        async with Driven(claude(home)) as driven:
            request = await driven.turn("[[stub: think]]")
            assert driven.text_of(request) == "stub answer"
            thoughts = [event.content for event in driven.events if event.type == "reasoning_delta"]
            assert "".join(filter(None, thoughts)) == "stub reasoning"

    asyncio.run(run())


def test_tools_and_two_turns_of_one_process(home: ClaudeHome) -> None:
    async def run() -> None:
        async with Driven(claude(home)) as driven:
            first = await driven.turn("[[stub: tool cmd=echo_hi]]")
            items = [e.item for e in driven.events if e.type == "item_completed" and e.item and "name" in e.item]
            (item,) = [item for item in items if item]
            assert (item["name"], item["summary"], item["state"]) == ("Bash", "echo hi", "completed")
            assert 0 <= item["duration_ms"] < 10_000
            second = await driven.turn("[[stub: tools2 cmd=true]]")
            assert [driven.event_types(second).count(kind) for kind in ("item_started", "usage_checkpoint")] == [2, 2]
            found = reduced(driven)
            streams = {stream.turn: stream for stream in found.streams}
            assert {turn: stream.total_input for turn, stream in streams.items()} == {first: 3200, second: 3200}
            assert [streams[turn].cost for turn in (first, second)] == [pytest.approx(2 * COST)] * 2
            assert (found.usage.output_tokens, found.usage.cache_read_tokens, found.usage.gaps) == (200, 1600, 0)
        batch = await file_alone(home, driven, first, second)
        assert [r.kind for r in batch.receipts].count("usage") == 4

    asyncio.run(run())


def test_errors_fail_the_turn(home: ClaudeHome) -> None:
    async def run() -> None:
        async with Driven(claude(home)) as driven:
            request = await driven.turn("[[stub: error400]]")
            completion = driven.completion(request)
            assert (completion["status"], completion["api_error_status"]) == ("failed", 400)
            assert completion["error"] == "API Error: 400 stub error 400"
            assert driven.payloads("output", request) == []
            assert driven.event_types(request)[-2:] == ["error", "turn_completed"]
            length = await driven.turn("[[stub: length]]")
            assert driven.completion(length)["status"] == "failed"
            assert counted(driven.payloads("usage", length)[0]) == times(4)
            empty = await driven.turn("[[stub: refusal]]")
            assert driven.payloads("output", empty) == [{"text": ""}]
        batch = await file_alone(home, driven, request, length, empty)
        ends = {r.turn: r.payload["status"] for r in batch.receipts if r.kind == "completed"}
        assert ends == {request: "failed", length: "failed"}
        assert batch.stalled == (empty,), "an empty answer is not in the file"

    asyncio.run(run())


@pytest.mark.parametrize("mode", ["flaky429", "flaky500"])
def test_a_retried_error_is_shown_and_costs_nothing_twice(home: ClaudeHome, mode: str) -> None:
    async def run() -> None:
        async with Driven(claude(home)) as driven:
            request = await driven.turn(f"[[stub: {mode} id={os.urandom(4).hex()}]]")
            assert driven.completion(request)["status"] == "completed"
            assert counted(driven.payloads("usage", request)[0]) == CALL
            retries = [event for event in driven.events if event.status == "retry"]
            assert [event.turn_id for event in retries] == [request]
            assert retries[0].message is not None
            assert retries[0].message.startswith(mode.removeprefix("flaky"))

    asyncio.run(run())


def test_a_missing_login_is_told_in_its_words_with_a_hint(stub: StubLlm, tmp_path: Path) -> None:
    home = claude_home(tmp_path, stub.url, login=False)

    async def run() -> None:
        async with Driven(claude(home)) as driven:
            request = await driven.turn("[[stub: text]]")
            assert driven.completion(request)["status"] == "failed"
            (error,) = [event for event in driven.events if event.type == "error"]
            assert error.message is not None
            assert error.message.startswith("Not logged in · Please run /login")
            assert "ANTHROPIC_API_KEY" in error.message

    asyncio.run(run())


def test_interrupts_and_what_comes_after(home: ClaudeHome) -> None:
    async def run() -> None:
        harness = claude(home)
        async with Driven(harness) as driven:
            await harness.interrupt()  # idle: nothing
            slow = await driven.send("[[stub: slow n=200 delay=0.05]]")
            await driven.until(lambda: len(driven.text_of(slow)) > 6)
            queued = await driven.send("[[stub: text text=never]]")
            assert await harness.busy()
            await harness.interrupt()
            await driven.until(lambda: driven.completion(slow) is not None)
            completion = driven.completion(slow)
            assert (completion["status"], completion["terminal_reason"]) == ("interrupted", "aborted_streaming")
            (usage,) = driven.payloads("usage", slow)
            assert usage["interrupted"] is True
            assert counted(usage)["inputTokens"] == 1000, "the model usage is told although the usage is all zero"
            assert driven.text_of(slow).startswith("w0 w1 ")
            await driven.until(lambda: queued in driven.stalled)
            tool = await driven.send("[[stub: tool cmd=touch_began;tail_-f_/dev/null]]")
            await until((home.work / "began").exists)  # what is told to begin may still be held back
            await harness.interrupt()
            await driven.until(lambda: driven.completion(tool) is not None)
            assert driven.completion(tool)["terminal_reason"] == "aborted_tools"
            after = await driven.turn("[[stub: text text=after]]")
            assert driven.payloads("output", after) == [{"text": "after"}]
            assert reduced(driven).usage.cost_usd == pytest.approx(0.0178, abs=0.003)
        batch = await file_alone(home, driven, slow, queued, tool, after)
        ends = {r.turn: r.payload["status"] for r in batch.receipts if r.kind == "completed"}
        assert ends == {slow: "interrupted", tool: "interrupted", after: "completed"}
        assert batch.stalled == (queued,)

    asyncio.run(run())


def test_a_steer_goes_into_the_running_turn_or_becomes_its_own(stub: StubLlm, home: ClaudeHome) -> None:
    async def run() -> None:
        harness = claude(home)
        async with Driven(harness) as driven:
            assert await harness.steer(harness.new_request_id(), "hello") is SteerOutcome.NOT_STEERABLE
            first = await driven.send("[[stub: loop n=99 cmd=true_&&_sleep_0.3]]")
            await driven.until(lambda: "item_started" in driven.event_types(first))
            into = harness.new_request_id()
            assert await harness.steer(into, "[[stub: text text=steered]]") is SteerOutcome.SENT
            await driven.until(lambda: driven.completion(first) is not None)
            assert driven.settled == [(into, first)]
            assert driven.payloads("output", first) == [{"text": "steered"}]
            assert driven.completion(into) is None
            assert driven.payloads("started", into) == []
            slow = await driven.send("[[stub: hang]]")
            await driven.until(lambda: driven.text_of(slow) != "")
            own = [harness.new_request_id() for _ in range(2)]
            for request, word in zip(own, ("two", "three"), strict=True):
                assert await harness.steer(request, f"[[stub: text text={word}]]") is SteerOutcome.SENT
                await delivered(harness, request)  # Claude has put it into its queue
            stub.release()
            await driven.until(lambda: driven.completion(own[1]) is not None)
            assert driven.settled[1:] == [(own[0], own[1])]
            assert driven.payloads("output", own[1]) == [{"text": "three"}]
            assert [note.source for note in driven.notes] == [
                f"absorbed:{driven.thread}:{into}",
                f"absorbed:{driven.thread}:{own[0]}",
            ]
            await idle(harness)
        batch = await file_alone(home, driven, first, into, slow, *own)
        assert sorted(batch.settled) == sorted(driven.settled)
        assert {(n.source, n.evidence["by"]) for n in batch.notes} == {
            (n.source, n.evidence["by"]) for n in driven.notes
        }

    asyncio.run(run())


@pytest.mark.parametrize(("answer", "exists"), [("once", True), ("always", True), ("reject", False)])
def test_permissions(home: ClaudeHome, answer: str, exists: bool) -> None:
    async def run() -> None:
        harness = claude(home, permissions="ask")
        async with Driven(harness) as driven:
            request = await driven.send("[[stub: tool cmd=touch_made]]")
            await driven.until(lambda: bool(driven.asks))
            (ask,) = driven.asks
            assert (ask.thread, ask.turn, ask.action, ask.detail) == (driven.thread, request, "Bash", "touch made")
            await harness.answer(ask.id, answer)
            await driven.until(lambda: driven.completion(request) is not None)
            assert driven.completion(request)["status"] == "completed"
            assert (home.work / "made").exists() == exists
            settled = [event for event in driven.events if event.type == "permission_settled"]
            assert [event.status for event in settled] == [answer]
            again = await driven.send("[[stub: tool cmd=touch_made]]")
            await driven.until(lambda: driven.completion(again) is not None or len(driven.asks) == 2)
            assert (len(driven.asks) == 2) == (answer != "always")
            if len(driven.asks) == 2:
                await harness.interrupt()  # withdraws the question
                await driven.until(lambda: driven.completion(again) is not None)
                settled = [event for event in driven.events if event.type == "permission_settled"]
                assert [event.status for event in settled] == [answer, "cancelled"]
                with pytest.raises(RefusedError):
                    await harness.answer(driven.asks[1].id, "once")
            assert not (home.work / ".claude").exists(), "nothing is written into the project"

    asyncio.run(run())


def test_policy_deny_holds_against_a_user_who_allows_everything(stub: StubLlm, tmp_path: Path) -> None:
    settings = {"permissions": {"allow": ["Bash", "Write"], "defaultMode": "bypassPermissions"}}
    home = claude_home(tmp_path, stub.url, settings=settings)

    async def run() -> None:
        async with Driven(claude(home, permissions="deny")) as driven:
            (home.work / "here.txt").write_text("inside")
            for text, state in (
                ("[[stub: tool cmd=touch_denied]]", "error"),
                ("[[stub: read path=/etc/hostname]]", "error"),
                ("[[stub: read path=here.txt]]", "completed"),
            ):
                request = await driven.turn(text)
                ended = [e.item for e in driven.events if e.turn_id == request and e.type == "item_completed"]
                assert [item["state"] for item in ended if item and item["kind"] == "tool"] == [state], text
            assert driven.asks == []
            assert not (home.work / "denied").exists()
            told = [(event.type, event.status) for event in driven.events if event.type.startswith("permission")]
            assert told == [("permission_asked", None), ("permission_settled", "reject")] * 2

    asyncio.run(run())


def test_a_background_subagent_starts_a_turn_of_its_own(stub: StubLlm, home: ClaudeHome) -> None:
    async def run() -> None:
        harness = claude(home)
        async with Driven(harness) as driven:
            request = await driven.turn("[[stub: subagent sub=hang]]")
            await asyncio.to_thread(stub.wait, subagent_hangs, 60)
            stub.release()  # it ends after the turn that began it, so its report comes too late for that
            await driven.until(lambda: len({r.turn for r in driven.receipts}) == 2)
            (own,) = {r.turn for r in driven.receipts} - {request}
            assert own.startswith("auto:msg_stub")
            await driven.until(lambda: driven.completion(own) is not None)
            assert driven.payloads("started", own) == []
            assert driven.event_types(own) == []
            assert driven.payloads("output", own) == [{"text": "stub answer"}]
            usages = [counted(usage)["inputTokens"] for usage in driven.payloads("usage")]
            assert sum(usages) == 4000, "two calls of ours, one of the subagent, one of its own"
            assert [batch.children for batch in driven.batches if batch.children] == []
            await idle(harness)
            after = await driven.turn("[[stub: text]]")
            assert counted(driven.payloads("usage", after)[0]) == CALL
            assert (await harness.recover()).receipts == ()
        batch = await file_alone(home, driven, request, after)
        calls = [(r.turn, r.payload["call"]) for r in batch.receipts if r.kind == "usage"]
        assert [turn for turn, _ in calls] == [request] * 3 + [own, after]
        assert len({call for _, call in calls}) == 5
        assert {r.turn for r in batch.receipts if r.kind == "completed"} == {request, own, after}

    asyncio.run(run())


def test_structured_answers(home: ClaudeHome, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = plans.plan

    def plan(marker: Marker, view: View) -> Answer:
        value = marker.options.get("value")
        if value is not None and view.results < 1 and "StructuredOutput" in view.tools:
            return Answer((Call("StructuredOutput", orjson.loads(value)),), "tool")
        return whole(marker, view)

    monkeypatch.setattr("turnlog.testing.stub_llm.plan", plan)
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

    async def run() -> None:
        harness = claude(home)
        assert harness.structured
        async with Driven(harness) as driven:
            before = await driven.turn("[[stub: text text=before]]")
            request = await driven.send('[[stub: text value={"a":1}]]', schema=schema)
            await driven.until(lambda: driven.completion(request) is not None)
            assert driven.payloads("output", request) == [{"value": {"a": 1}}]
            assert reduced(driven).usage.cost_usd == pytest.approx(2 * COST), "the totals went on in the new process"
            with pytest.raises(RefusedError, match="JSON Schema"):
                await driven.send("x", schema={"type": "strin"})
        batch = await file_alone(home, driven, before, request)
        assert [r.payload for r in batch.receipts if r.kind == "output"] == [{"text": "before"}, {"value": {"a": 1}}]

    asyncio.run(run())


def test_resuming_in_a_new_process(home: ClaudeHome) -> None:
    async def run() -> None:
        async with Driven(claude(home)) as driven:
            first = await driven.turn("[[stub: tool]]")
        own = frozenset({first})
        async with Driven(claude(home, thread=driven.thread, own_requests=own)) as later:
            second = await later.turn("[[stub: text text=again]]")
            assert later.thread == driven.thread
            assert {r.turn for r in later.receipts} == {second}, "what ended on the wire is not read again"
            assert later.payloads("usage", second)[0]["total_cost_usd"] == pytest.approx(3 * COST)
            driven.batches += later.batches
            found = reduced(driven)
            costs = {stream.turn: stream.cost for stream in found.streams}
            assert costs == {first: pytest.approx(2 * COST), second: pytest.approx(COST)}
            assert found.usage.gaps == 0
            elsewhere = claude(msgspec.structs.replace(home, state=home.root / "other"), thread=driven.thread)
            with pytest.raises(UnavailableError, match="has this conversation open"):
                await elsewhere.start()
        moved = msgspec.structs.replace(home, work=home.root / "moved")
        moved.work.mkdir()
        async with Driven(claude(moved, thread=driven.thread, own_requests=frozenset({first, second}))) as last:
            third = await last.turn("[[stub: text text=moved]]")
            assert last.payloads("output", third) == [{"text": "moved"}]
        assert len(list(home.config.rglob(f"{driven.thread}.jsonl"))) == 1
        gone = claude(home, thread=driven.thread, own_requests=frozenset({first}))
        (path,) = home.config.rglob(f"{driven.thread}.jsonl")
        path.unlink()
        async with Driven(gone) as forgotten:
            with pytest.raises(RefusedError, match="history"):
                await forgotten.send("x")

    asyncio.run(run())


def test_a_killed_engine_leaves_the_outcome_unknown(stub: StubLlm, home: ClaudeHome) -> None:
    async def run() -> None:
        harness = claude(home)
        async with Driven(harness) as driven:
            pid = (await harness.start()).pid
            assert pid is not None
            done = await driven.turn("[[stub: text text=done]]")
            request = await driven.send("[[stub: hang]]")
            await driven.until(lambda: driven.text_of(request) != "")
            await until(lambda: written(home, request))
            os.kill(pid, signal.SIGKILL)
            await driven.until(lambda: driven.ended)
            note = driven.notes[-1]
            assert (note.turn, note.evidence["exit_code"]) == (request, -signal.SIGKILL)
            assert note.evidence["endpoint_class"] == "harness_stdio"
            (error,) = [event for event in driven.events if event.type == "error"]
            assert error.code == "claude_disconnected"
            assert "partial output" in (error.message or "")
            assert driven.completion(request) is None, "a death completes nothing (H4)"
        own = frozenset({done, request})
        async with Driven(claude(home, thread=driven.thread, own_requests=own)) as later:
            first, second = await later.harness.recover(), await later.harness.recover()
            assert keys(first) == keys(second)
            assert [(r.turn, r.kind) for r in first.receipts] == [(request, "started")]
            assert first.stalled == (request,)
            assert await later.harness.lookup(request) is Delivery.FOUND
            again = await later.turn("[[stub: text text=again]]")
            assert later.payloads("output", again) == [{"text": "again"}]
            assert later.completion(request) is None

    asyncio.run(run())


def test_a_killed_turn_keeps_the_calls_that_were_written(home: ClaudeHome) -> None:
    async def run() -> None:
        harness = claude(home)
        async with Driven(harness) as driven:
            pid = (await harness.start()).pid
            assert pid is not None
            request = await driven.send("[[stub: tool cmd=tail_-f_/dev/null]]")
            await driven.until(lambda: "item_started" in driven.event_types(request))
            await until(lambda: written(home, '"tool_use"'))
            await until(lambda: "tail" in names(below(pid)))
            children = below(pid)
            os.kill(pid, signal.SIGKILL)
            await driven.until(lambda: driven.ended)
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()  # its shell survives it
        batch = await file_alone(home, driven, request)
        assert [r.kind for r in batch.receipts] == ["started", "usage"]
        assert batch.receipts[1].payload["usage"]["output_tokens"] == 50
        assert batch.stalled == (request,)

    asyncio.run(run())


def test_a_kill_before_anything_was_written(home: ClaudeHome) -> None:
    async def run() -> None:
        harness = claude(home)
        async with Driven(harness) as driven:
            pid = (await harness.start()).pid
            assert pid is not None
            request = await driven.send("[[stub: hang]]")
            os.kill(pid, signal.SIGKILL)
            await driven.until(lambda: driven.ended)
        async with Driven(claude(home, thread=driven.thread, own_requests=frozenset({request}))) as later:
            assert (await later.harness.recover()).stalled == (request,)
            assert await later.harness.lookup(request) is not Delivery.ABSENT, "who knows"
            again = await later.turn("[[stub: text text=again]]")
            assert later.payloads("output", again) == [{"text": "again"}]

    asyncio.run(run())


CHILD = """
import asyncio, os, signal, sys
import msgspec
from turnlog.harness import HarnessConfig
from turnlog.harness.claude.live import ClaudeHarness

async def run():
    config = msgspec.json.decode(sys.argv[1], type=HarnessConfig, dec_hook=lambda kind, value: kind(value))
    harness = ClaudeHarness(config)
    identity = await harness.start()
    thread = await harness.open_thread()
    request = harness.new_request_id()
    await harness.send(request, sys.argv[2])
    async for batch in harness.observe():
        if any(event.type == "text_delta" for event in batch.events):
            print(thread, request, identity.pid, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(run())
"""


def test_our_death_lets_the_engine_finish_and_the_file_tells_the_end(home: ClaudeHome) -> None:
    config = HarnessConfig(cwd=home.work, title="orphan", state_dir=home.state, env=home.env, permissions="allow")
    argv = [sys.executable, "-c", CHILD, msgspec.json.encode(config, enc_hook=str).decode()]
    done = subprocess.run(
        [*argv, "[[stub: slow n=20 delay=0.05]]"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    thread, request, pid = done.stdout.split()

    async def run() -> None:
        own = frozenset({request})
        async with Driven(claude(home, thread=thread, own_requests=own)) as driven:
            assert ended(pid), "the earlier process was waited for"
            await driven.until(lambda: driven.completion(request) is not None)
            completion = driven.completion(request)
            assert (completion["status"], completion["source"]) == ("completed", "file")
            (output,) = driven.payloads("output", request)
            assert output["text"].split() == [f"w{n}" for n in range(20)]
            (usage,) = driven.payloads("usage", request)
            assert (usage["source"], usage["usage"]["output_tokens"]) == ("file", 50)
            assert driven.event_types(request) == [], "no boundary events for a turn of before (H8)"
            assert reduced(driven).usage.total_input_tokens == 1600
            after = await driven.turn("[[stub: text]]")
            assert driven.payloads("usage", after)[0]["total_cost_usd"] == pytest.approx(2 * COST)
            assert (await driven.harness.recover()).receipts == ()

    asyncio.run(run())


def below(pid: int) -> list[psutil.Process]:
    """Return what a program started."""
    return psutil.Process(pid).children(recursive=True)


def subagent_hangs(log: list[dict[str, Any]]) -> bool:
    return any("sub agent prompt" in entry["user"] and entry["outcome"] is None for entry in log)


def names(processes: list[psutil.Process]) -> list[str]:
    """Return the names of those that still run."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(process.name())
    return found


def written(home: ClaudeHome, text: str) -> bool:
    """Tell whether Claude has written something into its session files."""
    return any(text.encode() in path.read_bytes() for path in home.config.rglob("projects/*/*.jsonl"))
