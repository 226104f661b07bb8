"""One request to the provider, durably: intent → send → look up what is uncertain → wait (D3, D4, promise 4)."""

from __future__ import annotations

import contextlib
from enum import StrEnum
from typing import Any, Final

import anyio
import msgspec

from turnlog.drive.seat import Seat, in_thread
from turnlog.drive.structured import Schema
from turnlog.drive.types import Stop
from turnlog.errors import ConflictError, RefusedError, TurnlogError, UncertainError
from turnlog.harness import Delivery, SteerOutcome

LOOK_UP_S: Final = 10.0
LOOK_UP_PAUSE_S: Final = 0.2
GRACE_S: Final = 15.0
"""How long an interrupted turn has to be reported before its engine is ended."""


AGAIN_S: Final = 2.0
"""How long an interrupt has to show an effect before it is asked for again."""


class Asked(StrEnum):
    """What became of a request as far as its delivery goes."""

    SENT = "sent"
    NOT_STEERABLE = "not_steerable"
    UNKNOWN = "unknown"


class TurnEnd(msgspec.Struct, frozen=True):
    """How waiting ended. ``status`` is the provider's word or ``unknown``.

    ``why``: ``done timeout stop``, ``engine`` (it is gone), ``delivery`` (nobody knows whether the request arrived).
    """

    turn: str
    status: str
    why: str


async def begin_turn(seat: Seat, text: str, about: dict[str, Any], schema: Schema | None = None) -> tuple[str, Asked]:
    """Send a prompt as a new turn; return its turn id. Raises RefusedError (recorded), StaleError."""
    request_id = seat.harness.new_request_id()
    turn = seat.harness.turn_of(request_id)
    await _intend(seat, request_id, {"text": text, **about}, turn)
    seat.turn = turn
    leaves = False
    try:
        async with seat.dispatch():
            leaves = True
            told = await seat.harness.send(request_id, text, schema=schema)
    except UncertainError as error:
        seat.listener.notice(f"{error.message}; looking it up")
        return turn or request_id, await _look_up(seat, request_id)
    except TurnlogError as error:
        if not leaves or isinstance(error, RefusedError):  # it is certain: no fence, or the provider's own refusal
            await _refuse(seat, request_id, error.message)
        raise
    if turn is None and told is not None:
        with contextlib.suppress(ConflictError):  # another origin is recorded; it stays, and the turn runs
            await seat.keep(seat.ledger.accept_turn, seat.session.id, seat.driver, request_id, told)
    seat.turn = told or turn
    return seat.turn or request_id, Asked.SENT


async def steer_turn(seat: Seat, text: str) -> Asked:
    """Send text into the open turn under its own intent. Raises RefusedError (recorded), StaleError."""
    request_id = seat.harness.new_request_id()
    turn = seat.harness.turn_of(request_id)
    await _intend(seat, request_id, {"text": text, "steer": True}, turn)
    try:
        async with seat.dispatch():
            outcome = await seat.harness.steer(request_id, text)
    except UncertainError:
        asked = await _look_up(seat, request_id)
        if asked is Asked.SENT:
            await _steered(seat, request_id, turn)
        return asked
    except TurnlogError as error:
        await _refuse(seat, request_id, error.message)
        raise
    if outcome is SteerOutcome.NOT_STEERABLE:
        await _refuse(seat, request_id, "no open turn to steer")
        return Asked.NOT_STEERABLE
    await _steered(seat, request_id, turn)
    return Asked.SENT


async def _steered(seat: Seat, request_id: str, turn: str | None) -> None:
    """Follow a steer: as a turn of its own, or, where the program takes it into the open turn, as absorbed by that."""
    if turn is not None:
        seat.steers.append(turn)
        return
    by = seat.successor(seat.turn) if seat.turn else None
    await in_thread(seat.ledger.retain_for_turn, seat.session.id, seat.thread, by, f"absorbed:{request_id}", {"by": by})


async def wait_turn(seat: Seat, turn: str, stop: Stop, deadline: float) -> TurnEnd:
    """Wait for the provider's own word on a turn; stop and deadline (of ``anyio.current_time``) interrupt it."""
    why = "done"
    while (status := seat.outcome(turn)) is None:
        if seat.failure is not None:
            raise seat.failure
        if seat.engine_gone:
            return TurnEnd(turn, "unknown", "engine" if why == "done" else why)
        if stop.requested.is_set() or anyio.current_time() >= deadline:
            if why != "done":
                await _end_engine(seat)
                return TurnEnd(turn, seat.outcome(turn) or "unknown", why)
            why = "stop" if stop.requested.is_set() else "timeout"
            await _interrupt(seat)
            deadline = anyio.current_time() + GRACE_S
            stop = _after(stop)
            continue
        changed = seat.changed
        if seat.outcome(turn) is None:
            left = max(0.0, deadline - anyio.current_time())
            # An interrupt that came before the program began to work was ignored; it is asked for again. (A harness
            # whose program takes one interrupt a turn sends it once.)
            again = why != "done" and left > AGAIN_S
            with anyio.move_on_after(AGAIN_S if again else left) as patience:
                await _any(changed, stop.requested)
            if again and patience.cancelled_caught:
                await _interrupt(seat)
    return TurnEnd(seat.successor(turn), status, why)


def _after(stop: Stop) -> Stop:
    """Return what to wait for once an interrupt is sent: the second, forcing wish."""
    second = Stop()
    second.requested = stop.forced
    second.forced = stop.forced
    return second


async def _intend(seat: Seat, request_id: str, payload: dict[str, Any], turn: str | None) -> None:
    await in_thread(seat.ledger.intend_turn, seat.session.id, seat.driver, seat.thread, request_id, payload, turn=turn)


async def _refuse(seat: Seat, request_id: str, reason: str) -> None:
    with anyio.CancelScope(shield=True):
        await in_thread(seat.ledger.refuse_turn, seat.session.id, seat.driver, request_id, reason)


async def _look_up(seat: Seat, request_id: str) -> Asked:
    """Look a request up in the provider's history; never send it again (promise 4)."""
    with anyio.move_on_after(LOOK_UP_S):
        while not seat.engine_gone:
            if await seat.harness.lookup(request_id) is Delivery.FOUND:
                return Asked.SENT
            await anyio.sleep(LOOK_UP_PAUSE_S)
    return Asked.UNKNOWN


async def _interrupt(seat: Seat) -> None:
    try:
        async with seat.dispatch():
            await seat.harness.interrupt()
    except TurnlogError as error:
        seat.listener.notice(f"the turn could not be interrupted: {error.message}")


async def _end_engine(seat: Seat) -> None:
    seat.listener.notice("the turn did not stop; ending its engine")
    with anyio.CancelScope(shield=True):
        await seat.end_engine()


async def _any(*events: anyio.Event) -> None:
    async with anyio.create_task_group() as group:

        async def one(event: anyio.Event) -> None:
            await event.wait()
            group.cancel_scope.cancel()

        for event in events:
            group.start_soon(one, event)
