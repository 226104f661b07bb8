"""What an earlier driver left behind: requests and turns without an end are looked up, never sent again (6.6, D4)."""

from __future__ import annotations

import anyio
import msgspec

from turnlog import process
from turnlog.drive.seat import Seat, in_thread
from turnlog.drive.types import Stop
from turnlog.errors import ConflictError, TimedOutError
from turnlog.harness import Delivery
from turnlog.model import EventKind


class Left(msgspec.Struct, frozen=True):
    """Turns of ours that have no completion, by what can be said about them now."""

    running: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


async def look(seat: Seat) -> Left:
    """Sort what is unfinished, after the provider's history was read.

    ``busy`` engines may still complete it. When the engine that had a request is gone and the provider's history does
    not know the request, it was never accepted: that is recorded as a refusal. That takes the history of the machine
    which sent it: of a request that left another machine nothing is concluded from ours. A turn whose engine is gone
    without a completion is unknown for good; an observation says so (H4). A request that was taken but never begun is
    unknown likewise (D4).
    """
    busy = await seat.harness.busy()
    left, refused = await _open(seat)
    if left and not busy and seat.adopted:
        # Its engine may have ended them after the history was read, and what it said last may be on its way.
        await seat.take(await seat.harness.recover())
        left, refused = await _open(seat)
    if busy:
        return Left(running=left, refused=refused)
    for turn in left:
        await in_thread(_note_lost, seat, turn)
    return Left(unknown=left, refused=refused)


async def _open(seat: Seat) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what has no end, as far as it was read, and the requests that are recorded as refused now."""
    refused, taken = [], []
    for intent in await in_thread(seat.ledger.outstanding_intents, seat.session.id):
        if intent.thread not in {None, seat.thread}:
            continue  # of a provider that handed the conversation over; its own history is not at hand
        elsewhere = not await in_thread(_sent_from_here, seat, intent.exec_id)
        if seat.adopted or elsewhere or await seat.harness.lookup(intent.request_id) is not Delivery.ABSENT:
            taken.append(intent.turn or intent.request_id)
            continue
        request_id = intent.request_id
        reason = "its engine ended, and the provider's history does not know it"
        await in_thread(seat.ledger.refuse_turn, seat.session.id, seat.driver, request_id, reason)
        refused.append(request_id)
    open_turns = await in_thread(unfinished_turns, seat)
    return tuple(dict.fromkeys((*open_turns, *taken))), tuple(refused)


async def settle_earlier(seat: Seat, stop: Stop, deadline: float) -> None:
    """Before a new prompt: wait for what a living engine still works on, sort out the rest. Raises TimedOutError."""
    left = await look(seat)
    if not left.running:
        return
    seat.listener.notice("an earlier turn is still running; waiting for it")
    while await seat.harness.busy() and not seat.engine_gone:
        if seat.failure is not None:
            raise seat.failure
        if stop.requested.is_set():
            return
        if anyio.current_time() >= deadline:
            raise TimedOutError("an earlier turn is still running, and the time for this one is over")
        changed = seat.changed
        with anyio.move_on_after(1.0):
            await changed.wait()
    await look(seat)


def unfinished_turns(seat: Seat) -> list[str]:
    """Return our turns on this thread that began and have no completion, oldest first; superseded ones are settled."""
    open_turns = seat.ledger.open_turns(seat.session.id)
    return [turn for thread, turn in open_turns if thread == seat.thread and seat.successor(turn) not in seat.statuses]


def _sent_from_here(seat: Seat, exec_id: str | None) -> bool:
    """Tell whether an exec ran on this machine; one that recorded no process is taken to have."""
    sender = None if exec_id is None else seat.ledger.exec(exec_id)
    return sender is None or sender.boot_id is None or process.same_machine(sender.boot_id)


def _note_lost(seat: Seat, turn: str) -> None:
    evidence = {
        "reason": "the engine is idle or gone, and the provider reports no end",
        "kind": str(EventKind.COMPLETED),
    }
    try:
        seat.ledger.retain_for_turn(seat.session.id, seat.thread, turn, f"lost:{seat.thread}:{turn}", evidence)
    except ConflictError:
        return  # noted before
