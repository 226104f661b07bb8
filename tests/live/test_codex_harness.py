"""The real Codex against the model stub: what providers.md §3 says it does, and that we see it so."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harness.codex_driving import CodexDriven
from tests.harness.driving import idle, keys, until
from turnlog.errors import InvalidError, MissingError, RefusedError, UnavailableError
from turnlog.harness import Batch, Child, Delivery, HarnessConfig, SteerOutcome
from turnlog.harness.codex.live import CodexHarness
from turnlog.testing.codex_home import CodexHome, codex_home
from turnlog.testing.stub_llm import StubLlm

pytestmark = [pytest.mark.live, pytest.mark.anyio, pytest.mark.timeout(240)]

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def stub() -> Iterator[StubLlm]:
    with StubLlm() as running:
        yield running


@pytest.fixture(scope="module")
def home(stub: StubLlm, tmp_path_factory: pytest.TempPathFactory) -> CodexHome:
    """One CODEX_HOME for all: each conversation has an engine of its own all the same."""
    return codex_home(tmp_path_factory.mktemp("codex"), stub.url)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def codex(home: CodexHome, name: str, permissions: str = "allow", **more: Any) -> CodexHarness:
    config: dict[str, Any] = {"cwd": home.work, "title": f"{name} · {os.urandom(4).hex()}", "env": home.env}
    return CodexHarness(HarnessConfig(**{**config, "state_dir": home.state(name), "permissions": permissions, **more}))


def totals(driven: CodexDriven, turn: str, thread: str | None = None) -> list[int]:
    return [usage["total"]["inputTokens"] for usage in driven.payloads("usage", turn, thread)]


async def recovered_twice(driven: CodexDriven) -> Batch:
    """Read the history twice with the same result (promise 2), and see it say what the live reading said."""
    first, second = await driven.harness.recover(), await driven.harness.recover()
    assert keys(first) == keys(second)
    assert first.notes == second.notes
    assert first.events == second.events == ()
    live = {(r.thread, r.turn, r.kind): r.payload for r in driven.receipts if r.kind != "usage"}
    told = {(r.thread, r.turn, r.kind): r.payload for r in first.receipts}
    assert {key: live[key] for key in told if key in live} == {key: told[key] for key in told if key in live}
    assert not any(receipt.kind == "usage" for receipt in first.receipts)
    return first


async def test_a_tool_call_and_an_answer(home: CodexHome, name: str) -> None:
    async with CodexDriven(codex(home, name)) as driven:
        turn = await driven.turn("[[stub: tool]] go")
        assert totals(driven, turn) == [1600, 3200]
        assert driven.payloads("output", turn) == [{"text": "stub answer"}]
        assert driven.completion(turn)["status"] == "completed"
        assert [r.kind for r in driven.receipts] == ["started", "usage", "usage", "output", "completed"]
        assert driven.accepted == [(driven.requests[turn], turn)]
        types = driven.event_types(turn)
        assert (types[0], types[-1]) == ("turn_started", "turn_completed")
        assert driven.text_of(turn) == "I will run it.stub answer"
        commands = [event.item for event in driven.events if (event.item or {}).get("kind") == "command"]
        assert [item["state"] for item in commands if item] == ["running", "completed"]
        assert all(item and "echo hi" in item["summary"] for item in commands)
        assert types.count("usage_checkpoint") == 2
        assert not driven.notes
        assert await driven.harness.lookup(driven.requests[turn]) is Delivery.FOUND
        assert await driven.harness.lookup("req_never") is Delivery.ABSENT
        again = await driven.turn("[[stub: tools2]] go")
        assert totals(driven, again) == [4800, 6400]
        batch = await recovered_twice(driven)
        assert {r.turn for r in batch.receipts if r.kind == "started"} == {turn, again}
        await idle(driven.harness)
        assert await driven.harness.alive()
    assert driven.ended
    assert not await driven.harness.alive()
    assert not driven.notes, "a wanted end is no disconnect"


async def test_failures_and_retries(home: CodexHome, name: str) -> None:
    async with CodexDriven(codex(home, name)) as driven:
        failed = await driven.turn("[[stub: error400]] go")
        assert driven.completion(failed)["status"] == "failed"
        assert driven.event_types(failed)[-2:] == ["error", "turn_completed"]
        (error,) = [event for event in driven.events if event.type == "error"]
        assert (error.code, "stub error 400" in (error.message or "")) == ("codex_error", True)
        passed = await driven.turn("[[stub: flaky429 after=0]] go")
        assert driven.completion(passed)["status"] == "completed"
        assert totals(driven, passed) == [1600]
        cut = await driven.turn("[[stub: cut]] go")
        assert driven.completion(cut)["status"] == "failed"
        retries = [event for event in driven.events if event.turn_id == cut and event.type == "status_changed"]
        assert retries[0].status == "retry"
        assert "Reconnecting" in (retries[0].message or "")
        await recovered_twice(driven)


async def test_interrupt_is_sent_once_and_the_next_turn_works(home: CodexHome, name: str) -> None:
    async with CodexDriven(codex(home, name)) as driven:
        await driven.harness.interrupt()  # idle: nothing to stop
        turn = await driven.send("[[stub: slow n=600 delay=0.1]] go")
        await driven.until_event("text_delta", turn)
        assert await driven.harness.busy()
        await asyncio.gather(driven.harness.interrupt(), driven.harness.interrupt())
        await driven.until(lambda: driven.completion(turn) is not None)
        assert driven.completion(turn)["status"] == "interrupted"
        assert driven.event_types(turn)[-2:] == ["error", "turn_completed"]
        # One that was only promised cannot be stopped yet; the harness waits for its start.
        early = await driven.send("[[stub: hang]] go")
        await driven.harness.interrupt()
        await driven.until(lambda: driven.completion(early) is not None)
        assert driven.completion(early)["status"] == "interrupted"
        after = await driven.turn("[[stub: text text=after]] go")
        assert driven.payloads("output", after) == [{"text": "after"}]
        await recovered_twice(driven)


async def test_the_engine_is_killed_while_the_model_hangs(home: CodexHome, name: str, stub: StubLlm) -> None:
    driven = CodexDriven(codex(home, name))
    async with driven:
        done = await driven.turn("[[stub: text]] before")
        turn = await driven.send("[[stub: hang]] go")
        await driven.until_event("text_delta", turn)
        pid = (await driven.harness.start()).pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await driven.until(lambda: driven.ended)
        assert driven.completion(turn) is None, "the end of a process completes nothing"
        (note,) = driven.notes
        assert note.source.startswith(f"disconnect:{driven.thread}:")
        assert (note.turn, note.evidence["exit_code"]) == (turn, -9)
        assert note.evidence["terminal_error_class"] == "stream_eof"
        assert driven.events[-1].code == "codex_disconnected"
        assert "mid-stream" in (driven.events[-1].message or "")
        assert not await driven.harness.alive()
        with pytest.raises(RefusedError):
            await driven.harness.send("req_late", "[[stub: text]] late")

    requests = driven.requests
    more: dict[str, Any] = {"thread": driven.thread, "own_requests": frozenset(requests.values())}
    async with CodexDriven(codex(home, name, **more)) as second:
        await second.until(lambda: second.completion(turn) is not None)
        assert second.completion(turn)["status"] == "interrupted"
        assert second.completion(turn)["basis"] == "process_ended"
        assert second.completion(turn)["completed_at"] is None
        assert set(second.accepted) == {(requests[done], done), (requests[turn], turn)}
        assert {r.turn for r in second.receipts if r.kind == "started"} == {done, turn}
        assert second.events == [], "no boundary events for turns of another object"
        assert second.payloads("usage") == [], "the replayed counters are not new"
        after = await second.turn("[[stub: text]] after")
        assert totals(second, after) == [3200]
        await recovered_twice(second)
    async with CodexDriven(codex(home, name, thread=driven.thread)) as third:
        await third.until(lambda: third.completion(done) is not None)
        assert third.completion(turn) is None, "not ours: nobody knows that its process is gone"
        assert third.completion(after)["status"] == "completed"


async def test_steering(home: CodexHome, name: str) -> None:
    async with CodexDriven(codex(home, name)) as driven:
        assert await driven.harness.steer("req_idle", "hello") is SteerOutcome.NOT_STEERABLE
        with pytest.raises(InvalidError):
            await driven.harness.steer("req_empty", " ")
        turn = await driven.send("[[stub: slow n=600 delay=0.1]] go")
        assert await driven.harness.steer("req_steer", "[[stub: text text=steered]]") is SteerOutcome.SENT
        await driven.until(lambda: driven.completion(turn) is not None)
        assert driven.payloads("output", turn) == [{"text": "steered"}]
        assert driven.settled == [("req_steer", turn)]
        (note,) = driven.notes
        assert (note.source, note.turn, note.evidence) == ("absorbed:req_steer", turn, {"by": turn})
        assert await driven.harness.lookup("req_steer") is Delivery.FOUND
        batch = await recovered_twice(driven)
        assert (batch.settled, batch.notes) == ((("req_steer", turn),), (note,))


async def test_a_turn_started_while_one_runs_only_joins_it(home: CodexHome, name: str) -> None:
    async with CodexDriven(codex(home, name)) as driven:
        turn = await driven.send("[[stub: slow n=600 delay=0.1]] go")
        await driven.until_event("text_delta", turn)
        assert await driven.harness.send("req_joined", "[[stub: text text=both]]") is None
        await driven.until(lambda: driven.completion(turn) is not None)
        assert driven.settled == [("req_joined", turn)]
        assert driven.accepted == [(driven.requests[turn], turn)]
        assert [r.turn for r in driven.receipts if r.kind == "started"] == [turn]
        assert driven.event_types(turn).count("turn_started") == 1
        assert driven.payloads("output", turn) == [{"text": "both"}]
        await recovered_twice(driven)


async def test_permissions_asked_and_answered(home: CodexHome, name: str) -> None:
    async with CodexDriven(codex(home, name, "ask")) as driven:
        target = home.work / "asked"
        turn = await driven.send(f"[[stub: tool cmd=touch_{target}]] go")
        await driven.until(lambda: len(driven.asks) == 1)
        ask = driven.asks[0]
        assert (ask.thread, ask.turn, ask.action) == (driven.thread, turn, "command")
        assert str(target) in ask.detail
        assert not target.exists()
        await driven.harness.answer(ask.id, "once")
        await driven.until(lambda: driven.completion(turn) is not None)
        assert target.exists()
        with pytest.raises(RefusedError):
            await driven.harness.answer(ask.id, "once")
        settled = [event for event in driven.events if event.type == "permission_settled"]
        assert [(event.status, event.evidence) for event in settled] == [("once", {"id": ask.id})]

        declined = await driven.send("[[stub: tool cmd=touch_never]] go")
        await driven.until(lambda: len(driven.asks) == 2)
        await driven.harness.answer(driven.asks[1].id, "reject")
        await driven.until(lambda: driven.completion(declined) is not None)
        assert driven.completion(declined)["status"] == "completed", "the turn goes on without it"
        assert not (home.work / "never").exists()
        states = [
            event.item["state"]
            for event in driven.events
            if event.turn_id == declined and event.item and "state" in event.item
        ]
        assert states[-1] == "declined"

        lasting = await driven.send("[[stub: tool cmd=touch_lasting]] go")
        await driven.until(lambda: len(driven.asks) == 3)
        await driven.harness.answer(driven.asks[2].id, "always")
        await driven.until(lambda: driven.completion(lasting) is not None)
        await driven.turn("[[stub: tool cmd=touch_lasting]] again")
        assert len(driven.asks) == 3, "the same is not asked again"
        assert not (home.home / "rules").exists(), "no lasting rule in the user's CODEX_HOME"


async def test_an_interrupt_settles_what_is_asked(home: CodexHome, name: str) -> None:
    async with CodexDriven(codex(home, name, "ask")) as driven:
        turn = await driven.send("[[stub: tool cmd=touch_never]] go")
        await driven.until(lambda: len(driven.asks) == 1)
        await driven.harness.interrupt()
        await driven.until(lambda: driven.completion(turn) is not None)
        assert driven.completion(turn)["status"] == "interrupted"
        settled = [event for event in driven.events if event.type == "permission_settled"]
        assert [event.status for event in settled] == [None], "not answered by anybody"


async def test_the_policy_deny_asks_nobody(home: CodexHome, name: str) -> None:
    async with CodexDriven(codex(home, name, "deny")) as driven:
        turn = await driven.turn("[[stub: tool cmd=touch_denied]] go")
        assert driven.completion(turn)["status"] == "completed"
        assert not driven.asks
        assert not (home.work / "denied").exists()
        assert [e.status for e in driven.events if e.type == "permission_settled"] == ["reject"]


async def test_a_subagent_has_its_own_numbers(home: CodexHome, stub: StubLlm, name: str) -> None:
    stub.reset()
    async with CodexDriven(codex(home, name, "ask")) as driven:
        turn = await driven.send("[[stub: subagent sub=tool]] go")
        await driven.until(lambda: len(driven.asks) == 1)
        ask = driven.asks[0]
        assert ask.thread != driven.thread
        await driven.harness.answer(ask.id, "once")
        child = ask.thread
        assert ask.turn is not None
        inner: str = ask.turn
        await driven.until(lambda: any(r.thread == child and r.kind == "completed" for r in driven.receipts))
        await driven.until(lambda: driven.completion(turn) is not None)
        await idle(driven.harness)
        children = [found for batch in driven.batches for found in batch.children]
        assert [(c.thread, c.parent_thread, c.parent_turn) for c in children] == [(child, driven.thread, turn)]
        assert children[0].title
        asked = sum("sub agent prompt" not in entry["user"] for entry in stub.log())
        assert asked in {2, 3}, "a third when the subagent is done first: its end is told to the running turn"
        assert totals(driven, turn) == [1600 * count for count in range(1, asked + 1)]
        assert totals(driven, inner, child) == [1600, 3200]
        assert not [
            event for event in driven.events if event.turn_id == inner and not event.type.startswith("permission_")
        ]
        batch = await recovered_twice(driven)
        assert batch.children == (Child(child, driven.thread, turn, children[0].title),)
        assert {(r.thread, r.kind) for r in batch.receipts if r.turn == inner} == {
            (child, "output"),
            (child, "completed"),
        }


async def test_structured_answers(home: CodexHome, name: str) -> None:
    harness = codex(home, name)
    async with CodexDriven(harness) as driven:
        strict = await driven.turn('[[stub: text text={"a":1}]] go', schema=SCHEMA)
        assert driven.payloads("output", strict) == [{"value": {"a": 1}}]
        wrong = await driven.turn('[[stub: text text={"a":"x"}]] go', schema=SCHEMA)
        assert driven.payloads("output", wrong) == [{"text": '{"a":"x"}'}], "it does not fit: no value"
        loose = await driven.turn('[[stub: text text={"b":2}]] go', schema={"type": "object"})
        assert driven.payloads("output", loose) == [{"value": {"b": 2}}]
        plain = await driven.turn('[[stub: text text={"a":1}]] go')
        assert driven.payloads("output", plain) == [{"text": '{"a":1}'}]
        await recovered_twice(driven)
    own = frozenset(driven.requests.values())
    async with CodexDriven(codex(home, name, thread=driven.thread, own_requests=own)) as second:
        await second.until(lambda: len(second.payloads("output")) == 4)
        assert second.payloads("output", strict) == [{"value": {"a": 1}}], "the same after a restart"
        assert second.payloads("output", wrong) == [{"text": '{"a":"x"}'}]


async def test_stop_ends_running_commands_and_codex_writes_the_end_down(home: CodexHome, name: str) -> None:
    async with CodexDriven(codex(home, name)) as driven:
        turn = await driven.send("[[stub: tool cmd=sleep_4711]] go")
        await driven.until_event("item_started", turn, kind="command")
        pid = (await driven.harness.start()).pid
        assert pid is not None
        commands: list[psutil.Process] = []

        def runs() -> bool:  # Codex says that it begins before it does
            commands[:] = below(pid, "4711")
            return bool(commands)

        await until(runs)
    assert not any(command.is_running() and command.status() != psutil.STATUS_ZOMBIE for command in commands)
    own = frozenset(driven.requests.values())
    async with CodexDriven(codex(home, name, thread=driven.thread, own_requests=own)) as second:
        await second.until(lambda: second.completion(turn) is not None)
        assert second.completion(turn)["status"] == "interrupted"
        assert "basis" not in second.completion(turn)


def below(pid: int, word: str) -> list[psutil.Process]:
    """Return what a program started whose command line holds a word."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if word in " ".join(process.cmdline()):
                found.append(process)
    return found


async def test_two_engines_never_write_one_conversation(home: CodexHome, name: str) -> None:
    first = CodexDriven(codex(home, name), stop=True)
    async with first:
        await first.turn("[[stub: text]] go")
        pid = (await first.harness.start()).pid
        # Another turnlog, with another state folder, cannot open it.
        with pytest.raises(UnavailableError, match="open"):
            async with CodexDriven(codex(home, name, thread=first.thread, state_dir=home.state(f"{name}-other"))):
                pass
        # One that looks after the same conversation ends the engine that its predecessor left.
        async with CodexDriven(codex(home, name, thread=first.thread)) as second:
            await first.until(lambda: first.ended)
            assert pid is not None
            assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
            await second.turn("[[stub: text]] go on")
    assert any(note.source.startswith("disconnect:") for note in first.notes)


async def test_a_conversation_is_made_once(home: CodexHome, name: str) -> None:
    harness = codex(home, name)
    async with CodexDriven(harness) as driven:
        assert await harness.open_thread() == driven.thread
        await driven.turn("[[stub: text]] go")
    # The id was never recorded by anybody but the state folder.
    async with CodexDriven(codex(home, name)) as second:
        assert second.thread == driven.thread


async def test_a_conversation_without_a_turn_is_gone_with_its_engine(home: CodexHome, name: str) -> None:
    async with CodexDriven(codex(home, name, title="")) as driven:
        pass
    with pytest.raises(MissingError, match="no rollout"):
        async with CodexDriven(codex(home, f"{name}-b", thread=driven.thread)):
            pass
    async with CodexDriven(codex(home, name, title="")) as second:
        assert second.thread != driven.thread, "nothing was in it"


async def test_what_the_user_must_know(tmp_path: Path, stub: StubLlm) -> None:
    home = codex_home(tmp_path / "key", stub.url)
    async with CodexDriven(codex(home, "key", env={**home.env, "STUB_KEY": ""})) as driven:
        turn = await driven.turn("[[stub: text]] go")
        assert "Missing environment variable" in driven.completion(turn)["error"]["message"]

    home = codex_home(tmp_path / "login", stub.url)
    (home.home / "config.toml").write_text("")
    async with CodexDriven(codex(home, "login")) as driven:
        with pytest.raises(RefusedError, match="not logged in"):
            await driven.send("hello")

    (home.home / "config.toml").write_text("model = [broken")
    with pytest.raises(UnavailableError, match="unclosed array"):
        async with CodexDriven(codex(home, "broken")):
            pass

    (home.home / "config.toml").write_text('model_provider = "nowhere"')
    with pytest.raises(UnavailableError, match="nowhere"):
        async with CodexDriven(codex(home, "provider")):
            pass

    with pytest.raises(InvalidError):
        await codex(home, "endpoint", endpoint="http://127.0.0.1:1").preflight()
    await codex(home, "preflight").preflight()
