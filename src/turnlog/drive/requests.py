"""Requests from other terminals, pages and flows to the driving process (D20): steer, interrupt, permission."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

from turnlog.drive.seat import Seat, in_thread
from turnlog.drive.turns import Asked, steer_turn
from turnlog.errors import RefusedError, StaleError, TurnlogError, UnavailableError, UncertainError
from turnlog.model import Request

POLL_S: Final = 0.05
"""A request is taken within 200 ms (D20): the poll reads one number, so it may be frequent."""


async def serve_requests(seat: Seat) -> None:
    """Take and answer requests until cancelled; losing the fence ends the driving.

    Steers go one after the other, in the order they were made. An interrupt or an answer does not wait behind a steer
    whose delivery is being looked up.
    """
    steering = anyio.Lock()
    async with anyio.create_task_group() as tasks:

        async def serve(request: Request) -> None:
            try:
                if request.kind == "steer":
                    async with steering:
                        await _serve(seat, request)
                else:
                    await _serve(seat, request)
            except StaleError as error:
                seat.fail(error)

        def begin(request: Request) -> None:
            tasks.start_soon(serve, request)

        await _take(seat, begin)


async def _take(seat: Seat, serve: Callable[[Request], None]) -> None:
    ledger, session_id = seat.ledger, seat.session.id
    token: int | None = None
    told = False
    while True:
        try:
            now = await in_thread(ledger.change_token)
            if now != token:
                if any(r.state == "queued" for r in await in_thread(ledger.requests, session_id, open_only=True)):
                    for request in await in_thread(ledger.take_requests, session_id, seat.driver):
                        serve(request)
                token = now
        except StaleError as error:
            seat.fail(error)
            return
        except UnavailableError as error:  # the ledger is busy: the turn goes on, and so does the looking
            if not told:
                seat.listener.notice(f"requests from other terminals have to wait: {error.message}")
            told = True
        await anyio.sleep(POLL_S)


async def _serve(seat: Seat, request: Request) -> None:
    state, detail = "uncertain", None
    try:
        state, detail = await _act(seat, request)
    except StaleError as error:
        state, detail = "refused", error.message
        raise
    except RefusedError as error:
        state, detail = "refused", error.message
    except UncertainError as error:
        detail = error.message
    except TurnlogError as error:
        state, detail = "refused", error.message
    finally:
        with anyio.CancelScope(shield=True):
            final, words = state, detail
            await seat.keep(seat.ledger.settle_request, request.id, final, words)


async def _act(seat: Seat, request: Request) -> tuple[str, str | None]:
    if request.kind == "interrupt":
        async with seat.dispatch():
            await seat.harness.interrupt()
        return "accepted", None
    if request.kind == "permission":
        ask_id, _, answer = (request.text or "").partition(" ")
        if await seat.permissions.answer(ask_id, answer, f"request {request.id}"):
            return "accepted", None
        return "refused", f"no open question {ask_id}, or no such answer: {answer}"
    outcome = await steer_turn(seat, request.text or "")
    words = {Asked.SENT: "accepted", Asked.NOT_STEERABLE: "not_steerable", Asked.UNKNOWN: "uncertain"}
    return words[outcome], None
