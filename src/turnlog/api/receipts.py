"""Receipts: append, intend, observe (3.1 to 3.4, D3, D4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from turnlog.api.base import Part
from turnlog.errors import InvalidError
from turnlog.ledger.rows import Intent
from turnlog.model import (
    Driver,
    Session,
)
from turnlog.receipts import Observation, Receipt

if TYPE_CHECKING:
    from turnlog.harness import Batch
    from turnlog.intake.live import Taken


class Receipts(Part):
    """Receipts: append, intend, observe (3.1 to 3.4, D3, D4)."""

    def record(self, session_id: str, thread: str, turn: str, kind: str, payload: Any) -> int:
        """Write one native receipt once and return its seq (R1.1 to R1.8).

        Raises ConflictError when the key holds another payload, InvalidError, MissingError.
        """
        return self._store.events.record(session_id, Receipt(thread, turn, kind, payload))

    def record_many(self, session_id: str, rows: Iterable[Receipt | tuple[str, str, str, Any]]) -> tuple[int, int]:
        """Write many native receipts in one transaction, all or none; return (new, known).

        A row is a Receipt or ``(thread, turn, kind, payload)``.
        """
        try:
            receipts = [row if isinstance(row, Receipt) else Receipt(*row) for row in rows]
        except TypeError as error:
            raise InvalidError(f"not a row of receipts: {error}", hint="(thread, turn, kind, payload)") from error
        return self._store.events.record_many(session_id, receipts)

    def record_turn_origin(
        self, session_id: str, thread: str, turn: str, provider_generation: int, exec_id: str
    ) -> int:
        """Record who began a turn, together with its start; evidence, so unfenced (3.3, D3). Raises ConflictError."""
        return self._store.events.record_origin(session_id, thread, turn, provider_generation, exec_id)

    def intend_turn(
        self,
        session_id: str,
        driver: Driver,
        thread: str | None,
        request_id: str,
        payload: Any,
        *,
        turn: str | None = None,
    ) -> int:
        """Store, under the fence, that a request is about to leave (D3). Raises StaleError, ConflictError."""
        return self._store.events.intend(session_id, driver, thread, request_id, payload, turn)

    def accept_turn(self, session_id: str, driver: Driver, request_id: str, turn: str) -> None:
        """Link an intent to the turn the provider named (D3). ``driver`` is the tuple that made the intent."""
        self._store.events.accept(session_id, driver, request_id, turn)

    def refuse_turn(self, session_id: str, driver: Driver, request_id: str, reason: str) -> None:
        """Record that a request was certainly not accepted (D4)."""
        self._store.events.refuse(session_id, driver, request_id, reason)

    def outstanding_intents(self, session_id: str) -> list[Intent]:
        """Return requests of ours that have neither start nor refusal (D4), oldest first."""
        return self._store.events.outstanding(session_id)

    def open_turns(self, session_id: str) -> list[tuple[str, str]]:
        """Return (thread, turn) of our turns that began and have no completion, oldest first."""
        return self._store.events.open_turns(session_id)

    def unfinished_sessions(self) -> list[str]:
        """Return the sessions with turns or requests of ours without an end, except turns already found lost."""
        return self._store.events.unfinished_sessions()

    def own_request_ids(self, session_id: str, thread: str | None) -> list[tuple[str, str | None]]:
        """Return our request ids on a thread, or on one not known then, with the turn each began; oldest first."""
        return self._store.events.own_request_ids(session_id, thread)

    def retain(self, session_id: str, observation: Observation) -> int:
        """Keep an observation on its input (3.4). Raises MissingError, ConflictError."""
        return self._store.events.retain(session_id, observation)

    def retain_for_turn(self, session_id: str, thread: str, turn: str | None, source: str, evidence: Any) -> int:
        """Keep an observation on the input of a turn, else on the current one (D9, D19)."""
        return self._store.events.retain_for_turn(session_id, thread, turn, source, evidence)

    def take_batch(self, session: Session, thread: str, batch: Batch) -> Taken:
        """Record what a harness saw on a thread of a conversation; idempotent (promise 2, D9)."""
        from turnlog.intake.live import apply_batch

        return apply_batch(self._store, session, thread, batch)
