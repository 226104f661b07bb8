"""Handing an input over to another provider, as a new attempt in the same capture (semantics 6.6).

Only when the failed attempt left no durable trace in the world, or the person said that it does not matter. Both
attempts stay visible: as the recorder's attempt events of the input, and as the native receipts of both threads.
"""

from __future__ import annotations

from typing import Any, Final

from turnlog.clock import now_ms, to_rfc3339
from turnlog.drive.attempt import Answered, Hold
from turnlog.drive.seat import in_thread
from turnlog.errors import StaleError, TurnlogError, UnavailableError
from turnlog.model import Session
from turnlog.receipts import Observation

_FIRST: Final = "attempt-1"
_SECOND: Final = "attempt-2"


def may_hand_over(hold: Hold, answered: Answered | None, failure: TurnlogError | None) -> bool:
    """Decide whether the fallback may be asked.

    A turn whose end nobody told may have done anything, and its request is never sent again: then only the person's
    word counts. So do tools that ran. Stops, timeouts and a lost fence are no failures of the provider.
    """
    options = hold.options
    if options.fallback is None or hold.stop.requested.is_set() or isinstance(failure, StaleError):
        return False
    if failure is not None and not isinstance(failure, UnavailableError):
        return False
    if answered is not None and (
        answered.end.why not in {"done", "engine", "delivery"} or answered.end.status == "completed"
    ):
        return False
    if answered is not None and answered.end.status == "interrupted":
        return False
    unknown = answered is not None and answered.end.status == "unknown"
    effects = hold.seat is not None and hold.seat.effects
    return options.fallback_after_effects or not (unknown or effects)


async def hand_over(hold: Hold, session: Session) -> Session:
    """Give the conversation to the fallback provider: another engine, another thread, the same input."""
    provider = hold.options.fallback or ""
    hold.listener.notice(f"{session.provider} failed; handing over to {provider}")
    if hold.seat is not None:
        await hold.seat.end_engine()
    await hold.replace_engine(session.id)
    return await in_thread(hold.ledger.hand_over, session.id, hold.claim.driver, provider)


class Ledgered:
    """The attempts of one input as recorder events (2.3.3), written once there is more than one."""

    def __init__(self, hold: Hold, session: Session) -> None:
        self._hold = hold
        self._session = session
        self._began = now_ms()

    async def failed_attempt(self, answered: Answered | None) -> None:
        """Record the attempt that failed, as it began and ended."""
        seat, session = self._hold.seat, self._session
        await self._event({**_started(session, _FIRST)}, self._began)
        if seat is not None and seat.thread:
            await self._event(_observed(seat.thread, _FIRST))
        outcome = answered.end.status if answered is not None else "failed"
        await self._event({"type": "provider_attempt_finished", "attempt_key": _FIRST, "outcome": outcome})

    async def last_attempt(self, session: Session, answered: Answered) -> None:
        """Record the attempt that took over."""
        seat = self._hold.seat
        await self._event({**_started(session, _SECOND)})
        if seat is not None and seat.thread:
            await self._event(_observed(seat.thread, _SECOND))
        finished = {"type": "provider_attempt_finished", "attempt_key": _SECOND, "outcome": answered.end.status}
        await self._event(finished)

    async def _event(self, fields: dict[str, Any], at: int | None = None) -> None:
        await in_thread(self._write, fields, now_ms() if at is None else at)

    def _write(self, fields: dict[str, Any], at: int) -> None:
        ledger, key = self._hold.ledger, self._session.artifact_key
        ordinal = len(ledger.input_events(key))
        evidence = {"schema_version": 1, "seq": ordinal, "observed_at": to_rfc3339(at), **fields}
        ledger.retain(self._session.id, Observation(key, f"events.jsonl:{ordinal}", at, evidence))


def _started(session: Session, attempt: str) -> dict[str, Any]:
    return {
        "type": "provider_attempt_started",
        "attempt_key": attempt,
        "provider": session.provider,
        "model": session.model,
    }


def _observed(thread: str, attempt: str) -> dict[str, Any]:
    return {"type": "provider_session_observed", "attempt_key": attempt, "provider_session_id": thread}
