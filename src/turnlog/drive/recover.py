"""Recovery: read the provider's own history for turns without completion; nothing is sent (contract §2)."""

from __future__ import annotations

import contextlib

import anyio

from turnlog.api import Ledger
from turnlog.drive.caller import environment
from turnlog.drive.claim import take
from turnlog.drive.reconcile import look
from turnlog.drive.seat import Seat, harness_of, in_thread, own_requests, require_folder
from turnlog.drive.types import Listener, RecoverReport, RunOptions
from turnlog.errors import MissingError, StaleError, TurnlogError
from turnlog.harness import Ask, ConversationEvent, harness_for


class _Quiet:
    """Nobody listens: recovery tells what it found at its end."""

    def session(self, session_id: str, artifact_key: str) -> None:
        pass

    def event(self, event: ConversationEvent) -> None:
        pass

    def notice(self, text: str) -> None:
        pass

    async def permission(self, ask: Ask) -> str | None:
        return None


def unfinished_sessions(ledger: Ledger) -> list[str]:
    """Return the conversations that have turns of ours without an end, except those already found lost."""
    return ledger.unfinished_sessions()


async def recover(
    ledger: Ledger, exec_id: str, session_id: str, options: RunOptions, listener: Listener | None = None
) -> RecoverReport:
    """Read the provider's history of one conversation and record what it tells; twice changes nothing (promise 2).

    An engine that still runs is adopted and left running while it works; one started for reading is ended again.
    Raises DrivenError when another process drives the conversation, UnavailableError when its program cannot start.
    """
    session = await in_thread(ledger.session, session_id)
    if session is None:
        raise MissingError(f"no session {session_id}")
    thread = await in_thread(ledger.thread, session_id)
    if thread is None and not await in_thread(ledger.outstanding_intents, session_id):
        return RecoverReport(session_id=session_id, new_receipts=0, completed=(), running=(), unknown=(), refused=())
    require_folder(session.cwd)
    claim = await in_thread(
        take,
        ledger,
        session,
        exec_id,
        endpoint=options.endpoint,
        replace=options.replace,
        adoptable=harness_for(session.provider or "").adoptable,
        lease_s=options.lease_s,
    )
    own = await in_thread(own_requests, ledger, session_id, thread)
    env = environment(ledger, session, claim.driver)
    seat = Seat(
        ledger,
        session,
        claim,
        harness_of(session, options, thread, own, env, adopt_any=True),
        options,
        listener or _Quiet(),
    )
    running: tuple[str, ...] = ()
    try:
        before = set(await in_thread(ledger.open_turns, session_id))
        await seat.start()
        new = await seat.take(await seat.harness.recover())
        left = await look(seat)
        running = left.running
        known_now = tuple(
            (turn, seat.statuses[turn])
            for where, turn in sorted(before)
            if where == seat.thread and turn in seat.statuses
        )
        return RecoverReport(
            session_id=session_id,
            new_receipts=new,
            completed=known_now,
            running=left.running,
            unknown=left.unknown,
            refused=left.refused,
        )
    finally:
        with anyio.CancelScope(shield=True):
            with contextlib.suppress(TurnlogError):
                if running or options.keep_engine:
                    await seat.harness.detach()
                else:
                    await seat.end_engine()
            with contextlib.suppress(StaleError):
                await in_thread(ledger.release_driver, session_id, claim.driver)
