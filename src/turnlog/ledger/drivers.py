"""Verbs on the driver, the engine's records and the fence (semantics 3.9 to 3.11, D10).

Everything that changes a driver takes the conversation's lock first, so that it cannot fall between the check of a
fence and the external write the fence protects.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from turnlog.clock import Now
from turnlog.errors import InvalidError, MissingError, StaleError
from turnlog.ledger.backend import Backend, Row, Tx
from turnlog.ledger.events import database_time, fence
from turnlog.ledger.rows import EngineRecord, driver_of
from turnlog.model import Driver
from turnlog.receipts import canonical

_NEVER_CLAIMED = Driver(exec_id=None, generation=0, provider_generation=0, provider_exec_id=None)
LAUNCH_STAGES = ("reserved", "spawn_requested")


class Drivers:
    """Driver tuples of one ledger."""

    def __init__(self, backend: Backend, now: Now) -> None:
        self._backend = backend
        self._now = now

    def get(self, session_id: str) -> Driver | None:
        """Return the stored tuple; None for a conversation never claimed or unknown."""
        row = self._row(session_id)
        return None if row is None else driver_of(row)

    def engine(self, session_id: str) -> EngineRecord | None:
        """Return the engine's records, or None for an unknown conversation."""
        row = self._row(session_id)
        return None if row is None else EngineRecord(*row[4:9])

    def _row(self, session_id: str) -> Row | None:
        with self._backend.read() as tx:
            return tx.one("driver", id=session_id)

    def age(self, session_id: str) -> int | None:
        """Return the milliseconds since the driver's last sign, by the database's clock; None when nobody drives."""
        with self._backend.read() as tx:
            row = tx.one("driver_age", id=session_id, at=database_time(self._now))
        return None if row is None or row[0] is None else int(row[0])

    def claim(
        self, session_id: str, expected: Driver | None, exec_id: str, *, replace_engine: bool, lease_ms: int | None
    ) -> Driver:
        """Take the conversation if its tuple is still ``expected`` (R9.1 to R9.5). Raises StaleError, MissingError.

        With ``lease_ms`` only if the driver's last sign is that old by the database's clock.
        """
        old = expected or _NEVER_CLAIMED
        with self._backend.session_lock(session_id), self._backend.write() as tx:
            if tx.one("exec", id=exec_id) is None:
                raise MissingError(f"no exec {exec_id}", hint="record it first with start_exec()")
            changed = tx.run(
                "claim_driver",
                id=session_id,
                exec=exec_id,
                at=database_time(self._now),
                lease=lease_ms,
                replace=int(replace_engine),
                generation=old.generation,
                old_exec=old.exec_id,
                provider_generation=old.provider_generation,
                provider_exec=old.provider_exec_id,
            )
            if not changed:
                raise _stale(tx, session_id)
            return _stored(tx, session_id)

    def release(self, session_id: str, driver: Driver) -> Driver:
        """Let go; the tuple must match (R9.6). Returns the new tuple. Raises StaleError."""
        with self._backend.session_lock(session_id), self._backend.write() as tx:
            changed = tx.run(
                "release_driver",
                id=session_id,
                generation=driver.generation,
                exec=driver.exec_id,
                provider_generation=driver.provider_generation,
                provider_exec=driver.provider_exec_id,
            )
            if not changed:
                raise _stale(tx, session_id)
            return _stored(tx, session_id)

    def finish(self, session_id: str, driver: Driver, outcome: str, *, engine_closed: bool) -> None:
        """Record the exit, retire if 3.10 says so, let go: one transaction (R9.7 to R9.9). Raises StaleError."""
        if not outcome:
            raise InvalidError("a driver exit needs an outcome")
        with self._backend.session_lock(session_id), self._backend.write() as tx:
            fence(tx, session_id, driver, self._now)
            at = self._now()
            session = tx.one("session", id=session_id)
            capture = session[20] if session else None
            tx.one(
                "insert_observed",
                session=session_id,
                key=f"driver:{driver.generation}:exit",
                exec=driver.exec_id,
                task=None,
                wave=None,
                at=at,
                payload=canonical({"type": "driver_exit", "outcome": outcome, "generation": driver.generation}),
                capture=capture,
            )
            retires = tx.one("retires", id=session_id)
            retire = bool(retires and retires[0]) and outcome in ("completed", "interrupted")
            tx.run("finish_driver", id=session_id, retire=int(retire), at=at, engine_closed=int(engine_closed))

    @contextlib.contextmanager
    def driving(self, session_id: str, driver: Driver) -> Iterator[None]:
        """Exclude claim, release and finish while a bounded external write runs (R9.11, D10).

        The tuple is checked by a conditional update under the conversation's lock; no database transaction is held.
        Waits up to 15 s for the lock: call it in a thread from async code. Raises StaleError, UnavailableError.
        """
        with self._backend.session_lock(session_id):
            with self._backend.write() as tx:
                fence(tx, session_id, driver, self._now)
            yield

    def heartbeat(self, session_id: str, driver: Driver) -> None:
        """Say that the driver is alive. Raises StaleError when it no longer drives."""
        with self._backend.write() as tx:
            fence(tx, session_id, driver, self._now)

    def record_connection(self, session_id: str, driver: Driver, endpoint: str | None, thread: str) -> None:
        """Store endpoint and thread under the fence (R11.1)."""
        with self._backend.write() as tx:
            fence(tx, session_id, driver, self._now)
            tx.run("record_connection", id=session_id, endpoint=endpoint, thread=thread)

    def record_process(self, session_id: str, driver: Driver, pid: int, started_at: int) -> None:
        """Store the engine's process under the fence (R11.2); ``started_at`` is unix milliseconds."""
        with self._backend.write() as tx:
            fence(tx, session_id, driver, self._now)
            tx.run("record_process", id=session_id, pid=pid, started_at=started_at)

    def hand_over(self, session_id: str, driver: Driver, provider: str) -> None:
        """Give the conversation to another provider under the fence (6.6)."""
        with self._backend.write() as tx:
            fence(tx, session_id, driver, self._now)
            tx.run("keep_thread", id=session_id)
            tx.run("hand_over", id=session_id, provider=provider)

    def record_launch(self, session_id: str, driver: Driver, stage: str) -> None:
        """Record that an engine was reserved or its start requested, once per provider generation (R11.3)."""
        if stage not in LAUNCH_STAGES:
            raise InvalidError(f"launch stage {stage!r} is none of {', '.join(LAUNCH_STAGES)}")
        with self._backend.write() as tx:
            fence(tx, session_id, driver, self._now)
            session = tx.one("session", id=session_id)
            tx.one(
                "insert_observed",
                session=session_id,
                key=f"provider:{driver.provider_generation}:{stage}",
                exec=None,
                task=None,
                wave=None,
                at=self._now(),
                payload=canonical(
                    {"type": "provider_launch", "stage": stage, "provider_generation": driver.provider_generation}
                ),
                capture=session[20] if session else None,
            )

    def launched(self, session_id: str, provider_generation: int, stage: str) -> bool:
        """Tell whether a launch stage is recorded for a provider generation (R9.13)."""
        with self._backend.read() as tx:
            return (
                tx.one("observed_payload", session=session_id, key=f"provider:{provider_generation}:{stage}")
                is not None
            )

    def driven_by(self, exec_id: str) -> list[str]:
        """Return the conversations an exec drives."""
        with self._backend.read() as tx:
            return [row[0] for row in tx.all("driven_sessions", exec=exec_id)]


def _stale(tx: Tx, session_id: str) -> StaleError | MissingError:
    row = tx.one("driver", id=session_id)
    if row is None:
        return MissingError(f"no session {session_id}")
    return StaleError(f"the driver of session {session_id} is not the expected one (now: {driver_of(row)})")


def _stored(tx: Tx, session_id: str) -> Driver:
    row = tx.one("driver", id=session_id)
    driver = None if row is None else driver_of(row)
    if driver is None:
        raise MissingError(f"no driver in session {session_id}")
    return driver
