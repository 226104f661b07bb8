"""The real OpenCode against the model stub: what providers.md §2 says it does, and that we see it so."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

from tests.harness.driving import Driven, Proxy, delivered, idle, keys, tokens
from turnlog.errors import InvalidError, MissingError, UnavailableError, UncertainError
from turnlog.harness import Batch, Delivery, EngineIdentity, HarnessConfig, SteerOutcome
from turnlog.harness.opencode.live import OpenCodeHarness
from turnlog.process import Liveness, identify, liveness
from turnlog.testing.opencode_home import OpenCodeHome, opencode_home
from turnlog.testing.stub_llm import StubLlm

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

CALL = {"total": 1650, "input": 1200, "output": 30, "reasoning": 20, "cache": {"read": 400, "write": 0}}
"""One stub call as OpenCode's Chat provider counts it (providers.md §1)."""


@pytest.fixture(scope="module")
def stub() -> Iterator[StubLlm]:
    with StubLlm() as running:
        yield running


class Server(msgspec.Struct, frozen=True):
    """A running OpenCode that no harness of a test owns. The user's own settings allow everything."""

    home: OpenCodeHome
    identity: EngineIdentity

    @property
    def password(self) -> str:
        (file,) = self.home.state.glob("opencode-*.password")
        return file.read_text()

    @property
    def port(self) -> int:
        return urlsplit(self.identity.endpoint or "").port or 0

    def harness(
        self, title: str, permissions: str = "allow", endpoint: str | None = None, **more: Any
    ) -> OpenCodeHarness:
        return OpenCodeHarness(
            HarnessConfig(
                cwd=self.home.work,
                title=f"{title} {os.urandom(4).hex()}",
                state_dir=self.home.state,
                endpoint=endpoint or self.identity.endpoint,
                permissions=permissions,
                env=self.home.env,
                **more,
            )
        )

    def through(self, proxy: Proxy, title: str) -> OpenCodeHarness:
        return self.harness(title, endpoint=f"http://opencode:{self.password}@127.0.0.1:{proxy.port}")

    def client(self) -> httpx.AsyncClient:
        """Another client of the same server."""
        auth = ("opencode", self.password)
        return httpx.AsyncClient(base_url=self.identity.endpoint or "", auth=auth, timeout=20, trust_env=False)


@pytest.fixture(scope="module")
def server(stub: StubLlm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One engine for all tests that only attach: started by a harness that detaches, ended by one that adopts it."""
    home = opencode_home(tmp_path_factory.mktemp("opencode"), stub.url)

    async def start() -> EngineIdentity:
        harness = owned(home)
        identity = await harness.start()
        await harness.detach()
        return identity

    async def stop() -> EngineIdentity:
        harness = owned(home)
        identity = await harness.start()
        await harness.stop()
        return identity

    identity = asyncio.run(start())
    yield Server(home, identity)
    assert asyncio.run(stop()) == identity, "the engine left running is adopted, not started again"
    assert ended(identity.pid)
    assert list(home.state.glob("*.password")) == []


def ended(pid: int | None) -> bool:
    """Tell whether a process is gone; nobody may have taken the exit of one whose parent died."""
    assert pid is not None
    known = identify(pid)
    return known is None or liveness(known.boot_id, known.pid, known.started_at) is Liveness.DEAD


def owned(home: OpenCodeHome, title: str = "owned", permissions: str = "allow", **more: Any) -> OpenCodeHarness:
    return OpenCodeHarness(
        HarnessConfig(cwd=home.work, title=title, state_dir=home.state, env=home.env, permissions=permissions, **more)
    )


async def recovered_twice(driven: Driven) -> Batch:
    """Read the history twice with the same result (promise 2), and see it say what the live reading said."""
    first, second = await driven.harness.recover(), await driven.harness.recover()
    assert keys(first) == keys(second)
    assert first.events == second.events == ()
    live = {(r.thread, r.turn, r.kind) for r in driven.receipts}
    assert {(r.thread, r.turn, r.kind) for r in first.receipts} >= live
    return first


def test_text_turn(server: Server) -> None:
    async def run() -> None:
        async with Driven(server.harness("text")) as driven:
            request = await driven.turn("[[stub: text text=hello_world]] plain")
            assert driven.payloads("started", request) == [{}]
            (usage,) = driven.payloads("usage", request)
            assert usage["provider"] == "opencode"
            assert usage["session_version"] == server.identity.version
            assert tokens(usage) == CALL
            assert usage["message"]["cost"] == pytest.approx(0.00174)
            assert driven.payloads("output", request) == [{"text": "hello world"}]
            completion = driven.completion(request)
            message = usage["message"]
            assert completion == {
                "status": "completed",
                "error": None,
                "started_at": message["time"]["created"],
                "completed_at": message["time"]["completed"],
                "message_id": message["id"],
                "provider": "opencode",
            }
            types = driven.event_types(request)
            assert types[0] == "turn_started"
            assert types[-1] == "turn_completed"
            assert types.count("turn_started") == types.count("turn_completed") == types.count("usage_checkpoint") == 1
            assert driven.text_of(request) == "hello world"
            assert await driven.harness.lookup(request) is Delivery.FOUND
            assert await driven.harness.lookup(driven.harness.new_request_id()) is Delivery.ABSENT
            await recovered_twice(driven)

    asyncio.run(run())


def test_reasoning_is_told_apart_from_text(server: Server) -> None:
    async def run() -> None:
        async with Driven(server.harness("think")) as driven:
            request = await driven.turn("[[stub: think]]")
            assert driven.text_of(request) == "stub answer"
            thoughts = [e.content for e in driven.events if e.type == "reasoning_delta"]
            assert "".join(filter(None, thoughts)) == "stub reasoning"

    asyncio.run(run())


def test_tool_turn_has_two_calls_and_one_answer(server: Server) -> None:
    async def run() -> None:
        async with Driven(server.harness("tool")) as driven:
            request = await driven.turn("[[stub: tool cmd=echo_hi]]")
            usages = driven.payloads("usage", request)
            assert sorted(u["message"]["finish"] for u in usages if "finish" in u["message"]) == ["stop", "tool-calls"]
            assert [tokens(u) for u in usages] == [CALL, CALL]
            assert driven.payloads("output", request) == [{"text": "stub answer"}]
            ended = [
                e.item for e in driven.events if e.type == "item_completed" and e.item and e.item["kind"] == "tool"
            ]
            (item,) = [item for item in ended if item]
            assert (item["name"], item["summary"], item["state"]) == ("bash", "echo hi", "completed")
            assert item["duration_ms"] >= 0
            await recovered_twice(driven)

    asyncio.run(run())


def test_parallel_tools_in_one_message(server: Server) -> None:
    async def run() -> None:
        async with Driven(server.harness("tools2")) as driven:
            request = await driven.turn("[[stub: tools2]]")
            started = [e.item["id"] for e in driven.events if e.type == "item_started" and e.item]
            ended = [e.item["id"] for e in driven.events if e.type == "item_completed" and e.item and "state" in e.item]
            assert len(started) == 2
            assert sorted(started) == sorted(ended)
            assert driven.completion(request)["status"] == "completed"

    asyncio.run(run())


def test_error_fails_the_turn_and_comes_before_the_end(server: Server) -> None:
    async def run() -> None:
        async with Driven(server.harness("error")) as driven:
            request = await driven.turn("[[stub: error400]]")
            completion = driven.completion(request)
            assert completion["status"] == "failed"
            assert completion["error"]["name"] == "APIError"
            assert completion["error"]["data"]["statusCode"] == 400
            assert driven.event_types(request)[-2:] == ["error", "turn_completed"]
            (error,) = [e for e in driven.events if e.type == "error"]
            assert (error.code, error.message) == ("opencode_error", "stub error 400")
            assert driven.payloads("output", request) == []
            await recovered_twice(driven)

    asyncio.run(run())


def test_a_retried_error_is_shown_and_costs_nothing_twice(server: Server) -> None:
    async def run() -> None:
        async with Driven(server.harness("flaky")) as driven:
            request = await driven.turn(f"[[stub: flaky429 id={os.urandom(4).hex()}]]")
            assert driven.completion(request)["status"] == "completed"
            assert [tokens(u) for u in driven.payloads("usage", request)] == [CALL]
            retries = [e for e in driven.events if e.type == "status_changed" and e.status == "retry"]
            assert retries
            assert retries[0].message == "stub error 429"

    asyncio.run(run())


@pytest.mark.parametrize(("mode", "finish"), [("length", "length"), ("refusal", "stop")])
def test_other_ends(server: Server, mode: str, finish: str) -> None:
    async def run() -> None:
        async with Driven(server.harness(mode)) as driven:
            request = await driven.turn(f"[[stub: {mode}]]")
            (usage,) = driven.payloads("usage", request)
            assert usage["message"]["finish"] == finish
            assert driven.completion(request)["status"] == "completed"
            assert driven.payloads("output", request) == ([{"text": "stub answer"}] if mode == "length" else [])

    asyncio.run(run())


def test_interrupt_waits_for_the_message_to_end_and_keeps_the_partial_text(server: Server) -> None:
    async def run() -> None:
        async with Proxy(server.port) as proxy, Driven(server.through(proxy, "interrupt")) as driven:

            def aborts() -> int:
                return sum(line.startswith(f"POST /session/{driven.thread}/abort".encode()) for line in proxy.seen)

            request = await driven.send("[[stub: slow n=200 delay=0.05]]")
            await driven.until(lambda: len(driven.text_of(request)) > 6)
            await driven.harness.interrupt()
            await driven.until(lambda: driven.completion(request) is not None)
            completion = driven.completion(request)
            assert completion["status"] == "interrupted"
            assert completion["error"]["name"] == "MessageAbortedError"
            assert completion["completed_at"] is not None
            (output,) = driven.payloads("output", request)
            assert output["text"].startswith("w0 w1 ")
            assert driven.text_of(request) == output["text"]
            assert driven.event_types(request)[-2:] == ["error", "turn_completed"]
            assert aborts() == 1
            await idle(driven.harness)
            await driven.harness.interrupt()  # idle: asks the status, aborts nothing
            assert aborts() == 1
            again = await driven.turn("[[stub: text]]")
            assert driven.completion(again)["status"] == "completed"
            await recovered_twice(driven)

    asyncio.run(run())


def test_interrupt_while_waiting_to_retry(server: Server) -> None:
    """OpenCode writes an end without error or finish; with our accepted abort that is an interruption (H4)."""

    async def run() -> None:
        async with Driven(server.harness("retry")) as driven:
            # The server names the time to wait: it is not over when the interrupt comes.
            request = await driven.send(f"[[stub: flaky429 after=600 id={os.urandom(4).hex()}]]")
            await driven.until(lambda: any(e.status == "retry" for e in driven.events))
            await driven.harness.interrupt()
            await driven.until(lambda: driven.completion(request) is not None)
            completion = driven.completion(request)
            assert (completion["status"], completion["error"]) == ("interrupted", None)
            assert completion["basis"] == "abort_accepted"
            await recovered_twice(driven)
            thread = driven.thread
        # Another process does not know of the abort: for it the outcome is unknown.
        async with Driven(server.harness("later", thread=thread, own_requests=frozenset({request}))) as later:
            batch = await later.harness.recover()
            assert [r.kind for r in batch.receipts] == ["started", "usage"]
            assert batch.stalled == (request,)
            assert [note.source for note in batch.notes] == [f"idle:{thread}:{request}"]

    asyncio.run(run())


def test_interrupt_drops_queued_prompts(server: Server) -> None:
    async def run() -> None:
        async with Driven(server.harness("dropped")) as driven:
            first = await driven.send("[[stub: slow n=200 delay=0.05]]")
            await driven.until(lambda: driven.text_of(first) != "")
            queued = await driven.send("[[stub: text text=never]]")
            await delivered(driven.harness, queued)  # one that is stored after the abort would be done
            await driven.harness.interrupt()
            await driven.until(lambda: queued in driven.stalled)
            assert driven.completion(first)["status"] == "interrupted"
            assert driven.payloads("started", queued) == []
            # The next prompt takes the dropped one along.
            last = await driven.turn("[[stub: text text=last]]")
            await driven.until(lambda: (queued, last) in driven.settled)
            assert driven.payloads("output", last) == [{"text": "last"}]

    asyncio.run(run())


def test_steer_in_a_tool_loop_takes_the_turn_over(server: Server) -> None:
    async def run() -> None:
        async with Driven(server.harness("steer")) as driven:
            assert await driven.harness.steer(driven.harness.new_request_id(), "hello") is SteerOutcome.NOT_STEERABLE
            first = await driven.send("[[stub: loop n=99 cmd=sleep_0.3]]")
            await driven.until(lambda: "item_started" in driven.event_types(first))
            steering = driven.harness.new_request_id()
            assert await driven.harness.steer(steering, "[[stub: text text=steered]]") is SteerOutcome.SENT
            await driven.until(lambda: driven.completion(steering) is not None)
            assert driven.settled == [(first, steering)]
            assert driven.completion(first) is None
            assert driven.payloads("output", steering) == [{"text": "steered"}]
            (note,) = driven.notes
            assert (note.source, note.evidence) == (f"superseded:{driven.thread}:{first}", {"by": steering})
            assert "turn_completed" not in driven.event_types(first)
            batch = await recovered_twice(driven)
            assert [n.source for n in batch.notes] == [note.source]

    asyncio.run(run())


def test_queued_prompts_get_one_answer(server: Server, stub: StubLlm) -> None:
    async def run() -> None:
        async with Driven(server.harness("queued")) as driven:
            first = await driven.send("[[stub: hang]]")
            await driven.until(lambda: driven.text_of(first) != "")
            second = await driven.send("[[stub: text text=two]]")
            third = await driven.send("[[stub: text text=three]]")
            for request in (second, third):
                await delivered(driven.harness, request)
            stub.release()
            await driven.until(lambda: driven.completion(third) is not None)
            assert driven.completion(first)["status"] == "completed"
            assert driven.settled == [(second, third)]
            assert driven.payloads("output", third) == [{"text": "three"}]
            assert driven.payloads("started", second) == []
            assert [n.source for n in driven.notes] == [f"absorbed:{driven.thread}:{second}"]
            await recovered_twice(driven)

    asyncio.run(run())


@pytest.mark.parametrize(("answer", "command"), [("once", "true"), ("reject", "date"), ("always", "echo")])
def test_policy_ask_holds_against_a_user_who_allows_everything(server: Server, answer: str, command: str) -> None:
    async def run() -> None:
        async with Driven(server.harness("ask", permissions="ask")) as driven:
            # "always" holds for this command in every conversation of the server, so each case has its own.
            request = await driven.send(f"[[stub: tool cmd={command}]]")
            await driven.until(lambda: bool(driven.asks))
            (ask,) = driven.asks
            assert (ask.thread, ask.turn, ask.action, ask.detail) == (driven.thread, request, "bash", command)
            await driven.harness.answer(ask.id, answer)
            await driven.until(lambda: driven.completion(request) is not None)
            # Also after a rejection: it carries a message, so the turn goes on to an end.
            assert driven.completion(request)["status"] == "completed"
            states = [
                e.item["state"] for e in driven.events if e.type == "item_completed" and e.item and "name" in e.item
            ]
            assert states == ["error" if answer == "reject" else "completed"]
            types = driven.event_types(request)
            assert types.index("permission_asked") < types.index("permission_settled")
            assert len(driven.asks) == 1

    asyncio.run(run())


def test_policy_deny_refuses_commands_and_allows_reading_inside(server: Server) -> None:
    async def run() -> None:
        async with Driven(server.harness("deny", permissions="deny")) as driven:
            for text, state in (
                ("[[stub: tool cmd=touch_denied]]", "error"),
                ("[[stub: read path=/etc/hostname]]", "error"),
                ("[[stub: read path=opencode.json]]", "completed"),
            ):
                request = await driven.turn(text)
                ended = [e.item for e in driven.events if e.turn_id == request and e.type == "item_completed"]
                states = [item["state"] for item in ended if item and item["kind"] == "tool"]
                # A tool that is denied altogether is not even offered: then the stub calls none.
                assert states in ([], [state]) if state == "error" else states == [state]
            assert driven.asks == []
            assert not (server.home.work / "denied").exists()

    asyncio.run(run())


def test_resuming_with_another_policy_changes_the_rules(server: Server) -> None:
    async def run() -> None:
        async with Driven(server.harness("policy", permissions="allow")) as driven:
            thread = driven.thread
            await driven.turn("[[stub: text]]")
        async with Driven(server.harness("policy", permissions="ask", thread=thread)) as driven:
            request = await driven.send("[[stub: tool cmd=true_policy]]")
            await driven.until(lambda: bool(driven.asks))
            await driven.harness.answer(driven.asks[0].id, "once")
            await driven.until(lambda: driven.completion(request) is not None)

    asyncio.run(run())


def test_a_pending_ask_is_found_on_reconnect_and_a_stale_one_is_not(server: Server) -> None:
    async def run() -> None:
        async with Driven(server.harness("pending", permissions="ask")) as driven:
            thread = driven.thread
            request = await driven.send("[[stub: tool cmd=true_pending]]")
            await driven.until(lambda: bool(driven.asks))
        own = frozenset({request})
        async with Driven(server.harness("pending", "ask", thread=thread, own_requests=own)) as driven:
            await driven.until(lambda: bool(driven.asks))
            assert driven.asks[0].turn == request
            assert driven.event_types(request) == ["permission_asked"], "no boundary events for an earlier turn (H8)"
            await driven.harness.interrupt()
            await driven.until(lambda: driven.completion(request) is not None)
            assert driven.completion(request)["status"] == "interrupted"
        async with server.client() as client:
            left = [entry for entry in (await client.get("/permission")).json() if entry["sessionID"] == thread]
        async with Driven(server.harness("pending", "ask", thread=thread, own_requests=own)) as driven:
            await driven.until(lambda: driven.completion(request) is not None)
            await driven.turn("[[stub: text]]")
            assert driven.asks == []
        assert left, "OpenCode keeps the aborted permission in its list; if not, the rule is no longer needed"

    asyncio.run(run())


def test_subagent_is_recorded_with_its_own_usage(server: Server) -> None:
    async def run() -> None:
        async with Driven(server.harness("subagent")) as driven:
            request = await driven.turn("[[stub: subagent sub=tool]]")
            (child,) = [child for batch in driven.batches for child in batch.children]
            assert (child.parent_thread, child.parent_turn) == (driven.thread, request)
            assert child.title
            assert [tokens(u) for u in driven.payloads("usage", thread=child.thread)] == [CALL, CALL]
            assert [tokens(u) for u in driven.payloads("usage", request)] == [CALL, CALL]
            assert driven.payloads("output", thread=child.thread) == [{"text": "stub answer"}]
            assert driven.payloads("started", thread=child.thread) == []
            (end,) = driven.payloads("completed", thread=child.thread)
            assert end["status"] == "completed"
            order = [(r.thread == driven.thread, r.kind) for r in driven.receipts if r.kind == "completed"]
            assert order == [(False, "completed"), (True, "completed")]
            batch = await recovered_twice(driven)
            assert batch.children == (child,)

    asyncio.run(run())


def test_subagents_cannot_slip_past_policy_ask_on_a_server_that_allows_everything(server: Server) -> None:
    """A subagent inherits only denials. The server is not ours, so the only safe answer is to deny the subagent."""

    async def run() -> None:
        async with Driven(server.harness("sub ask", permissions="ask")) as driven:
            request = await driven.turn("[[stub: subagent sub=tool]]")
            assert [child for batch in driven.batches for child in batch.children] == []
            assert driven.completion(request)["status"] == "completed"

    asyncio.run(run())


def test_foreign_turns_are_recorded_without_start_or_events(server: Server) -> None:
    async def run() -> None:
        async with Driven(server.harness("foreign")) as driven, server.client() as client:
            ours = await driven.turn("[[stub: text text=ours]]")
            body = {"parts": [{"type": "text", "text": "[[stub: text text=theirs]]"}]}
            answer = await client.post(f"/session/{driven.thread}/message", json=body)
            theirs = answer.json()["info"]["parentID"]
            await driven.until(lambda: driven.completion(theirs) is not None)
            assert driven.payloads("output", theirs) == [{"text": "theirs"}]
            assert driven.payloads("started", theirs) == []
            assert driven.event_types(theirs) == []
            assert driven.payloads("started", ours) == [{}]

    asyncio.run(run())


def test_a_cut_connection_is_made_again_and_nothing_is_lost(server: Server) -> None:
    async def run() -> None:
        async with Proxy(server.port) as proxy, Driven(server.through(proxy, "cut")) as driven:
            request = await driven.send("[[stub: slow n=30 delay=0.05]]")
            await driven.until(lambda: driven.text_of(request) != "")
            proxy.cut()
            await driven.until(lambda: driven.completion(request) is not None)
            (output,) = driven.payloads("output", request)
            assert output["text"].split() == [f"w{n}" for n in range(30)]
            assert driven.event_types(request).count("turn_started") == 1
            assert driven.event_types(request).count("turn_completed") == 1
            assert not driven.ended
            assert sum(line.startswith(b"GET /event") for line in proxy.seen) == 2

    asyncio.run(run())


def test_a_lost_answer_is_looked_up_and_never_sent_again(server: Server) -> None:
    async def run() -> None:
        async with Proxy(server.port) as proxy:
            harness = server.through(proxy, "lost")
            proxy.swallow(b"POST /session?")
            async with Driven(harness) as driven:
                assert proxy.swallowed.is_set()
                assert sum(line.startswith(b"POST /session?") for line in proxy.seen) == 1
                proxy.swallow(f"POST /session/{driven.thread}/prompt_async".encode())
                request = harness.new_request_id()
                with pytest.raises(UncertainError):
                    await harness.send(request, "[[stub: text text=once]]")
                assert await harness.lookup(request) is not Delivery.ABSENT, "it may not be stored yet"
                await driven.until(lambda: driven.completion(request) is not None)
                assert await harness.lookup(request) is Delivery.FOUND
                assert driven.payloads("started", request) == [{}]
                assert len(driven.payloads("usage", request)) == 1

    asyncio.run(run())


def test_a_session_poisoned_by_a_json_schema_prompt_is_still_read(server: Server) -> None:
    """After such a prompt the list answers 400; pages that are not the last one still work."""

    async def run() -> None:
        async with Driven(server.harness("schema")) as driven, server.client() as client:
            before = await driven.turn("[[stub: text text=before]]")
            schema = {"type": "json_schema", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
            body = {"parts": [{"type": "text", "text": '[[stub: text text={"a":1}]]'}], "format": schema}
            await client.post(f"/session/{driven.thread}/message", json=body)
            whole = await client.get(f"/session/{driven.thread}/message")
            after = await driven.turn("[[stub: text text=after]]")
            batch = await recovered_twice(driven)
            outputs = {r.turn: r.payload for r in batch.receipts if r.kind == "output"}
            assert (outputs[before], outputs[after]) == ({"text": "before"}, {"text": "after"})
            assert len(outputs) == 3
        assert whole.status_code == 400, "OpenCode reads such a session again; the rule is no longer needed"

    asyncio.run(run())


def test_an_unknown_model(server: Server) -> None:
    """Known before: refused. Not known before (another client's word): the prompt is left without an answer."""

    async def run() -> None:
        harness = server.harness("model", model="stub/nope")
        await harness.start()
        with pytest.raises(InvalidError, match="no model stub/nope") as caught:
            await harness.open_thread()
        assert "stub/stub-model" in caught.value.hint
        harness._opened, harness._thread = False, None
        harness._check_model = _nothing  # type: ignore[method-assign]
        async with Driven(harness) as driven:
            request = await driven.send("[[stub: text]]")
            await driven.until(lambda: request in driven.stalled)
            (event,) = [e for e in driven.events if e.type == "error"]
            assert event.message == "Model not found: stub/nope."
            assert driven.completion(request) is None

    asyncio.run(run())


async def _nothing() -> None:
    """Stand in for a check."""


def test_missing_thread_and_wrong_password(server: Server) -> None:
    async def run() -> None:
        harness = server.harness("missing", thread="ses_0000000000000000000000000")
        await harness.start()
        try:
            with pytest.raises(MissingError):
                await harness.open_thread()
        finally:
            await harness.stop()
        wrong = server.harness("wrong", endpoint=f"http://opencode:wrong@127.0.0.1:{server.port}")
        with pytest.raises(UnavailableError, match="password") as caught:
            await wrong.start()
        assert "OPENCODE_SERVER_PASSWORD" in caught.value.hint

    asyncio.run(run())


# --- engines of the test's own --------------------------------------------------------------------------------------


@pytest.fixture
def home(stub: StubLlm, tmp_path: Path) -> OpenCodeHome:
    return opencode_home(tmp_path, stub.url)


def test_own_engine_is_private_and_a_killed_one_leaves_the_outcome_unknown(stub: StubLlm, home: OpenCodeHome) -> None:
    async def run() -> None:
        harness = owned(home)
        async with Driven(harness) as driven:
            thread = driven.thread
            identity = await harness.start()
            assert identity.pid is not None
            files = {path.suffix: path for path in home.state.iterdir()}
            assert sorted(files) == [".json", ".log", ".password"]
            assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o600}
            assert home.state.stat().st_mode & 0o777 == 0o700
            assert os.getpgid(identity.pid) == identity.pid
            async with httpx.AsyncClient(trust_env=False) as stranger:
                assert (await stranger.get(f"{identity.endpoint}/global/health")).status_code == 401
            seen = len(stub.log())
            request = await driven.send("[[stub: hang]]")
            await driven.until(lambda: driven.text_of(request) != "")
            await asyncio.to_thread(stub.wait, lambda log: len(log) > seen)
            os.kill(identity.pid, signal.SIGKILL)
            await driven.until(lambda: driven.ended)
            assert not await harness.alive()
            note = driven.notes[-1]
            assert note.source.startswith(f"disconnect:{thread}:")
            assert note.turn == request
            assert note.evidence["endpoint_class"] == "harness_event_stream"
            assert note.evidence["terminal_error_class"] in {"stream_eof", "read_error"}
            assert note.evidence["duration_ms"] > 0
            (error,) = [e for e in driven.events if e.type == "error"]
            assert error.code == "opencode_disconnected"
            assert error.message is not None
            assert "partial output" in error.message
            assert driven.completion(request) is None, "a death completes nothing (H4)"
        async with Driven(owned(home, thread=thread, own_requests=frozenset({request}))) as later:
            first, second = await later.harness.recover(), await later.harness.recover()
            assert keys(first) == keys(second)
            assert [(r.turn, r.kind) for r in first.receipts] == [(request, "started")]
            assert first.stalled == (request,)
            await later.until(lambda: request in later.stalled)
            again = await later.turn("[[stub: text text=again]]")
            assert later.payloads("output", again) == [{"text": "again"}]
            assert later.completion(request) is None

    asyncio.run(run())


CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
import msgspec
from turnlog.harness import HarnessConfig
from turnlog.harness.opencode.live import OpenCodeHarness

async def run():
    config = msgspec.json.decode(sys.argv[1], type=HarnessConfig, dec_hook=lambda kind, value: kind(value))
    harness = OpenCodeHarness(config)
    identity = await harness.start()
    thread = await harness.open_thread()
    request = None
    async for batch in harness.observe():
        if request is None:  # nothing is sent before the first look: pieces are told only to who listens
            request = harness.new_request_id()
            await harness.send(request, sys.argv[2])
        if any(event.type == "text_delta" for event in batch.events):
            print(thread, request, identity.pid, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(run())
"""


def test_our_death_leaves_the_engine_and_the_next_process_takes_it_over(stub: StubLlm, home: OpenCodeHome) -> None:
    config = HarnessConfig(cwd=home.work, title="orphan", state_dir=home.state, env=home.env, permissions="allow")
    text = "[[stub: hang text=the_engine_goes_on]]"
    argv = [sys.executable, "-c", CHILD, msgspec.json.encode(config, enc_hook=str).decode(), text]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    thread, request, pid = done.stdout.split()

    async def run() -> None:
        harness = owned(home, thread=thread, own_requests=frozenset({request}))
        async with Driven(harness) as driven:
            assert (await harness.start()).pid == int(pid), "adopted"
            assert await harness.busy(), "it works on"
            stub.release()
            await driven.until(lambda: driven.completion(request) is not None)
            assert driven.payloads("started", request) == [{}]
            assert driven.payloads("output", request) == [{"text": "the engine goes on"}]
            assert driven.event_types(request) == [], "no boundary events for a turn of before (H8)"
            await recovered_twice(driven)

    asyncio.run(run())
    assert ended(int(pid)), "stop ends an adopted engine"


def test_death_of_both_leaves_the_outcome_unknown(stub: StubLlm, home: OpenCodeHome) -> None:
    config = HarnessConfig(cwd=home.work, title="both", state_dir=home.state, env=home.env, permissions="allow")
    argv = [sys.executable, "-c", CHILD, msgspec.json.encode(config, enc_hook=str).decode(), "[[stub: hang]]"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    thread, request, pid = done.stdout.split()
    os.kill(int(pid), signal.SIGKILL)

    async def run() -> None:
        harness = owned(home, thread=thread, own_requests=frozenset({request}))
        async with Driven(harness, observe=False):
            assert (await harness.start()).pid != int(pid)
            batch = await harness.recover()
            assert keys(batch) == keys(await harness.recover())
            assert [(r.turn, r.kind) for r in batch.receipts] == [(request, "started")]
            assert batch.stalled == (request,)
            assert await harness.lookup(request) is Delivery.FOUND

    asyncio.run(run())


def test_own_engine_asks_for_what_subagents_do(stub: StubLlm, home: OpenCodeHome) -> None:
    async def run() -> None:
        async with Driven(owned(home, permissions="ask")) as driven:
            request = await driven.send("[[stub: subagent sub=tool]]")
            await driven.until(lambda: len(driven.asks) == 1)
            assert (driven.asks[0].action, driven.asks[0].thread) == ("task", driven.thread)
            await driven.harness.answer(driven.asks[0].id, "once")
            await driven.until(lambda: len(driven.asks) == 2)
            (child,) = [child for batch in driven.batches for child in batch.children]
            assert (driven.asks[1].action, driven.asks[1].thread) == ("bash", child.thread)
            await driven.harness.answer(driven.asks[1].id, "once")
            await driven.until(lambda: driven.completion(request) is not None)

    asyncio.run(run())


def test_compaction_does_not_pass_for_the_answer(stub: StubLlm, tmp_path: Path) -> None:
    """A full window splits the turn: the work goes on in a request that OpenCode makes itself, after its summary."""
    small = opencode_home(tmp_path, stub.url, context=12_000)

    async def run() -> None:
        async with Driven(owned(small)) as driven:
            request = await driven.send("[[stub: loop n=2 in=11000]]")
            await driven.until(lambda: bool(driven.settled))
            ((settled, successor),) = driven.settled
            assert settled == request
            await driven.until(lambda: driven.completion(successor) is not None)
            usages = driven.payloads("usage", successor)
            assert not any(u["message"].get("summary") for u in usages)

    asyncio.run(run())
