"""Claim → intent → send → observe → settle → finish, with every answer and every loss scripted."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.drive.conftest import Desk, answering
from turnlog import EventKind, InvalidError, StaleError
from turnlog.drive import structured, turns
from turnlog.drive.seat import in_thread
from turnlog.errors import DrivenError, RefusedError, UncertainError
from turnlog.testing.opencode_peer import assistant, tool

pytestmark = pytest.mark.anyio
PROMPT = "POST /session/[^/]+/prompt_async"


async def test_one_turn_is_intended_before_it_is_sent_and_finished_after(desk: Desk) -> None:
    answering(desk.peer)
    result = await desk.run()
    assert (result.status, result.exit_code) == ("completed", 0)
    assert result.answer is not None
    assert (result.answer.text, result.answer.exact, result.answer.turn) == ("done", True, result.turn)
    assert desk.kinds() == ["requested", "started", "usage", "output", "completed"]
    rows = [event for event in desk.history() if event.turn is not None]
    assert {event.exec_id for event in rows} == {rows[0].exec_id}
    assert rows[0].payload == {"text": "hello"}
    session = desk.ledger.session(desk.person.session_id)
    assert session is not None
    assert session.completed_at is not None, "an orphan conversation retires at its driver's exit (R10.1)"
    driver = desk.ledger.driver(session.id)
    assert driver is not None
    assert driver.exec_id is None
    assert desk.ledger.verify() == []


async def test_resume_is_a_new_input_on_the_same_thread(desk: Desk) -> None:
    answering(desk.peer)
    first = await desk.run()
    second = await desk.resume()
    assert second.thread == first.thread
    assert second.artifact_key != first.artifact_key
    assert desk.peer.count("POST /session") == 1
    listed, truncated = desk.ledger.recent_inputs(limit=10)
    assert [len(record.providers) for record in listed] == [1, 1]
    assert not truncated


@pytest.mark.parametrize("store", [True, False])
async def test_a_lost_answer_is_looked_up_and_never_sent_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, store: bool
) -> None:
    answering(desk.peer)
    monkeypatch.setattr(turns, "LOOK_UP_S", 0.5)
    desk.peer.lose(PROMPT, store=store)
    result = await desk.run()
    assert desk.peer.count(PROMPT) == 1
    assert desk.person.notices
    if store:
        assert (result.status, result.exit_code) == ("completed", 0)
        return
    assert (result.status, result.exit_code) == ("unknown", 5)
    (noted,) = desk.observed("unknown:")
    assert noted.payload["evidence"] == {"why": "delivery"}, "the engine lives: only the delivery is in doubt"
    assert [intent.turn for intent in desk.ledger.outstanding_intents(result.session_id)] == [result.turn]
    listed, _ = desk.ledger.recent_inputs(limit=5)
    assert [record.providers for record in listed] == [()], "no start, no completion is invented"


async def test_a_refusal_is_recorded_and_raised(desk: Desk) -> None:
    desk.peer.fail(PROMPT, 500, "token=abc123 broke")
    with pytest.raises(RefusedError) as raised:
        await desk.run()
    assert "abc123" not in str(raised.value)
    (refused,) = desk.observed("refused:")
    assert "abc123" not in str(refused.payload)
    assert desk.ledger.outstanding_intents(desk.person.session_id) == []
    assert desk.kinds() == ["requested"]
    summary = desk.ledger.session_summary(desk.person.session_id)
    assert summary is not None
    assert summary.driver_outcome == "failed"
    assert summary.session.completed_at is None, "a failure never retires (R10.4)"


@pytest.mark.parametrize("store", [True, False])
async def test_a_lost_creation_is_found_by_its_title_or_stays_uncertain(desk: Desk, store: bool) -> None:
    answering(desk.peer)
    desk.peer.lose("POST /session", store=store)
    if store:
        assert (await desk.run()).status == "completed"
    else:
        with pytest.raises(UncertainError):
            await desk.run()
        assert desk.kinds() == []
    assert desk.peer.count("POST /session") == 1


async def test_a_driver_that_lost_the_fence_does_nothing_more(desk: Desk) -> None:
    failure: list[BaseException] = []

    async def drive() -> None:
        try:
            await desk.run()
        except StaleError as error:
            failure.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drive)
        await desk.seen(lambda: desk.peer.count(PROMPT))
        session = desk.person.session_id
        other = desk.ledger.start_exec().id
        # In a thread: the claim waits for the lock that a dispatch on this loop may hold (D10).
        mine = await in_thread(
            desk.ledger.claim_driver, session, desk.ledger.driver(session), other, replace_engine=True
        )
        asked = desk.ledger.request(session, "steer", "not through the old one")
    assert failure
    assert desk.peer.count(PROMPT) == 1
    assert desk.ledger.driver(session) == mine, "the loser does not finish what is not its own"
    state = desk.ledger.request_state(asked)
    assert state is not None
    assert state.state == "queued", "the request is the new driver's business"


async def test_a_driven_conversation_is_refused(desk: Desk) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.run)
        await desk.seen(lambda: desk.peer.count(PROMPT))
        with pytest.raises(DrivenError):
            await desk.resume()
        finish(desk)
    assert desk.peer.count(PROMPT) == 1


async def test_interrupt_and_steer_from_another_terminal(desk: Desk) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.run)
        await desk.seen(lambda: desk.peer.count(PROMPT))
        session = desk.person.session_id
        begin(desk)
        await desk.seen(lambda: "started" in desk.kinds())
        steer = desk.ledger.request(session, "steer", "and this")
        await desk.seen(lambda: state_of(desk, steer) == "accepted")
        interrupt = desk.ledger.request(session, "interrupt")
        await desk.seen(lambda: state_of(desk, interrupt) == "accepted")
        assert desk.peer.count("POST /session/[^/]+/abort") == 1
        finish(desk, error={"name": "MessageAbortedError", "data": {"message": "Aborted"}}, finish=None)
    assert [event.payload["text"] for event in desk.history() if event.kind is EventKind.REQUESTED] == [
        "hello",
        "and this",
    ]


async def test_a_question_is_answered_here_or_elsewhere_and_recorded(desk: Desk) -> None:
    results: list[Any] = []

    async def drive() -> None:
        results.append(await desk.run())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drive)
        await desk.seen(lambda: desk.peer.count(PROMPT))
        thread, request = sent(desk)
        part = tool("call_1", "running")
        desk.peer.put(thread, assistant("m1", request, tools=[part]))
        desk.peer.ask(thread, "per_1", message="m1", call="call_1")
        await desk.seen(lambda: desk.person.asks)
        answer = desk.ledger.request(desk.person.session_id, "permission", "per_1 once")
        await desk.seen(lambda: state_of(desk, answer) == "accepted")
        wrong = desk.ledger.request(desk.person.session_id, "permission", "per_9 once")
        await desk.seen(lambda: state_of(desk, wrong) == "refused")
        done = tool("call_1", "completed", output="x")
        desk.peer.put(thread, assistant("m1", request, completed=2, finish="stop", tools=[done], texts=["ok"]))
    assert results[0].status == "completed"
    (asked,) = desk.observed("permission:per_1:asked")
    assert asked.payload["evidence"]["action"] == "bash"
    (answered,) = desk.observed("permission:per_1:answered")
    assert answered.payload["evidence"]["answer"] == "once"
    assert answered.payload["evidence"]["by"].startswith("request ")


async def test_a_snapshot_that_contradicts_the_first_is_kept_beside_it(desk: Desk) -> None:
    answering(desk.peer, "first")
    result = await desk.run()
    assert result.thread is not None
    desk.peer.put(
        result.thread, assistant(f"{result.turn}_a", str(result.turn), completed=9, finish="stop", texts=["other"])
    )
    answering(desk.peer, "next")
    await desk.resume()
    (output, completed) = sorted(desk.observed("conflict:"), key=lambda event: str(event.payload["source"]))[::-1]
    assert output.payload["evidence"]["payload"] == {"text": "other"}
    assert completed.payload["evidence"]["kind"] == "completed"
    answer = desk.ledger.final_answer(result.artifact_key)
    assert answer is not None
    assert answer.text == "first"
    assert {problem.kind for problem in desk.ledger.verify()} == {"conflict"}


async def test_the_server_dies_in_the_middle(desk: Desk) -> None:
    results: list[Any] = []

    async def drive() -> None:
        results.append(await desk.run())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drive)
        await desk.seen(lambda: desk.peer.count(PROMPT))
        begin(desk)
        await desk.seen(lambda: "started" in desk.kinds())
        desk.peer.close()
    assert (results[0].status, results[0].exit_code, results[0].answer) == ("unknown", 5, None)
    assert desk.observed("disconnect:")
    assert "completed" not in desk.kinds()


async def test_a_deadline_interrupts_and_gives_up_after_a_grace(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "GRACE_S", 0.3)
    result = await desk.run(timeout_s=0.5)
    assert (result.status, result.exit_code) == ("unknown", 124)
    assert desk.peer.count("POST /session/[^/]+/abort") <= 1


async def test_a_schema_is_asked_in_words_three_times_at_most(desk: Desk) -> None:
    answering(desk.peer, "not json")
    schema = {"type": "object", "required": ["a"]}
    result = await desk.run(schema=schema)
    assert (result.status, result.value, result.exit_code) == ("completed", None, 1)
    assert desk.peer.count(PROMPT) == 3
    answering(desk.peer, '```json\n{"a": 1}\n```')
    good = await desk.resume(schema=schema)
    assert (good.value, good.exit_code) == ({"a": 1}, 0)
    (kept,) = desk.observed("structured:")
    assert kept.payload["evidence"] == {"value": {"a": 1}, "emulated": True}


@pytest.mark.parametrize("prompt", ["", " \n\t ", "a\x00b"])
async def test_a_prompt_that_says_nothing_records_nothing(desk: Desk, prompt: str) -> None:
    with pytest.raises(InvalidError) as raised:
        await desk.run(prompt)
    assert raised.value.hint
    assert desk.ledger.sessions(all=True) == []


async def test_a_large_prompt_with_control_characters_arrives_whole(desk: Desk) -> None:
    answering(desk.peer)
    prompt = "\x1b[31m\x07" + "x" * 10_000_000
    result = await desk.run(prompt)
    assert result.status == "completed"
    assert sent_text(desk) == prompt
    session = desk.ledger.session(result.session_id)
    assert session is not None
    assert len(session.title) <= 80


def sent(desk: Desk) -> tuple[str, str]:
    """The thread and request of the last prompt that arrived."""
    seen = [each for each in desk.peer.seen if each.path.endswith("/prompt_async")][-1]
    return seen.path.split("/")[2], seen.body["messageID"]


def sent_text(desk: Desk) -> str:
    seen = [each for each in desk.peer.seen if each.path.endswith("/prompt_async")][-1]
    return str(seen.body["parts"][0]["text"])


def begin(desk: Desk) -> None:
    """Let the model begin to answer."""
    thread, request = sent(desk)
    desk.peer.status(thread, "busy")
    desk.peer.put(thread, assistant(f"{request}_a", request))


def finish(desk: Desk, **more: Any) -> None:
    """Let the model end every open answer."""
    values: dict[str, Any] = {"completed": 2, "finish": "stop", "texts": ["end"], **more}
    for each in [seen for seen in desk.peer.seen if seen.path.endswith("/prompt_async")]:
        thread, request = each.path.split("/")[2], each.body["messageID"]
        desk.peer.put(thread, assistant(f"{request}_a", request, **values))
        desk.peer.status(thread, "idle")


def state_of(desk: Desk, request: str) -> str | None:
    found = desk.ledger.request_state(request)
    return found.state if found else None


async def test_a_schema_never_reaches_for_the_network() -> None:
    value, problem = structured.read("1", {"$ref": "http://127.0.0.1:9/schema.json"})
    assert value is None
    assert problem is not None
    assert "refers to something" in problem
