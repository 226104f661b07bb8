"""The Codex harness against a scripted app-server: what the real one cannot be made to do."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.harness.codex_driving import CodexDriven
from turnlog.errors import MissingError, RefusedError, UnavailableError, UncertainError
from turnlog.harness import Delivery, HarnessConfig, SteerOutcome, _process
from turnlog.harness.codex import connection as connection_module
from turnlog.harness.codex import engine as engine_module
from turnlog.harness.codex import live, pipe, requests, watch
from turnlog.harness.codex.engine import Record
from turnlog.harness.codex.live import CodexHarness
from turnlog.process import ProcessIdentity, boot_id, identify
from turnlog.testing.codex_peer import (
    THREAD,
    answer_item,
    completed,
    peer_program,
    received,
    say,
    started,
    turn,
    usage,
    user_item,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(150)]

Make = Callable[..., CodexHarness]
REPLY = {"reply": {"turn": turn("t1", "inProgress")}}
SECRET = "sk-abcdefgh12345678ijkl"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Peers:
    """Makes harnesses whose Codex plays a scenario."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.work = root / "work"
        self.work.mkdir()
        self.program = root / "codex"

    def __call__(self, scenario: dict[str, Any] | None = None, **more: Any) -> CodexHarness:
        self.program = peer_program(self.root, scenario or {})
        config: dict[str, Any] = {
            "cwd": self.work,
            "title": "a title",
            "state_dir": self.root / "state",
            "permissions": "ask",
            "env": {"TURNLOG_CODEX_BIN": str(self.program)},
        }
        return CodexHarness(HarnessConfig(**{**config, **more}))

    def asked(self, method: str) -> list[dict[str, Any]]:
        return [message.get("params", {}) for message in received(self.program) if message.get("method") == method]


@pytest.fixture
def peers(tmp_path: Path) -> Peers:
    return Peers(tmp_path)


def on(**scripts: Any) -> dict[str, Any]:
    """Return a scenario; ``turn_start`` stands for ``turn/start``, ``next`` for the test's own ``peer/next``."""
    names = {"turn_start": "turn/start", "next": "peer/next", "thread_start": "thread/start"}
    return {"on": {names.get(name, name.replace("__", "/")): script for name, script in scripts.items()}}


async def go(driven: CodexDriven) -> None:
    """Let the peer play its next part."""
    await driven.harness.connection.request("peer/next", {})


# --- which request began which turn --------------------------------------------------------------------------------


async def test_the_end_comes_before_the_answer(peers: Peers) -> None:
    early = [started("t1"), completed("t1", text="done"), completed("t1", text="done"), REPLY]
    async with CodexDriven(peers(on(turn_start=[early]))) as driven:
        assert await driven.turn("go") == "t1"
        assert [r.kind for r in driven.receipts][:3] == ["started", "output", "completed"]
        await driven.until(lambda: "turn_completed" in driven.event_types("t1"))
        assert driven.event_types("t1") == ["turn_started", "turn_completed"]
        assert driven.accepted == [(driven.requests["t1"], "t1")]


async def test_an_answer_that_comes_too_late(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "SEND_DEADLINE", 0.05)
    late = [{"reply_to": "turn/start", "result": {"turn": turn("t1", "inProgress")}}, {"reply": {}}]
    scenario = on(turn_start=[[started("t1"), completed("t1", text="done")]], next=[late])
    async with CodexDriven(peers(scenario)) as driven:
        with pytest.raises(UncertainError):
            await driven.harness.send("req_1", "go")
        assert await driven.harness.lookup("req_1") is Delivery.UNKNOWN
        await driven.until(lambda: driven.completion("t1") is not None)
        assert driven.event_types("t1") == [], "nobody knows yet whose turn it is"
        await go(driven)
        await driven.until(lambda: bool(driven.accepted))
        assert driven.accepted == [("req_1", "t1")]
        assert driven.event_types("t1") == ["turn_started", "turn_completed"]
        assert await driven.harness.lookup("req_1") is Delivery.FOUND
        assert len(peers.asked("turn/start")) == 1, "an uncertain request is never sent again"


async def test_an_answer_that_never_comes_and_the_user_message_that_tells(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SEND_DEADLINE", 0.05)
    told = [started("t1"), say("item/completed", turnId="t1", item=user_item("req_1")), {"reply": {}}]
    async with CodexDriven(peers(on(turn_start=[[]], next=[told]))) as driven:
        with pytest.raises(UncertainError):
            await driven.harness.send("req_1", "go")
        await go(driven)
        await driven.until(lambda: driven.accepted == [("req_1", "t1")])
        assert driven.event_types("t1") == ["turn_started"]


async def test_a_request_that_is_told_while_the_history_is_read_is_not_absent(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SEND_DEADLINE", 0.05)
    page = [say("item/completed", turnId="t1", item=user_item("req_1")), {"reply": {"data": [], "nextCursor": None}}]
    async with CodexDriven(peers(on(turn_start=[[started("t1")]], thread__turns__list=[page]))) as driven:
        with pytest.raises(UncertainError):
            await driven.harness.send("req_1", "go")
        assert await driven.harness.lookup("req_1") is Delivery.FOUND
        assert await driven.harness.lookup("req_2") is Delivery.ABSENT


@pytest.mark.parametrize("view", ["summary", "notLoaded"])
async def test_a_turn_that_is_told_without_its_words_may_hold_a_request(peers: Peers, view: str) -> None:
    scenario = {"threads": {THREAD: [turn("t1", itemsView=view)]}}
    async with CodexDriven(peers(scenario, thread=THREAD)) as driven:
        assert await driven.harness.lookup("req_1") is Delivery.UNKNOWN


async def test_a_turn_that_was_there_before_is_not_ours(peers: Peers) -> None:
    scenario = on(next=[[started("t1"), {"reply": {}}]], turn_start=[[REPLY, completed("t1", text="x")]])
    async with CodexDriven(peers(scenario)) as driven:
        await go(driven)
        assert await driven.harness.send("req_1", "go") is None
        await driven.until(lambda: driven.completion("t1") is not None)
        assert driven.settled == [("req_1", "t1")]
        assert (driven.accepted, driven.event_types("t1")) == ([], [])
        assert driven.payloads("started") == [{}]
        (note,) = driven.notes
        assert (note.source, note.evidence) == ("absorbed:req_1", {"by": "t1"})


async def test_a_refused_request_is_certainly_not_taken(peers: Peers) -> None:
    no = [{"error": {"code": -32600, "message": f"no, with {SECRET}"}}]
    async with CodexDriven(peers(on(turn_start=[no]))) as driven:
        with pytest.raises(RefusedError) as caught:
            await driven.harness.send("req_1", "go")
        assert SECRET not in str(caught.value)
        assert await driven.harness.lookup("req_1") is Delivery.ABSENT


async def test_usage_before_the_start_and_of_the_past(peers: Peers) -> None:
    begin = [say("thread/tokenUsage/updated", turnId="t1", tokenUsage=usage(100)), started("t1"), REPLY]
    scenario = on(turn_start=[[*begin, completed("t1")]])
    scenario["threads"] = {THREAD: [turn("t0")]}
    scenario["on"]["thread/resume"] = [
        [
            {"reply": {"thread": {"id": THREAD}}},
            say("thread/tokenUsage/updated", turnId="t0", tokenUsage=usage(50)),
        ]
    ]
    async with CodexDriven(peers(scenario, thread=THREAD)) as driven:
        await driven.turn("go")
        assert driven.payloads("usage", "t0") == [], "a repetition is no news"
        assert driven.payloads("usage", "t1") == [usage(100)]
        assert [r.kind for r in driven.receipts if r.turn == "t1"] == ["started", "usage", "completed"]


# --- what the history tells -----------------------------------------------------------------------------------------


async def test_snapshots(peers: Peers) -> None:
    cut = {"completedAt": None, "durationMs": None}
    scenario = {
        "threads": {
            THREAD: [
                turn("t1", text="one", client="req_1"),
                turn("t2", "interrupted", client="req_2", **cut),
                turn("t3", "interrupted", client="stranger", **cut),
                turn("t4", "interrupted", client="stranger"),
                turn("t5", "inProgress", client="req_5"),
                turn("t6", "newWord", client="stranger"),
                turn("t7", "failed", error={"message": f"key {SECRET}"}),
            ]
        }
    }
    own = frozenset({"req_1", "req_2", "req_5", "req_6"})
    async with CodexDriven(peers(scenario, thread=THREAD, own_requests=own)) as driven:
        await driven.until(lambda: driven.completion("t7") is not None)
        ends = {name: (driven.completion(f"t{name}") or {}).get("status") for name in range(1, 8)}
        assert ends == {1: "completed", 2: "interrupted", 3: None, 4: "interrupted", 5: None, 6: None, 7: "failed"}
        assert driven.completion("t2")["basis"] == "process_ended"
        assert SECRET not in str(driven.completion("t7"))
        assert {r.turn for r in driven.receipts if r.kind == "started"} == {"t1", "t2", "t5"}
        assert driven.accepted == [("req_1", "t1"), ("req_2", "t2"), ("req_5", "t5")]
        assert driven.events == []
        assert await driven.harness.lookup("req_1") is Delivery.FOUND
        assert await driven.harness.lookup("req_6") is Delivery.ABSENT


async def test_a_page_that_is_too_long_is_read_in_smaller_ones(peers: Peers) -> None:
    pages = [{"data": [turn("t1")], "nextCursor": "c"}, {"data": [turn("t2")], "nextCursor": None}]
    scenario = on(thread__turns__list=[[{"long_reply": (64 << 20) + 100}], *([{"reply": page}] for page in pages)])
    async with CodexDriven(peers(scenario, thread=THREAD)) as driven:
        await driven.until(lambda: driven.completion("t2") is not None)
        assert driven.completion("t1") is not None
        sizes = [(params["limit"], params.get("cursor")) for params in peers.asked("thread/turns/list")]
        assert sizes == [(20, None), (1, None), (2, "c")]


async def test_a_history_without_pages(peers: Peers) -> None:
    scenario = on(
        thread__turns__list=[[{"error": {"code": -32601, "message": "unknown method"}}]],
        thread__read=[[{"reply": {"thread": {"id": THREAD, "turns": [turn("t1", text="old")]}}}]],
    )
    async with CodexDriven(peers(scenario, thread=THREAD)) as driven:
        await driven.until(lambda: driven.payloads("output") == [{"text": "old"}])


# --- the conversation -----------------------------------------------------------------------------------------------


async def test_a_lost_answer_to_thread_start_is_found_among_what_the_engine_has_open(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnlog.harness.codex.threads.START_DEADLINE", 0.05)
    async with CodexDriven(peers(on(thread_start=[[]]))) as driven:
        assert driven.thread == THREAD
    async with CodexDriven(peers({})) as second:
        assert second.thread == THREAD
        assert peers.asked("thread/resume")[0]["threadId"] == THREAD


async def test_when_it_cannot_be_found_nothing_is_made_twice(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnlog.harness.codex.threads.START_DEADLINE", 0.05)
    loaded: list[list[dict[str, Any]]] = [[{"reply": {"data": names}}] for names in (["A", "B"], ["A", "B"], ["A"])]
    harness = peers(on(thread_start=[[]], thread__loaded__list=loaded))
    await harness.start()
    for _ in range(2):
        with pytest.raises(UncertainError):
            await harness.open_thread()
    assert await harness.open_thread() == "A"
    assert len(peers.asked("thread/start")) == 1
    await harness.stop()


async def test_another_conversation_than_asked_for_is_refused(peers: Peers) -> None:
    harness = peers(on(thread__resume=[[{"reply": {"thread": {"id": "other"}}}]]), thread="wanted")
    await harness.start()
    with pytest.raises(UnavailableError, match="asked to resume wanted and opened other"):
        await harness.open_thread()
    await harness.stop()


async def test_a_lost_conversation_says_so(peers: Peers) -> None:
    no = [{"error": {"code": -32600, "message": "no rollout found for thread id wanted"}}]
    harness = peers(on(thread__resume=[no]), thread="wanted")
    await harness.start()
    with pytest.raises(MissingError):
        await harness.open_thread()
    await harness.stop()


async def test_what_the_policies_ask_for(peers: Peers) -> None:
    wanted = {"ask": ("untrusted", "read-only"), "deny": ("untrusted", "read-only")}
    wanted["allow"] = ("never", "danger-full-access")
    for policy, (approval, sandbox) in wanted.items():
        async with CodexDriven(peers({}, permissions=policy, model="m", state_dir=peers.root / policy)):
            pass
        params = peers.asked("thread/start")[-1]
        assert (params["approvalPolicy"], params["sandbox"], params["approvalsReviewer"]) == (approval, sandbox, "user")
        assert (params["cwd"], params["model"]) == (str(peers.work), "m")
    assert peers.asked("initialize")[0]["clientInfo"]["name"] == "turnlog"


# --- what we do not understand --------------------------------------------------------------------------------------


async def test_unknown_words_are_kept_counted_and_bounded(peers: Peers) -> None:
    strange = [
        say("turn/sparkled", glitter=SECRET),
        {"raw": "thread 'main' panicked"},
        {"raw": '"just a string"'},
        {"ask": 7, "method": "item/tool/call", "params": {"threadId": THREAD}},
        *(say(f"new/{number}") for number in range(100)),
        say("turn/sparkled", glitter="again"),
        {"reply": {}},
    ]
    async with CodexDriven(peers(on(next=[strange, [{"exit": 3}]]))) as driven:
        await go(driven)
        await driven.until(lambda: len(driven.notes) >= 50)
        assert len(driven.notes) == 50
        sources = [note.source for note in driven.notes]
        assert "unknown:codex:turn/sparkled" in sources
        assert any(note.evidence.get("head") == "thread 'main' panicked" for note in driven.notes)
        assert "unknown:codex:item/tool/call" in sources
        assert SECRET not in str(driven.notes)
        with pytest.raises(UncertainError):
            await go(driven)
        await driven.until(lambda: driven.ended)
        (answer,) = [m for m in received(peers.program) if m.get("id") == 7]
        assert answer["error"]["code"] == -32601
        last = driven.notes[-1].evidence
        assert last["not_understood"]["turn/sparkled"] == 2
        assert last["exit_code"] == 3


async def test_a_line_of_fifty_megabytes_is_read_and_a_longer_one_is_not_the_end(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "GRACE", 0.05)
    scenario = on(
        turn_start=[[REPLY, started("t1"), {"long": 50 << 20}, {"long": (64 << 20) + 1}]],
        thread__read=[[{"reply": {"thread": {"id": THREAD, "status": {"type": "idle"}}}}]],
    )
    scenario["threads"] = {THREAD: [turn("t1", text="found")]}
    async with CodexDriven(peers(scenario)) as driven:
        # The line that was lost may have been the end of the turn, so it is looked up.
        assert await driven.turn("go") == "t1"
        assert driven.payloads("output", "t1") == [{"text": "found"}]
        assert driven.event_types("t1") == ["turn_started", "turn_completed"]
        kinds = [note.evidence.get("kind") for note in driven.notes]
        assert kinds == [None, "line_too_long"]
        assert not await driven.harness.busy()


async def test_a_flood_of_complaints_blocks_nothing(peers: Peers) -> None:
    async with CodexDriven(peers(on(turn_start=[[{"flood": 40 << 20}, REPLY, started("t1"), completed("t1")]]))) as d:
        assert await d.turn("go") == "t1"
    logs = list((peers.root / "state").glob("*.log*"))
    assert len(logs) == 2
    assert all(log.stat().st_size <= pipe.LOG_LIMIT for log in logs)
    assert all(log.stat().st_mode & 0o777 == 0o600 for log in logs)


# --- the end of a turn ----------------------------------------------------------------------------------------------


async def test_idle_without_an_end_stalls_and_completes_nothing(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "GRACE", 0.05)
    idle = say("thread/status/changed", status={"type": "idle"})
    after = {"reply": {"turn": turn("t2", "inProgress")}}
    scenario = on(turn_start=[[REPLY, started("t1"), idle], [after, started("t2"), completed("t2")]])
    scenario["threads"] = {THREAD: [turn("t1", "inProgress")]}
    async with CodexDriven(peers(scenario)) as driven:
        await driven.send("go")
        await driven.until(lambda: bool(driven.stalled))
        assert driven.stalled == [driven.requests["t1"], "t1"]
        assert driven.completion("t1") is None
        assert [note.source for note in driven.notes] == [f"idle:{THREAD}:t1"]
        await driven.turn("next")
        assert driven.stalled == [driven.requests["t1"], "t1"]


async def test_silence_is_asked_about(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SAFETY", 0.05)
    status = [[{"reply": {"thread": {"status": {"type": word}}}}] for word in ("active", "idle")]
    scenario = on(turn_start=[[REPLY, started("t1")]], thread__read=status)
    scenario["threads"] = {THREAD: [turn("t1", text="missed")]}
    async with CodexDriven(peers(scenario)) as driven:
        await driven.turn("go")
        assert driven.payloads("output", "t1") == [{"text": "missed"}]


async def test_an_ignored_interrupt_is_sent_once(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "INTERRUPT_DEADLINE", 0.05)
    scenario = on(turn_start=[[REPLY, started("t1")]], turn__interrupt=[[]])
    async with CodexDriven(peers(scenario)) as driven:
        await driven.send("go")
        with pytest.raises(UncertainError):
            await driven.harness.interrupt()
        await driven.harness.interrupt()
        assert len(peers.asked("turn/interrupt")) == 1
        assert driven.completion("t1") is None


async def test_a_promised_turn_that_never_starts_is_neither_steered_nor_interrupted(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "START_WAIT", 0.05)
    async with CodexDriven(peers(on(turn_start=[[REPLY]]))) as driven:
        await driven.send("go")
        assert await driven.harness.steer("req_s", "more") is SteerOutcome.NOT_STEERABLE
        with pytest.raises(UnavailableError):
            await driven.harness.interrupt()
        assert peers.asked("turn/steer") == peers.asked("turn/interrupt") == []


@pytest.mark.parametrize("message", ["no active turn to steer", "expected active turn id `a` but found `b`"])
async def test_a_refused_steer_is_not_steerable(peers: Peers, message: str) -> None:
    scenario = on(turn_start=[[REPLY, started("t1")]], turn__steer=[[{"error": {"code": -32600, "message": message}}]])
    async with CodexDriven(peers(scenario)) as driven:
        await driven.send("go")
        assert await driven.harness.steer("req_s", "more") is SteerOutcome.NOT_STEERABLE
        (params,) = peers.asked("turn/steer")
        assert (params["expectedTurnId"], params["clientUserMessageId"]) == ("t1", "req_s")


async def test_the_answer_is_the_last_message_that_is_one(peers: Peers) -> None:
    items = [answer_item("first"), answer_item("final", "final_answer"), answer_item("aside", "commentary")]
    heard = [say("item/completed", turnId="t1", item=item) for item in items]
    async with CodexDriven(peers(on(turn_start=[[REPLY, started("t1"), *heard, completed("t1")]]))) as driven:
        await driven.turn("go")
        assert driven.payloads("output", "t1") == [{"text": "final"}]


# --- subagents ------------------------------------------------------------------------------------------------------


async def test_subagents_are_linked_by_the_turn_they_work_for(peers: Peers) -> None:
    play = [
        REPLY,
        started("t1"),
        started("c1", "C", rootTurnId="t1"),
        say("thread/tokenUsage/updated", "C", turnId="c1", tokenUsage=usage(10)),
        started("x1", "X", rootTurnId="nobody"),
        say("thread/tokenUsage/updated", "X", turnId="x1", tokenUsage=usage(99)),
        completed("t1"),
        completed("x1", thread="X"),
    ]
    scenario = on(turn_start=[play], next=[[completed("c1", thread="C", text="sub"), {"reply": {}}]])
    async with CodexDriven(peers(scenario)) as driven:
        await driven.turn("go")
        assert await driven.harness.busy(), "a subagent still works"
        await go(driven)
        await driven.until(lambda: any(r.thread == "C" and r.kind == "completed" for r in driven.receipts))
        assert not await driven.harness.busy()
        (child,) = [child for batch in driven.batches for child in batch.children]
        assert (child.thread, child.parent_thread, child.parent_turn) == ("C", THREAD, "t1")
        assert [r.kind for r in driven.receipts if r.thread == "C"] == ["started", "usage", "output", "completed"]
        assert not [r for r in driven.receipts if r.thread == "X"]
        assert [note.source for note in driven.notes] == ["unknown:codex:thread:X"]


SPAWN = {"type": "collabAgentToolCall", "id": "i1", "tool": "spawnAgent", "receiverThreadIds": ["C"], "prompt": "do"}


async def test_a_subagent_that_was_opened_but_has_not_begun_is_waited_for(peers: Peers) -> None:
    play = [REPLY, started("t1"), say("item/completed", turnId="t1", item=SPAWN), completed("t1")]
    later = [started("c1", "C", rootTurnId="t1"), completed("c1", thread="C", text="sub"), {"reply": {}}]
    async with CodexDriven(peers(on(turn_start=[play], next=[later]))) as driven:
        await driven.turn("go")
        assert await driven.harness.busy(), "it is about to work"
        await go(driven)
        await driven.until(lambda: any(r.thread == "C" and r.kind == "completed" for r in driven.receipts))
        assert not await driven.harness.busy()
        assert [r.kind for r in driven.receipts if r.thread == "C"] == ["started", "output", "completed"]


async def test_a_subagent_that_never_begins_is_not_waited_for(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "BEGINNING", 0.0)
    play = [REPLY, started("t1"), say("item/completed", turnId="t1", item=SPAWN), completed("t1")]
    async with CodexDriven(peers(on(turn_start=[play]))) as driven:
        await driven.turn("go")
        assert not await driven.harness.busy()


# --- questions ------------------------------------------------------------------------------------------------------


FILES = {"threadId": THREAD, "turnId": "t1", "itemId": "f1"}
CHANGE = {"type": "fileChange", "id": "f1", "status": "inProgress", "changes": [{"path": "/a/b.py"}]}
ELICIT = {"threadId": THREAD, "turnId": "t1", "serverName": "srv", "message": "really?", "mode": "form"}


async def test_every_kind_of_question(peers: Peers) -> None:
    asks: list[dict[str, Any]] = [
        {"ask": 0, "method": "item/fileChange/requestApproval", "params": FILES},
        {
            "ask": 1,
            "method": "item/permissions/requestApproval",
            "params": {**FILES, "permissions": {"network": {"enabled": True}}, "reason": "to fetch"},
        },
        {
            "ask": 2,
            "method": "mcpServer/elicitation/request",
            "params": {**ELICIT, "requestedSchema": {"type": "object", "properties": {}}},
        },
        {
            "ask": "three",
            "method": "mcpServer/elicitation/request",
            "params": {**ELICIT, "requestedSchema": {"required": ["name"]}},
        },
        {
            "ask": 4,
            "method": "item/commandExecution/requestApproval",
            "params": {**FILES, "command": "rm -rf /", "kind": "humanCommand"},
        },
        {
            "ask": 5,
            "method": "item/tool/requestUserInput",
            "params": {**FILES, "questions": [{"id": "q", "question": "which?"}]},
        },
    ]
    play = [REPLY, started("t1"), say("item/started", turnId="t1", item=CHANGE), *asks]
    settle = [say("serverRequest/resolved", requestId=0), completed("t1"), {"reply": {}}]
    async with CodexDriven(peers(on(turn_start=[play], next=[settle]))) as driven:
        await driven.send("go")
        await driven.until_event("status_changed")
        assert [(ask.id, ask.action) for ask in driven.asks] == [
            ("t1:0", "file_change"),
            ("t1:1", "permissions"),
            ("t1:2", "mcp"),
            ("t1:three", "mcp"),
            ("t1:4", "command"),
        ]
        assert [ask.detail for ask in driven.asks] == [
            "/a/b.py",
            "network (to fetch)",
            "srv really?",
            "srv really?",
            "rm -rf /",
        ]
        for ask in driven.asks:
            await driven.harness.answer(ask.id, "always")
        await go(driven)
        await driven.until(lambda: driven.completion("t1") is not None)
        answers = {m["id"]: m["result"] for m in received(peers.program) if "result" in m}
        assert answers == {
            0: {"decision": "accept"} | {"decision": "acceptForSession"},
            1: {"permissions": {"network": {"enabled": True}}, "scope": "session"},
            2: {"action": "accept", "content": {}},
            "three": {"action": "decline"},
            4: {"decision": "accept"},
            5: {"answers": {}},
        }
        settled = [event.evidence["id"] for event in driven.events if event.type == "permission_settled"]
        assert settled[0] == "t1:0"
        assert set(settled) == {ask.id for ask in driven.asks}, "what its turn left open is settled with it"


@pytest.mark.parametrize(("policy", "decision"), [("deny", "decline"), ("allow", "accept")])
async def test_a_policy_answers_by_itself(peers: Peers, policy: str, decision: str) -> None:
    ask = {"ask": 0, "method": "item/fileChange/requestApproval", "params": FILES}
    play = [REPLY, started("t1"), ask, say("serverRequest/resolved", requestId=0), completed("t1")]
    async with CodexDriven(peers(on(turn_start=[play]), permissions=policy)) as driven:
        await driven.turn("go")
        assert driven.asks == []
        await go(driven)
        assert [m["result"] for m in received(peers.program) if "result" in m] == [{"decision": decision}]


# --- the program ----------------------------------------------------------------------------------------------------


async def test_a_version_that_is_too_old(peers: Peers) -> None:
    harness = peers({"version": "0.98.0"})
    for attempt in (harness.preflight, harness.start):
        with pytest.raises(UnavailableError, match=r"0\.98\.0 .* too old"):
            await attempt()
    assert list((peers.root / "state").glob("*.json")) == []


async def test_a_program_without_an_app_server(peers: Peers) -> None:
    old = peers({"version": "0.20.0", "no_app_server": "error: unrecognized subcommand"})
    with pytest.raises(UnavailableError, match="too old"):
        await old.start()
    broken = peers({"no_app_server": f"cannot start: token={SECRET}"})
    with pytest.raises(UnavailableError, match="code 2 before it was ready: cannot start") as caught:
        await broken.start()
    assert SECRET not in str(caught.value)


async def test_a_program_that_never_says_hello(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "READY_DEADLINE", 0.3)
    with pytest.raises(UnavailableError, match="not ready within"):
        await peers(on(initialize=[[]])).start()
    with pytest.raises(UnavailableError, match="refused to begin: no thanks"):
        await peers(on(initialize=[[{"error": {"code": -1, "message": "no thanks"}}]])).start()
    with pytest.raises(UnavailableError, match="does not answer like Codex"):
        await peers(on(initialize=[[{"reply": {"userAgent": "something"}}]])).start()


async def test_a_program_that_ignores_every_wish_to_leave(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "CLOSE_GRACE", 0.05)
    monkeypatch.setattr(_process, "TERM_GRACE", 0.05)
    harness = peers({"ignore": ["EOF", "TERM"]})
    pid = (await harness.start()).pid
    assert pid is not None
    await harness.stop()
    assert identify(pid) is None
    assert list((peers.root / "state").glob("*.json")) == []


async def test_starting_twice_is_one_engine_and_after_its_end_another(peers: Peers) -> None:
    harness = peers({"threads": {THREAD: [turn("t1", text="one")]}})
    async with CodexDriven(harness) as driven:
        first = await harness.start()
        assert await harness.start() == first
        assert first.pid is not None
        os.kill(first.pid, signal.SIGKILL)
        await driven.until(lambda: driven.ended)
        second = await harness.start()
        assert second.pid != first.pid
        assert await harness.open_thread() == driven.thread
        batch = await harness.recover()
        assert [r.kind for r in batch.receipts] == ["output", "completed"]


async def test_the_engine_of_a_dead_turnlog_is_ended_first(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_process, "TERM_GRACE", 0.05)
    child = subprocess.Popen(  # noqa: ASYNC220 - it only waits
        [sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True
    )
    known = identify(child.pid)
    assert known is not None
    owner = ProcessIdentity(boot_id(), known.pid, known.started_at - 1_000_000)  # long dead
    harness = peers()
    record = peers.root / "state" / "codex-00000000.json"
    record.parent.mkdir()
    record.write_bytes(msgspec.json.encode(Record(str(peers.work), known, owner)))
    await harness.start()
    assert await asyncio.to_thread(child.wait, 5) == -signal.SIGTERM
    assert not record.exists()
    await harness.stop()


async def test_an_engine_of_which_nobody_knows_whether_it_lives_forbids_another(peers: Peers) -> None:
    harness = peers()
    record = peers.root / "state" / "codex-00000000.json"
    record.parent.mkdir()
    elsewhere = ProcessIdentity("machine:boot:other", 1, 1)
    record.write_bytes(msgspec.json.encode(Record(str(peers.work), elsewhere, None)))
    with pytest.raises(UnavailableError, match="may still run") as caught:
        await harness.start()
    assert str(record) in caught.value.hint


async def test_a_clock_that_goes_back(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(2_000_000, 0, -1000))
    monkeypatch.setattr(connection_module, "now_ms", lambda: next(now))
    async with CodexDriven(peers(on(turn_start=[[REPLY, started("t1"), {"exit": 0}]]))) as driven:
        await driven.send("go")
        await driven.until(lambda: driven.ended)
        evidence = driven.notes[-1].evidence
        assert evidence["stream_ended_at"] < evidence["stream_started_at"]
        assert evidence["duration_ms"] >= 0
        assert driven.notes[-1].turn == "t1"


async def test_what_is_asked_when_the_engine_ends_is_uncertain(peers: Peers) -> None:
    async with CodexDriven(peers(on(turn_start=[[{"exit": 1}]]))) as driven:
        with pytest.raises(UncertainError):
            await driven.harness.send("req_1", "go")
        await driven.until(lambda: driven.ended)
        assert await driven.harness.lookup("req_1") is Delivery.UNKNOWN
        with pytest.raises(RefusedError):
            await driven.harness.send("req_2", "go")


async def test_a_promised_turn_does_not_stall(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GRACE", "SAFETY"):
        monkeypatch.setattr(watch, name, 0.01)
    idle = say("thread/status/changed", status={"type": "idle"})
    scenario = on(turn_start=[[idle, REPLY]], next=[[{"reply": {}}], [started("t1"), completed("t1"), {"reply": {}}]])
    scenario["threads"] = {THREAD: []}
    async with CodexDriven(peers(scenario)) as driven:
        await driven.send("go")
        await go(driven)
        assert peers.asked("thread/read") == peers.asked("thread/turns/list") == []
        await go(driven)
        await driven.until(lambda: driven.completion("t1") is not None)
        assert driven.stalled == []
