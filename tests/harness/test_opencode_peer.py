"""The OpenCode harness against a scripted server: lost answers, broken streams, long lists, strange orders."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.driving import Driven, keys
from turnlog.errors import InvalidError, MissingError, RefusedError, UnavailableError, UncertainError
from turnlog.harness import Delivery, HarnessConfig, SteerOutcome, harness_for
from turnlog.harness.opencode import engine, quiet, watch
from turnlog.harness.opencode.live import OpenCodeHarness
from turnlog.testing.opencode_peer import OpenCodePeer, assistant, tool, user

LIST = r"GET /session/ses_\d+/message"


@pytest.fixture
def peer() -> Iterator[OpenCodePeer]:
    with OpenCodePeer() as running:
        yield running


@pytest.fixture
def make(peer: OpenCodePeer, tmp_path: Path) -> Any:
    def harness(**more: Any) -> OpenCodeHarness:
        settings = {"title": "peer", "permissions": "allow", "endpoint": peer.url, **more}
        return OpenCodeHarness(HarnessConfig(cwd=tmp_path, state_dir=tmp_path / "state", **settings))

    return harness


def answering(peer: OpenCodePeer) -> None:
    """Let the peer answer each prompt at once."""

    def answer(thread: str, request: str, text: str) -> None:
        created = len(peer.seen)
        peer.put(
            thread,
            assistant(f"{request}_a", request, created=created, completed=created, finish="stop", texts=[text]),
        )

    peer.answers = answer


# --- the contract ---------------------------------------------------------------------------------------------------


def test_registry() -> None:
    assert harness_for("opencode") is OpenCodeHarness
    with pytest.raises(InvalidError, match="no harness"):
        harness_for("nobody")


@pytest.mark.parametrize("model", ["gpt", "/x", "x/"])
def test_a_model_names_its_provider(make: Any, model: str) -> None:
    with pytest.raises(InvalidError, match="model"):
        make(model=model)
    with pytest.raises(InvalidError, match="policy"):
        make(permissions="maybe")


def test_ids_of_ours_sort_by_time_and_never_repeat(make: Any) -> None:
    harness = make()
    ids = [harness.new_request_id() for _ in range(1000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 1000
    assert {len(name) for name in ids} == {len("msg_") + 32}
    assert harness.turn_of(ids[0]) == ids[0]


def test_nothing_works_before_the_thread_is_open(make: Any) -> None:
    async def run() -> None:
        harness = make()
        with pytest.raises(UnavailableError):
            await harness.send("msg_a", "x")
        with pytest.raises(UnavailableError):
            await harness.recover()

    asyncio.run(run())


# --- reaching a server ----------------------------------------------------------------------------------------------


def test_a_server_that_accepts_and_does_not_answer_yet(make: Any, peer: OpenCodePeer) -> None:
    async def run() -> None:
        peer.ready = False
        harness = make()
        starting = asyncio.create_task(harness.start())
        await asyncio.to_thread(peer.wait, lambda: peer.count("GET /global/health") >= 2)
        peer.ready = True
        identity = await starting
        assert (identity.endpoint, identity.version, identity.pid) == (peer.url, peer.version, None)
        await harness.stop()
        assert peer.streams == 0

    asyncio.run(run())


def test_a_server_that_is_never_ready(make: Any, peer: OpenCodePeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "READY_DEADLINE", 0.7)
    peer.ready = False

    async def run() -> None:
        with pytest.raises(UnavailableError, match="no OpenCode server answers"):
            await make().start()

    asyncio.run(run())


def test_nobody_listens(make: Any, peer: OpenCodePeer) -> None:
    peer.close()

    async def run() -> None:
        async with asyncio.timeout(10):  # less than a silent one would get
            with pytest.raises(UnavailableError, match="no OpenCode server answers"):
                await make().start()

    asyncio.run(run())


def test_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENCODE_SERVER_PASSWORD", raising=False)
    with OpenCodePeer(password="pw") as peer:
        host = peer.url.removeprefix("http://")

        def make(endpoint: str, **env: str) -> OpenCodeHarness:
            return OpenCodeHarness(
                HarnessConfig(cwd=tmp_path, title="t", state_dir=tmp_path / "state", endpoint=endpoint, env=env)
            )

        async def run() -> None:
            for endpoint in (peer.url, f"http://opencode:no@{host}"):
                with pytest.raises(UnavailableError, match="password"):
                    await make(endpoint).start()
            for harness in (make(f"http://opencode:pw@{host}"), make(host, OPENCODE_SERVER_PASSWORD="pw")):
                identity = await harness.start()
                assert identity.endpoint == peer.url, "without the secret"
                await harness.stop()
            with pytest.raises(InvalidError, match="endpoint"):
                await make("ftp://x").start()

        asyncio.run(run())


def test_an_old_server_is_refused(tmp_path: Path) -> None:
    with OpenCodePeer(version="1.0.220") as peer:
        config = HarnessConfig(cwd=tmp_path, title="t", state_dir=tmp_path / "state", endpoint=peer.url)

        async def run() -> None:
            with pytest.raises(UnavailableError, match=r"1\.0\.220.*too old") as caught:
                await OpenCodeHarness(config).start()
            assert "1.1.0" in caught.value.hint

        asyncio.run(run())


# --- making the conversation at most once -----------------------------------------------------------------------------


def test_a_lost_creation_is_found_by_its_title(make: Any, peer: OpenCodePeer) -> None:
    async def run() -> None:
        peer.lose("POST /session", store=True)
        harness = make(title="unique")
        async with Driven(harness, observe=False) as driven:
            assert peer.sessions[driven.thread]["title"] == "unique"
            assert await harness.open_thread() == driven.thread
        assert peer.count("POST /session") == 1

    asyncio.run(run())


@pytest.mark.parametrize("twins", [0, 2])
def test_a_lost_creation_that_is_not_found_stays_uncertain(make: Any, peer: OpenCodePeer, twins: int) -> None:
    async def run() -> None:
        harness = make(title="unique")
        await harness.start()
        peer.lose("POST /session", store=False)
        for _ in range(twins):
            peer.session("unique")
        for _ in range(2):
            with pytest.raises(UncertainError):
                await harness.open_thread()
        assert peer.count("POST /session") == (0 if twins else 1)
        await harness.stop()

    asyncio.run(run())


def test_a_session_with_our_title_is_ours_from_before(make: Any, peer: OpenCodePeer) -> None:
    thread = peer.session("unique")
    peer.session("unique and more")

    async def run() -> None:
        async with Driven(make(title="unique"), observe=False) as driven:
            assert driven.thread == thread
        assert peer.count("POST /session") == 0

    asyncio.run(run())


def test_a_refused_creation_and_a_missing_thread(make: Any, peer: OpenCodePeer) -> None:
    async def run() -> None:
        harness = make()
        await harness.start()
        peer.fail("POST /session", 500, "no token=abc")
        with pytest.raises(RefusedError, match=r"token=\[redacted\]"):
            await harness.open_thread()
        await harness.stop()
        other = make(thread="ses_gone")
        await other.start()
        with pytest.raises(MissingError):
            await other.open_thread()
        await other.stop()

    asyncio.run(run())


def test_an_unknown_model_is_refused_before_anything_is_made(make: Any, peer: OpenCodePeer) -> None:
    peer.providers = [{"id": "stub", "models": {"a": {}, "b/c": {}}}]

    async def run() -> None:
        for model in ("stub/nope", "other/a"):
            harness = make(model=model)
            await harness.start()
            with pytest.raises(InvalidError, match=f"no model {model}") as caught:
                await harness.open_thread()
            assert "stub/" in caught.value.hint
            await harness.stop()
        assert peer.sessions == {}
        for model in ("stub/a", "stub/b/c"):
            async with Driven(make(model=model, title=model), observe=False):
                pass

    asyncio.run(run())


# --- writes (H6) ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("store", "found"), [(True, Delivery.FOUND), (False, Delivery.UNKNOWN)])
def test_a_lost_prompt_is_uncertain_and_looked_up(make: Any, peer: OpenCodePeer, store: bool, found: Delivery) -> None:
    async def run() -> None:
        harness = make()
        async with Driven(harness, observe=False):
            peer.lose(r"POST .*/prompt_async", store=store)
            with pytest.raises(UncertainError):
                await harness.send("msg_a", "x")
            assert await harness.lookup("msg_a") is found, "the server that was asked lives and may still store it"
            assert await harness.lookup("msg_b") is Delivery.ABSENT, "never sent"
            peer.fail(r"GET .*/message.*", 500, times=9)
            assert await harness.lookup("msg_a") is Delivery.UNKNOWN
        assert peer.count(r"POST .*/prompt_async") == 1

    asyncio.run(run())


def test_a_lost_prompt_may_still_be_stored_by_a_server_that_was_only_left(make: Any, peer: OpenCodePeer) -> None:
    """A server that is not ours goes on when the harness ends; the harness that reaches it again knows that."""

    async def run() -> None:
        harness = make()
        async with Driven(harness, observe=False):
            peer.lose(r"POST .*/prompt_async", store=False)
            with pytest.raises(UncertainError):
                await harness.send("msg_a", "x")
            await harness.stop()
            await harness.start()
            assert await harness.lookup("msg_a") is Delivery.UNKNOWN

    asyncio.run(run())


def test_a_prompt_that_is_never_answered_is_uncertain(make: Any, peer: OpenCodePeer) -> None:
    async def run() -> None:
        harness = make()
        async with Driven(harness, observe=False):
            peer.stall(r"POST .*/prompt_async")
            harness.http.deadline = 0.3
            with pytest.raises(UncertainError):
                await harness.send("msg_a", "x")
            peer.close()

    asyncio.run(run())


def test_a_refused_prompt_is_not_ours(make: Any, peer: OpenCodePeer) -> None:
    async def run() -> None:
        async with Driven(make()) as driven:
            peer.fail(r"POST .*/prompt_async", 400, "bad model")
            with pytest.raises(RefusedError, match="bad model"):
                await driven.harness.send("msg_a", "x")
            # Should it appear all the same, it is a foreign turn.
            peer.put(driven.thread, assistant("b", "msg_a", completed=2, finish="stop"))
            await driven.until(lambda: driven.completion("msg_a") is not None)
            assert driven.payloads("started", "msg_a") == []
            assert driven.event_types("msg_a") == []
        harness = make()
        async with Driven(harness, observe=False):
            peer.close()
            with pytest.raises(RefusedError, match="not connected"):
                await harness.send("msg_b", "x")

    asyncio.run(run())


def test_what_is_sent(make: Any, peer: OpenCodePeer) -> None:
    async def run() -> None:
        async with Driven(make(model="stub/a/b"), observe=False) as driven:
            assert await driven.harness.send("msg_a", "hello", system="be brief") == "msg_a"
        (sent,) = [seen.body for seen in peer.seen if seen.path.endswith("/prompt_async")]
        assert sent == {
            "messageID": "msg_a",
            "parts": [{"type": "text", "text": "hello"}],
            "system": "be brief",
            "model": {"providerID": "stub", "modelID": "a/b"},
        }

    asyncio.run(run())


def test_steer_and_interrupt_need_an_open_turn(make: Any, peer: OpenCodePeer) -> None:
    async def run() -> None:
        async with Driven(make()) as driven:
            assert await driven.harness.steer("msg_a", "x") is SteerOutcome.NOT_STEERABLE
            await driven.harness.interrupt()
            assert peer.count("POST .*") == 1  # the creation
            peer.status(driven.thread, "busy")
            assert await driven.harness.steer("msg_a", "x") is SteerOutcome.SENT
            await driven.harness.interrupt()
            assert peer.count("POST .*/abort") == 1
            with pytest.raises(InvalidError):
                await driven.harness.steer("msg_b", " ")
            with pytest.raises(InvalidError):
                await driven.harness.answer("per_a", "perhaps")

    asyncio.run(run())


# --- observation ------------------------------------------------------------------------------------------------------


def test_a_turn(make: Any, peer: OpenCodePeer) -> None:
    answering(peer)

    async def run() -> None:
        async with Driven(make()) as driven:
            request = await driven.turn("hi")
            assert driven.payloads("output", request) == [{"text": "hi"}]
            assert driven.event_types(request) == [
                "turn_started",
                "text_delta",
                "item_completed",
                "usage_checkpoint",
                "turn_completed",
            ]

    asyncio.run(run())


def test_a_structured_answer(make: Any, peer: OpenCodePeer) -> None:
    async def run() -> None:
        async with Driven(make()) as driven:
            request = await driven.send("x")
            peer.put(driven.thread, assistant("b", request, completed=2, finish="stop", structured={"a": 1}))
            await driven.until(lambda: driven.completion(request) is not None)
            assert driven.payloads("output", request) == [{"value": {"a": 1}}]

    asyncio.run(run())


def test_an_empty_finish_is_no_end_but_an_idle_server_is_told(make: Any, peer: OpenCodePeer) -> None:
    async def run() -> None:
        async with Driven(make()) as driven:
            request = await driven.send("x")
            peer.status(driven.thread, "busy")
            peer.put(driven.thread, assistant("b", request, created=5, completed=6, finish=""))
            await driven.until(lambda: bool(driven.payloads("usage", request)))
            assert driven.stalled == []
            peer.status(driven.thread, "idle")
            await driven.until(lambda: request in driven.stalled)
            assert driven.completion(request) is None
            (note,) = driven.notes
            assert note.source == f"idle:{driven.thread}:{request}"
            assert note.evidence == {"status": "idle", "message_id": "b", "finish": None, "completed_at": 6}
            # What comes after all is still taken.
            peer.put(driven.thread, assistant("b", request, created=5, completed=7, finish="stop"))
            await driven.until(lambda: driven.completion(request) is not None)
            assert driven.event_types(request)[-1] == "turn_completed"
            assert driven.stalled == [request]

    asyncio.run(run())


def test_a_prompt_just_sent_is_not_stalled_by_an_idle_report_of_before(make: Any, peer: OpenCodePeer) -> None:
    async def run() -> None:
        async with Driven(make()) as driven:
            request = await driven.send("x")
            peer.status(driven.thread, "idle")
            later = await driven.send("y")
            peer.status(driven.thread, "idle")
            peer.put(driven.thread, assistant("z", later, created=9, completed=9, finish="stop"))
            await driven.until(lambda: driven.completion(later) is not None)
            assert driven.settled == [(request, later)]
            assert driven.stalled == []

    asyncio.run(run())


def test_an_error_before_the_first_model_call_is_told_with_its_words(make: Any, peer: OpenCodePeer) -> None:
    """OpenCode takes such a prompt, says the error in an event, and leaves the prompt without any message."""

    async def run() -> None:
        async with Driven(make()) as driven:
            await driven.until(lambda: bool(driven.batches))
            request = await driven.send("x")
            peer.status(driven.thread, "busy")
            error = {"name": "UnknownError", "data": {"message": "Model not found: x/y. key=abc"}}
            peer.emit("session.error", sessionID=driven.thread, error=error)
            peer.emit("session.error", sessionID=driven.thread, error={"data": {"message": "at <anonymous>"}})
            peer.status(driven.thread, "idle")
            await driven.until(lambda: request in driven.stalled)
            assert [(n.source.split(":")[0], n.turn) for n in driven.notes] == [
                ("idle", request),
                ("session_error", request),
            ]
            assert driven.notes[1].evidence["error"]["data"]["message"] == "Model not found: x/y. key=[redacted]"
            (event,) = [e for e in driven.events if e.type == "error"]
            assert (event.turn_id, event.message) == (request, "Model not found: x/y. key=[redacted]")
            assert driven.completion(request) is None

    asyncio.run(run())


def test_an_error_that_comes_before_the_prompt_is_acknowledged_is_of_that_prompt(make: Any, peer: OpenCodePeer) -> None:
    """OpenCode may say the error, and that it is idle, before it answers the request that sent the prompt."""

    def refuse(thread: str, request: str, text: str) -> None:
        looks = peer.count("GET /session/status")
        peer.emit("session.error", sessionID=thread, error={"name": "UnknownError", "data": {"message": "no model"}})
        peer.status(thread, "idle")
        peer.wait(lambda: peer.count("GET /session/status") > looks)  # the error was heard

    async def run() -> None:
        async with Driven(make()) as driven:
            await driven.until(lambda: peer.streams == 1 and bool(driven.batches))
            peer.answers = refuse
            request = await driven.send("x")
            await driven.until(lambda: request in driven.stalled)
            (event,) = [e for e in driven.events if e.type == "error"]
            assert (event.turn_id, event.message) == (request, "no model")
            assert driven.completion(request) is None

    asyncio.run(run())


def test_a_prompt_that_nobody_begins_is_not_waited_for_for_ever(
    make: Any, peer: OpenCodePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet, "UNREAD", 0.2)

    async def run() -> None:
        async with Driven(make()) as driven:
            request = await driven.send("x")
            await driven.until(lambda: request in driven.stalled)

    asyncio.run(run())


def test_a_pending_tool_keeps_the_turn_open(make: Any, peer: OpenCodePeer) -> None:
    async def run() -> None:
        async with Driven(make()) as driven:
            request = await driven.send("x")
            peer.put(
                driven.thread,
                assistant("a", request, created=5, completed=6, finish="tool-calls", tools=[tool("c", "running")]),
                assistant("b", request, created=7, completed=8, finish="stop"),
            )
            await driven.until(lambda: len(driven.payloads("usage", request)) == 2)
            assert driven.completion(request) is None
            done = assistant("a", request, created=5, completed=6, finish="tool-calls", tools=[tool("c", "completed")])
            peer.put(driven.thread, done)
            await driven.until(lambda: driven.completion(request) is not None)

    asyncio.run(run())


def test_a_changed_snapshot_after_completion_is_handed_on(make: Any, peer: OpenCodePeer) -> None:
    async def run() -> None:
        async with Driven(make()) as driven:
            request = await driven.send("x")
            peer.put(driven.thread, assistant("b", request, created=5, completed=6, finish="stop", texts=["one"]))
            await driven.until(lambda: driven.completion(request) is not None)
            peer.put(driven.thread, assistant("b", request, created=5, completed=6, finish="stop", texts=["two"]))
            await driven.until(lambda: len(driven.payloads("output", request)) == 2)
            assert driven.event_types(request).count("turn_completed") == 1

    asyncio.run(run())


def test_pieces_before_their_message_is_known(make: Any, peer: OpenCodePeer) -> None:
    async def run() -> None:
        async with Driven(make()) as driven:
            await driven.until(lambda: peer.streams == 1)  # pieces are told once, to those who listen
            request = await driven.send("x")
            peer.delta(driven.thread, "b", "p", "early ")
            peer.put(driven.thread, assistant("b", request, created=5))
            peer.delta(driven.thread, "b", "p", "late")
            await driven.until(lambda: driven.text_of(request) == "early late")
            assert driven.event_types(request)[0] == "turn_started"

    asyncio.run(run())


def test_retries_are_shown_without_secrets_or_escapes(make: Any, peer: OpenCodePeer) -> None:
    async def run() -> None:
        async with Driven(make()) as driven:
            await driven.until(lambda: peer.streams == 1)
            await driven.until(lambda: bool(driven.batches))
            peer.status(driven.thread, "retry", attempt=1, message="key=abc \x1b[31mbad")
            peer.status(driven.thread, "busy")
            await driven.until(lambda: len(driven.events) == 2)
            assert [(e.status, e.message) for e in driven.events] == [("retry", "key=[redacted] bad"), ("busy", None)]

    asyncio.run(run())


def test_subagents_of_subagents_and_those_cut_off(make: Any, peer: OpenCodePeer) -> None:
    async def run() -> None:
        async with Driven(make()) as driven:
            request = await driven.send("x")
            child = peer.session("child", parent=driven.thread, version="1.0.0")
            grand = peer.session("grand", parent=child)
            inner = [tool("t", "completed", kind="task", child=grand, title="inner")]
            peer.put(grand, assistant("g", "msg_g", completed=2, finish="stop", texts=["g"]), tell=False)
            peer.put(child, assistant("k", "msg_k", completed=2, finish="stop", tools=inner), tell=False)
            outer = [tool("t", "completed", kind="task", child=child, title="outer")]
            peer.put(
                driven.thread, assistant("a", request, created=5, completed=6, finish="stop", tools=outer, texts=["x"])
            )
            await driven.until(lambda: driven.completion(request) is not None)
            children = {c.thread: c for batch in driven.batches for c in batch.children}
            assert (children[child].parent_turn, children[child].title) == (request, "outer")
            assert (children[grand].parent_thread, children[grand].parent_turn) == (child, "msg_k")
            assert driven.payloads("output", thread=grand) == [{"text": "g"}]
            (usage,) = driven.payloads("usage", thread=child)
            assert usage["session_version"] == "1.0.0"
            # One whose tool call never named it is still in the server's list.
            lost = peer.session("lost", parent=driven.thread)
            peer.put(lost, assistant("l", "msg_l", completed=2, finish="stop"), tell=False)
            batch = await driven.harness.recover()
            assert {c.thread: c.parent_turn for c in batch.children} == {child: request, grand: "msg_k", lost: None}
            assert keys(batch) == keys(await driven.harness.recover())

    asyncio.run(run())


# --- breaking ---------------------------------------------------------------------------------------------------------


def test_a_stream_that_ends_is_opened_again_and_all_is_read(make: Any, peer: OpenCodePeer) -> None:
    async def run() -> None:
        async with Driven(make()) as driven:
            request = await driven.send("x")
            await driven.until(lambda: peer.streams == 1)
            done = assistant("b", request, created=5, completed=6, finish="stop", texts=["missed"])
            peer.put(driven.thread, done, tell=False)
            peer.end_streams()
            await driven.until(lambda: driven.completion(request) is not None)
            assert driven.text_of(request) == "missed"
            assert not driven.ended
            assert driven.notes == []

    asyncio.run(run())


def test_a_dead_server_ends_the_observation_with_evidence(make: Any, peer: OpenCodePeer) -> None:
    async def run() -> None:
        async with Driven(make(model="stub/m")) as driven:
            request = await driven.send("x")
            peer.put(driven.thread, assistant("b", request, created=5))
            await driven.until(lambda: bool(driven.payloads("started", request)))
            peer.close()
            await driven.until(lambda: driven.ended)
            (note,) = driven.notes
            assert (note.turn, note.thread) == (request, driven.thread)
            assert note.evidence["terminal_error_class"] in {"stream_eof", "read_error"}
            assert note.evidence["model"] == "stub/m"
            assert note.evidence["last_event_type"] == "message.updated"
            assert note.evidence["duration_ms"] == note.evidence["stream_ended_at"] - note.evidence["stream_started_at"]
            (event,) = [e for e in driven.events if e.type == "error"]
            assert (event.code, event.turn_id, event.evidence) == ("opencode_disconnected", request, note.evidence)
            assert event.message is not None
            assert "before any output" in event.message
            assert driven.completion(request) is None

    asyncio.run(run())


def test_the_stream_that_broke_off_is_the_evidence_though_a_dying_server_answered_again(
    make: Any, peer: OpenCodePeer
) -> None:
    async def run() -> None:
        async with Driven(make()) as driven:
            await driven.send("x")
            await asyncio.to_thread(peer.wait, lambda: peer.streams == 1)
            peer.fail(r"GET /event.*", 503, times=1000)
            peer.end_streams()
            await asyncio.to_thread(peer.wait, lambda: peer.count(r"GET /event.*") >= 3)
            peer.close()
            await driven.until(lambda: driven.ended)
            (note,) = driven.notes
            assert note.evidence["terminal_error_class"] == "stream_eof"
            assert note.evidence["duration_ms"] == note.evidence["stream_ended_at"] - note.evidence["stream_started_at"]

    asyncio.run(run())


def test_a_requested_end_says_nothing(make: Any, peer: OpenCodePeer) -> None:
    async def run() -> None:
        async with Driven(make()) as driven:
            await driven.send("x")
            await driven.until(lambda: peer.streams == 1)
        assert driven.ended
        assert (driven.notes, driven.events) == ([], [])
        await asyncio.to_thread(peer.wait, lambda: peer.streams == 0)

    asyncio.run(run())


def test_a_stream_that_is_refused_is_tried_again(make: Any, peer: OpenCodePeer) -> None:
    answering(peer)

    async def run() -> None:
        peer.fail("GET /event", 503, times=2)
        async with Driven(make()) as driven:
            # The turn does not need the stream; it is read all the same.
            request = await driven.turn("hi")
            assert driven.completion(request)["status"] == "completed"
            await asyncio.to_thread(peer.wait, lambda: peer.streams == 1)
        assert peer.count("GET /event") == 3

    asyncio.run(run())


def test_a_stream_that_is_never_answered_is_tried_again(make: Any, peer: OpenCodePeer) -> None:
    answering(peer)

    async def run() -> None:
        peer.stall("GET /event")
        harness = make()
        await harness.start()
        harness.http.deadline = 0.5
        async with Driven(harness) as driven:
            await driven.turn("hi")
            peer.close()

    asyncio.run(run())


@pytest.mark.parametrize("data", [b"data: {\n\n", b"data: 5\n\n", b"\xff\xfe\n\n", b"data: \xff\n\n"])
def test_an_event_that_cannot_be_read_is_a_reason_to_look(make: Any, peer: OpenCodePeer, data: bytes) -> None:
    async def run() -> None:
        async with Driven(make()) as driven:
            request = await driven.send("x")
            await driven.until(lambda: peer.streams == 1)
            peer.put(driven.thread, assistant("b", request, created=5, completed=6, finish="stop"), tell=False)
            peer.send(data)
            if data == b"\xff\xfe\n\n":  # a field of no name: not ours to know; the next event tells
                peer.emit("session.idle", sessionID=driven.thread)
            await driven.until(lambda: driven.completion(request) is not None)

    asyncio.run(run())


@pytest.mark.parametrize(
    "pattern", [LIST, r"GET /session/ses_\d+", "GET /session/ses_child/message", "GET /permission"]
)
def test_reads_that_fail_lose_nothing(make: Any, peer: OpenCodePeer, pattern: str) -> None:
    async def run() -> None:
        async with Driven(make()) as driven:
            request = await driven.send("x")
            await driven.until(lambda: peer.streams == 1)
            child = peer.session("child", name="ses_child", parent=driven.thread)
            peer.put(child, assistant("k", "msg_k", completed=2, finish="stop"), tell=False)
            peer.fail(pattern, 500, times=3)
            outer = [tool("t", "completed", kind="task", child=child)]
            peer.put(driven.thread, assistant("a", request, created=5, completed=6, finish="stop", tools=outer))
            peer.ask(driven.thread, "per_a")
            await driven.until(lambda: driven.completion(request) is not None)
            assert driven.payloads("started", request) == [{}]
            assert len(driven.payloads("usage", thread=child)) == 1
            assert driven.event_types(request).count("turn_started") == 1

    asyncio.run(run())


def test_a_list_that_cannot_be_read_ends_the_observation(
    make: Any, peer: OpenCodePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "RETRY", 0.01)

    async def run() -> None:
        async with Driven(make()) as driven:
            await driven.until(lambda: bool(driven.batches))
            peer.fail(LIST, 500, "disk full", times=99)
            request = await driven.send("x")
            await driven.until(lambda: driven.ended)
            (note,) = driven.notes
            assert (note.turn, note.evidence["terminal_error_class"]) == (request, "response_error_status")
            assert "disk full" in note.evidence["terminal_error_message"]
            assert peer.streams <= 1
        assert peer.count(LIST) <= 2 + watch.READ_FAILURES

    asyncio.run(run())


# --- permissions ------------------------------------------------------------------------------------------------------


def test_asks_are_told_once_and_only_ours(make: Any, peer: OpenCodePeer) -> None:
    async def run() -> None:
        async with Driven(make(permissions="ask")) as driven:
            request = await driven.send("x")
            waits = assistant("b", request, created=5, tools=[tool("c", "running")])
            peer.put(driven.thread, waits)
            stranger = peer.session("stranger")
            peer.ask(stranger, "per_other")
            peer.ask(driven.thread, "per_a", message="b", call="c", metadata={"command": "rm  -r\n/"})
            await driven.until(lambda: bool(driven.asks))
            (ask,) = driven.asks
            assert (ask.id, ask.turn, ask.action, ask.detail) == ("per_a", request, "bash", "rm -r /")
            peer.end_streams()
            await driven.until(lambda: peer.count("GET /event") == 2)
            await driven.harness.answer("per_a", "reject")
            await driven.until(lambda: "permission_settled" in driven.event_types(request))
            assert len(driven.asks) == 1
        (body,) = [seen.body for seen in peer.seen if seen.path.endswith("/reply")]
        assert body["reply"] == "reject"
        assert body["message"], "a rejection without a message would end the turn without an outcome"

    asyncio.run(run())


@pytest.mark.parametrize(
    "left",
    [
        assistant("b", "msg_r", created=5, completed=6, tools=[tool("c", "running")]),
        assistant("b", "msg_r", created=5, tools=[tool("c", "error")]),
    ],
)
def test_stale_asks_are_not_told(make: Any, peer: OpenCodePeer, left: Any) -> None:
    thread = peer.session("peer")
    peer.put(thread, user("msg_r"), left)
    peer.ask(thread, "per_stale", message="b", call="c")
    peer.ask(thread, "per_live")

    async def run() -> None:
        async with Driven(make(permissions="ask", thread=thread)) as driven:
            await driven.until(lambda: bool(driven.asks))
            assert [ask.id for ask in driven.asks] == ["per_live"]

    asyncio.run(run())


@pytest.mark.parametrize(("policy", "reply"), [("deny", "reject"), ("allow", "once")])
def test_without_a_person_asks_are_answered_by_policy(make: Any, peer: OpenCodePeer, policy: str, reply: str) -> None:
    async def run() -> None:
        async with Driven(make(permissions=policy)) as driven:
            child = peer.session("child", parent=driven.thread)
            task = tool("c", "running", kind="task", child=child)
            peer.put(driven.thread, assistant("b", "msg_x", created=5, tools=[task]))
            peer.ask(child, "per_child")
            await asyncio.to_thread(peer.wait, lambda: peer.count("POST /permission/per_child/reply") == 1)
            assert driven.asks == []
            (body,) = [seen.body for seen in peer.seen if seen.path.endswith("/reply")]
            assert body["reply"] == reply

    asyncio.run(run())


def test_a_question_that_comes_before_its_subagent_is_known_is_told(make: Any, peer: OpenCodePeer) -> None:
    async def run() -> None:
        async with Driven(make(permissions="ask")) as driven:
            child = peer.session("child", parent=driven.thread)
            looks = peer.count("GET /permission")
            peer.ask(child, "per_child")
            await asyncio.to_thread(peer.wait, lambda: peer.count("GET /permission") > looks)
            task = tool("c", "running", kind="task", child=child)
            peer.put(driven.thread, assistant("b", "msg_x", created=5, tools=[task]))
            await driven.until(lambda: [(ask.id, ask.thread) for ask in driven.asks] == [("per_child", child)])
            assert peer.count("GET /event") == 1, "not only when the silent stream was opened anew"

    asyncio.run(run())


def test_rules_of_a_resumed_thread_are_ours(make: Any, peer: OpenCodePeer) -> None:
    thread = peer.session("peer", directory="/elsewhere")
    peer.agents = [{"name": "general", "mode": "subagent", "permission": [rule("*", "allow")]}]

    async def run() -> None:
        async with Driven(make(permissions="ask", thread=thread)) as driven:
            assert driven.thread == thread
        (patch,) = [seen for seen in peer.seen if seen.method == "PATCH"]
        assert patch.query["directory"] == "/elsewhere"
        assert patch.body["permission"][0] == rule("*", "ask")
        assert {"permission": "task", "pattern": "general", "action": "deny"} in patch.body["permission"]

    asyncio.run(run())


def rule(permission: str, action: str) -> dict[str, str]:
    return {"permission": permission, "pattern": "*", "action": action}


# --- long conversations -----------------------------------------------------------------------------------------------


def long_list(peer: OpenCodePeer, turns: int) -> str:
    thread = peer.session("long")
    messages: list[Any] = []
    for number in range(turns):
        name = f"msg_{number:05d}"
        messages += [
            user(name, created=number * 2),
            assistant(f"{name}_a", name, created=number * 2 + 1, completed=1, finish="stop", texts=["x" * 500]),
        ]
    peer.put(thread, *messages, tell=False)
    return thread


def test_a_long_conversation_is_read_once_and_then_only_its_end(make: Any, peer: OpenCodePeer) -> None:
    thread = long_list(peer, 2500)

    async def run() -> None:
        harness = make(thread=thread)
        async with Driven(harness) as driven:
            await driven.until(lambda: len(driven.payloads("completed")) == 2500, 60)
            whole, pages = harness.http.bytes_read, peer.count(LIST)
            assert pages == 50
            for number in range(40):
                request = await driven.send("x")
                peer.put(driven.thread, assistant(f"new_{number}", request, created=10_000 + number))
                await driven.until(lambda request=request: bool(driven.payloads("started", request)))  # type: ignore[misc]
            assert harness.http.bytes_read - whole < whole / 10
            assert peer.count(LIST) - pages < 40 * 4
            # An old message that changes is read by its name, not by going back to it.
            before = peer.count(LIST)
            peer.put(driven.thread, assistant("msg_00001_a", "msg_00001", created=3, completed=9, finish="stop"))
            await driven.until(lambda: len(driven.payloads("usage", "msg_00001")) == 2)
            assert peer.count(LIST) - before <= 2

    asyncio.run(run())


@pytest.mark.parametrize("turns", [49, 50, 51, 125])
def test_versions_without_cursors_are_read_whole(make: Any, peer: OpenCodePeer, turns: int) -> None:
    peer.paging = False
    thread = long_list(peer, turns)

    async def run() -> None:
        async with Driven(make(thread=thread), observe=False) as driven:
            batch = await driven.harness.recover()
            assert len({r.turn for r in batch.receipts if r.kind == "completed"}) == turns

    asyncio.run(run())


@pytest.mark.parametrize("paging", [True, False])
def test_more_than_a_page_that_no_event_told_is_caught_up(make: Any, peer: OpenCodePeer, paging: bool) -> None:
    peer.paging = paging
    thread = long_list(peer, 3)

    async def run() -> None:
        async with Driven(make(thread=thread)) as driven:
            await driven.until(lambda: len(driven.payloads("completed")) == 3)
            for number in range(150):
                name = f"msg_9{number:04d}"
                done = assistant(f"{name}_a", name, created=1000 + number, completed=1, finish="stop")
                peer.put(thread, done, tell=False)
            peer.emit("session.idle", sessionID=thread)
            await driven.until(lambda: len(driven.payloads("completed")) == 153)

    asyncio.run(run())
