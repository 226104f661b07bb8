"""Found in review: what driving does when the fence, the ledger or the clock is against it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from tests.drive.conftest import Desk, answering
from turnlog import ConflictError, Driver, StaleError, UnavailableError
from turnlog.drive import recover
from turnlog.drive import seat as seats
from turnlog.drive.attempt import Hold
from turnlog.drive.claim import Claim
from turnlog.drive.conversation import _leave
from turnlog.drive.seat import Seat, in_thread
from turnlog.drive.turns import begin_turn
from turnlog.errors import DrivenError, TimedOutError
from turnlog.harness.opencode.live import OpenCodeHarness
from turnlog.testing.opencode_peer import assistant, user

pytestmark = pytest.mark.anyio
PROMPT = "POST /session/[^/]+/prompt_async"


class Engine:
    """Stands for a harness: counts how it was let go."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def stop(self) -> None:
        self.calls.append("stop")

    async def detach(self) -> None:
        self.calls.append("detach")

    def new_request_id(self) -> str:
        return "req_1"

    def turn_of(self, request_id: str) -> str | None:
        return request_id


def sit(desk: Desk) -> tuple[Seat, Engine]:
    """Claim a new conversation and sit down with an engine that only counts."""
    session = desk.ledger.create_session(cwd=str(desk.root), provider="opencode")
    desk.person.session_id = session.id
    driver = desk.ledger.claim_driver(session.id, None, desk.ledger.start_exec().id)
    engine = Engine()
    claim = Claim(driver, engine_alive=False)
    return Seat(desk.ledger, session, claim, cast("Any", engine), desk.options(), desk.person), engine


def overtake(desk: Desk, seat: Seat, *, replace: bool) -> Driver:
    other = desk.ledger.start_exec().id
    return desk.ledger.claim_driver(seat.session.id, seat.driver, other, replace_engine=replace)


@pytest.mark.parametrize(("replace", "called"), [(False, "detach"), (True, "stop")])
async def test_a_stale_driver_never_ends_the_engine_of_its_successor(desk: Desk, replace: bool, called: str) -> None:
    seat, engine = sit(desk)
    await in_thread(overtake, desk, seat, replace=replace)
    assert await seat.end_engine() is replace
    assert engine.calls == [called]


async def test_the_driver_itself_ends_its_engine(desk: Desk) -> None:
    seat, engine = sit(desk)
    assert await seat.end_engine()
    assert engine.calls == ["stop"]


async def test_a_request_that_lost_the_fence_before_it_left_is_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    seat, _ = sit(desk)
    intend = desk.ledger.intend_turn

    def and_lose(*args: Any, **more: Any) -> int:
        seq = intend(*args, **more)
        overtake(desk, seat, replace=True)
        return seq

    monkeypatch.setattr(desk.ledger, "intend_turn", and_lose)
    with pytest.raises(StaleError):
        await begin_turn(seat, "hello", {})
    assert len(desk.observed("refused:req_1")) == 1
    assert desk.ledger.outstanding_intents(seat.session.id) == []


async def test_an_engine_ends_although_the_ledger_cannot_be_had(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    seat, engine = sit(desk)
    hold = Hold(desk.ledger, "exec", Claim(seat.driver, engine_alive=False), desk.options(), desk.person, desk.stop)
    hold.seat = seat

    def broken(*_: Any, **__: Any) -> Any:
        raise UnavailableError("the disk is full")

    for name in ("requests", "driving", "heartbeat", "take_requests"):
        monkeypatch.setattr(desk.ledger, name, broken)
    await _leave(hold, seat.session.id, "failed")
    assert engine.calls == ["stop"]


async def test_nothing_is_sent_before_the_history_was_read(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seats, "FIRST_LOOK_S", 0.3)
    desk.peer.stall("GET /event")
    desk.peer.stall("GET /session/[^/]+/message")
    with pytest.raises(UnavailableError, match="did not show its history"):
        await desk.run()
    assert desk.peer.count(PROMPT) == 0


async def test_what_was_asked_of_an_earlier_driver_is_not_done_by_the_next(desk: Desk) -> None:
    answering(desk.peer)
    await desk.run()
    session = desk.person.session_id
    old = [desk.ledger.request(session, "interrupt"), desk.ledger.request(session, "steer", "too late")]
    await anyio.sleep(0.005)  # the next claim is later by the clock
    result = await desk.resume()
    assert result.status == "completed"
    states = [request.state for request in desk.ledger.requests(session) if request.id in old]
    assert states == ["not_steerable", "not_steerable"]
    assert desk.peer.count("POST /session/[^/]+/abort") == 0
    assert desk.peer.count(PROMPT) == 2


async def test_a_busy_ledger_does_not_end_the_driving(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seats, "HEARTBEAT_S", 0.01)
    failed: list[str] = []

    def busy_once(name: str) -> None:
        real = getattr(desk.ledger, name)

        def call(*args: Any) -> Any:
            if name not in failed:
                failed.append(name)
                raise UnavailableError("locked")
            return real(*args)

        monkeypatch.setattr(desk.ledger, name, call)

    busy_once("change_token")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.run)
        await desk.seen(lambda: desk.peer.count(PROMPT))
        busy_once("heartbeat")
        await desk.seen(lambda: "heartbeat" in failed)
        steer = desk.ledger.request(desk.person.session_id, "interrupt")
        await desk.seen(lambda: getattr(desk.ledger.request_state(steer), "state", None) == "accepted")
        answering(desk.peer)
        thread, request = _sent(desk)
        assert desk.peer.answers is not None
        desk.peer.answers(thread, request, "")
    assert failed == ["change_token", "heartbeat"]


async def test_resume_binds_and_renames_only_what_it_drives(desk: Desk) -> None:
    wave = desk.ledger.create_wave("tests", repo="/r")
    project = desk.ledger.create_project(wave.id, external_id="p")
    task = desk.ledger.create_task(project.id, external_id="i", identifier="ABC-1")
    other = desk.ledger.create_task(project.id, external_id="j", identifier="ABC-2")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.run)
        await desk.seen(lambda: desk.peer.count(PROMPT))
        with pytest.raises(DrivenError):
            await desk.resume(task_id=task.id, title="Better")
        driven = desk.ledger.session(desk.person.session_id)
        assert driven is not None
        assert (driven.task_id, driven.title) == (None, "hello")
        answering(desk.peer)
        assert desk.peer.answers is not None
        desk.peer.answers(*_sent(desk), "")
    result = await desk.resume(task_id=task.id, title="Better")
    bound = desk.ledger.session(result.session_id)
    assert bound is not None
    assert (bound.task_id, bound.title) == (task.id, "Better")
    assert desk.ledger.input_history(result.artifact_key).task_id == task.id
    with pytest.raises(ConflictError):
        await desk.resume(task_id=other.id)
    await desk.resume(task_id=task.id)


async def test_a_prompt_does_not_join_an_earlier_turn_when_its_time_is_over(desk: Desk) -> None:
    answering(desk.peer)
    await desk.run()
    thread, request = _sent(desk)
    session = desk.person.session_id
    driver = desk.ledger.claim_driver(session, desk.ledger.driver(session), desk.ledger.start_exec().id)
    intent = f"{request}z"
    desk.ledger.intend_turn(session, driver, thread, intent, {"text": "left behind"}, turn=intent)
    desk.peer.put(thread, assistant(f"{intent}_a", intent))
    desk.peer.status(thread, "busy")
    desk.ledger.record_turn_origin(session, thread, intent, driver.provider_generation, str(driver.exec_id))
    desk.ledger.release_driver(session, driver)
    with pytest.raises(TimedOutError) as raised:
        await desk.resume(timeout_s=1.5)
    assert raised.value.exit_code == 124
    assert desk.peer.count(PROMPT) == 1


async def test_a_request_that_was_taken_but_never_begun_stays_unknown(desk: Desk) -> None:
    answering(desk.peer)
    await desk.run()
    thread, request = _sent(desk)
    session = desk.person.session_id
    driver = desk.ledger.claim_driver(session, desk.ledger.driver(session), desk.ledger.start_exec().id)
    intent = f"{request}z"
    desk.ledger.intend_turn(session, driver, thread, intent, {"text": "dropped by an abort"}, turn=intent)
    desk.peer.put(thread, user(intent))
    desk.ledger.release_driver(session, driver)
    for _ in range(2):
        report = await recover(desk.ledger, desk.ledger.start_exec().id, session, desk.options())
        assert (report.unknown, report.refused, report.running) == ((intent,), (), ())
    desk.peer.status(thread, "busy")
    report = await recover(desk.ledger, desk.ledger.start_exec().id, session, desk.options())
    assert report.running == (intent,)


async def test_a_state_folder_that_cannot_be_made_is_told_in_words(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnavailableError, match="cannot be started"):
        await desk.run(state_dir=tmp_path / "file")


async def test_a_conversation_is_made_under_the_fence(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the start of its engine and the making of a conversation, a driver may have been replaced."""
    start = OpenCodeHarness.start

    async def and_lose(self: OpenCodeHarness) -> Any:
        engine = await start(self)
        session = desk.ledger.latest_session()
        assert session is not None
        other = desk.ledger.start_exec().id
        await in_thread(
            desk.ledger.claim_driver, session.id, desk.ledger.driver(session.id), other, replace_engine=True
        )
        return engine

    monkeypatch.setattr(OpenCodeHarness, "start", and_lose)
    with pytest.raises(StaleError):
        await desk.run()
    assert desk.peer.count("POST /session") == 0


def _sent(desk: Desk) -> tuple[str, str]:
    seen = [each for each in desk.peer.seen if each.path.endswith("/prompt_async")][-1]
    return seen.path.split("/")[2], seen.body["messageID"]
