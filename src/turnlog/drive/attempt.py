"""One attempt: an engine started or adopted, watched while a prompt is asked, and what came of it (6.6)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
import msgspec

from turnlog.api import Ledger
from turnlog.drive import structured
from turnlog.drive.caller import environment
from turnlog.drive.claim import Claim
from turnlog.drive.reconcile import settle_earlier
from turnlog.drive.requests import serve_requests
from turnlog.drive.seat import Seat, harness_of, in_thread, own_requests
from turnlog.drive.turns import Asked, TurnEnd, begin_turn, wait_turn
from turnlog.drive.types import Listener, RunOptions, Stop
from turnlog.errors import CancelledError, TurnlogError
from turnlog.model import Session

BACKGROUND_POLL_S: Final = 0.5


class Answered(msgspec.Struct, frozen=True):
    """How an attempt ended. ``problem`` says why a completed answer does not fit the schema."""

    end: TurnEnd
    value: Any
    problem: str | None


class Hold:
    """A conversation while one command holds it: the tuple, which changes with the engine, and the present seat."""

    def __init__(
        self, ledger: Ledger, exec_id: str, claim: Claim, options: RunOptions, listener: Listener, stop: Stop
    ) -> None:
        self.ledger = ledger
        self.exec_id = exec_id
        self.claim = claim
        self.options = options
        self.listener = listener
        self.stop = stop
        self.seat: Seat | None = None

    async def sit(self, session: Session, *, adopt_any: bool = False) -> Seat:
        """Build the seat for a conversation as it stands and start its engine."""
        ledger = self.ledger
        thread = await in_thread(ledger.thread, session.id)
        own = await in_thread(own_requests, ledger, session.id, thread)
        env = environment(ledger, session, self.claim.driver)
        harness = harness_of(session, self.options, thread, own, env, adopt_any=adopt_any)
        self.seat = Seat(ledger, session, self.claim, harness, self.options, self.listener)
        await self.seat.start()
        return self.seat

    async def replace_engine(self, session_id: str) -> None:
        """Raise the provider generation: what comes next is another engine (R9.4)."""
        driver = await in_thread(
            self.ledger.claim_driver, session_id, self.claim.driver, self.exec_id, replace_engine=True
        )
        self.claim = Claim(driver, False)  # noqa: FBT003


async def settle_living(hold: Hold, session: Session, deadline: float) -> None:
    """Look after an engine that outlived its driver: wait for its work, keep it if its policy is the wanted one.

    It is adopted whatever its policy, because two engines on one conversation would not see each other's work.
    """
    seat = await hold.sit(session, adopt_any=True)
    async with watched(seat):
        await settle_earlier(seat, hold.stop, deadline)
    if seat.engine_gone or seat.policy not in (None, hold.options.permissions):
        await seat.end_engine()
        await hold.replace_engine(session.id)
    else:
        await seat.harness.detach()


async def attempt(hold: Hold, session: Session, text: str, deadline: float) -> Answered:
    """Ask one provider. Raises UnavailableError, StaleError, UncertainError, CancelledError, TimedOutError."""
    seat = await hold.sit(session)
    async with watched(seat):
        await settle_earlier(seat, hold.stop, deadline)
        answered = await _ask(seat, text, hold.options, hold.stop, deadline)
        if answered.end.status == "unknown":
            await seat.note_unknown(answered.end.turn, answered.end.why)
        elif answered.end.why == "done":
            await _background(seat, hold.stop, deadline)
        return answered
    raise AssertionError("unreachable")  # pragma: no cover - the body of a context that swallows nothing


async def _background(seat: Seat, stop: Stop, deadline: float) -> None:
    """Wait for what the program goes on with by itself, like background subagents: ending it would lose their work."""
    told = False
    while not stop.requested.is_set() and anyio.current_time() < deadline and not seat.engine_gone:
        if not await seat.harness.busy():
            return
        if not told:
            seat.listener.notice("the agent still works in the background; waiting for it")
            told = True
        changed = seat.changed
        with anyio.move_on_after(BACKGROUND_POLL_S):
            await changed.wait()


@contextlib.asynccontextmanager
async def watched(seat: Seat) -> AsyncIterator[None]:
    """Watch the provider and the requests of others while the body runs; an error of the body comes out as it is."""
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        seat.permissions.use(tasks)
        tasks.start_soon(seat.watch)
        tasks.start_soon(seat.heartbeat)
        tasks.start_soon(serve_requests, seat)
        try:
            await seat.first_look()
            yield
        except TurnlogError as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _ask(seat: Seat, text: str, options: RunOptions, stop: Stop, deadline: float) -> Answered:
    """Ask once, or with a schema up to three times in the same conversation until the answer fits."""
    native = options.schema if seat.harness.structured else None
    prompt = text if options.schema is None or native is not None else structured.request(text, options.schema)
    problem: str | None = None
    for number in range(1, structured.TRIES + 1):
        if stop.requested.is_set():
            raise CancelledError("stopped before anything was sent" if number == 1 else "stopped between two asks")
        turn, asked = await begin_turn(seat, prompt, {} if number == 1 else {"ask": number}, native)
        if asked is Asked.UNKNOWN:
            return Answered(TurnEnd(turn, seat.outcome(turn) or "unknown", "delivery"), None, "delivery unknown")
        end = await wait_turn(seat, turn, stop, deadline)
        # An interrupt is meant for everything that was said so far; a steer that was still waiting is dropped with it.
        while end.why == "done" and end.status != "interrupted" and (steer := seat.open_steer()) is not None:
            end = await wait_turn(seat, steer, stop, deadline)
        if options.schema is None or end.status != "completed" or end.why != "done":
            return Answered(end, None, None)
        answer = await in_thread(seat.ledger.final_answer, seat.session.artifact_key)
        if native is not None and answer is not None and answer.value is not None:
            return Answered(end, answer.value, None)
        value, problem = structured.read(answer.text if answer else "", options.schema)
        if problem is None:
            evidence = {"value": value, "emulated": True}
            source = f"structured:{seat.thread}:{end.turn}"
            await in_thread(seat.ledger.retain_for_turn, seat.session.id, seat.thread, end.turn, source, evidence)
            return Answered(end, value, None)
        prompt = structured.again(problem)
    return Answered(end, None, problem)
