"""Drivers, engines, and requests to a running driver (3.9 to 3.11, D20)."""

from __future__ import annotations

import contextlib

from turnlog.api.base import Part
from turnlog.errors import InvalidError, MissingError
from turnlog.ledger.rows import EngineRecord
from turnlog.model import (
    Driver,
    Request,
    Session,
)


class Drivers(Part):
    """Drivers, engines, and requests to a running driver (3.9 to 3.11, D20)."""

    def claim_driver(
        self,
        session_id: str,
        expected: Driver | None,
        exec_id: str,
        *,
        replace_engine: bool = False,
        lease_ms: int | None = None,
    ) -> Driver:
        """Take the conversation if its driver tuple is still ``expected`` (R9.1 to R9.5). Raises StaleError.

        With ``lease_ms`` only if the driver gave no sign for so many milliseconds, by the database's clock.
        """
        return self._store.drivers.claim(
            session_id, expected, exec_id, replace_engine=replace_engine, lease_ms=lease_ms
        )

    def release_driver(self, session_id: str, driver: Driver) -> Driver:
        """Let go without an exit; returns the new tuple (R9.6). Raises StaleError."""
        return self._store.drivers.release(session_id, driver)

    def finish_driver(self, session_id: str, driver: Driver, outcome: str, *, engine_closed: bool = False) -> None:
        """Record the driver's exit and retire the conversation if 3.10 says so; never a completion (R9.8)."""
        self._store.drivers.finish(session_id, driver, outcome, engine_closed=engine_closed)

    def driver(self, session_id: str) -> Driver | None:
        """Return the stored driver tuple; None when never claimed."""
        return self._store.drivers.get(session_id)

    def driving(self, session_id: str, driver: Driver) -> contextlib.AbstractContextManager[None]:
        """Guard a bounded external write: only while the tuple is current, excluded against claims (R9.11, D10)."""
        return self._store.drivers.driving(session_id, driver)

    def driver_age(self, session_id: str) -> int | None:
        """Return the milliseconds since the driver's last sign, by the database's clock; None when nobody drives."""
        return self._store.drivers.age(session_id)

    def heartbeat(self, session_id: str, driver: Driver) -> None:
        """Say that the driver lives. Raises StaleError when it no longer drives."""
        self._store.drivers.heartbeat(session_id, driver)

    def record_connection(self, session_id: str, driver: Driver, endpoint: str | None, thread: str) -> None:
        """Store the engine's endpoint and thread. Raises StaleError."""
        self._store.drivers.record_connection(session_id, driver, endpoint, thread)

    def connection(self, session_id: str) -> tuple[str, str] | None:
        """Return (endpoint, thread), only if an endpoint is stored (R11.1)."""
        engine = self._store.drivers.engine(session_id)
        if engine is None or engine.endpoint is None or engine.thread is None:
            return None
        return engine.endpoint, engine.thread

    def thread(self, session_id: str) -> str | None:
        """Return the provider's id of the conversation; it survives engines."""
        engine = self._store.drivers.engine(session_id)
        return engine.thread if engine else None

    def record_process(self, session_id: str, driver: Driver, pid: int, started_at: int) -> None:
        """Store the engine's pid and start time (unix ms). Raises StaleError."""
        self._store.drivers.record_process(session_id, driver, pid, started_at)

    def process(self, session_id: str) -> tuple[int, int] | None:
        """Return (pid, start time), only if both are stored (R11.2)."""
        engine = self._store.drivers.engine(session_id)
        if engine is None or engine.pid is None or engine.started_at is None:
            return None
        return engine.pid, engine.started_at

    def engine(self, session_id: str) -> EngineRecord | None:
        """Return all engine records of a conversation, with the driver's heartbeat."""
        return self._store.drivers.engine(session_id)

    def hand_over(self, session_id: str, driver: Driver, provider: str) -> Session:
        """Give the conversation to another provider, within the same input (6.6). Raises StaleError."""
        self._store.drivers.hand_over(session_id, driver, provider)
        session = self._store.sessions.get(session_id)
        if session is None:
            raise MissingError(f"no session {session_id}")
        return session

    def driven_sessions(self, exec_id: str) -> list[str]:
        """Return the conversations that an Exec drives now."""
        return self._store.drivers.driven_by(exec_id)

    def open_questions(self, session_id: str) -> list[str]:
        """Return the ids of permission questions of the current input that have no answer."""
        return [name for name, _ in self._store.events.open_questions(session_id)]

    def record_launch(self, session_id: str, driver: Driver, stage: str) -> None:
        """Record ``reserved`` or ``spawn_requested`` once per provider generation (R11.3). Raises StaleError."""
        self._store.drivers.record_launch(session_id, driver, stage)

    def launched(self, session_id: str, provider_generation: int, stage: str) -> bool:
        """Tell whether a launch stage is recorded (R9.13)."""
        return self._store.drivers.launched(session_id, provider_generation, stage)

    def request(self, session_id: str, kind: str, text: str | None = None, *, exec_id: str | None = None) -> str:
        """Queue ``steer``, ``interrupt`` or ``permission`` for the driving process; return the request's id.

        ``text``: what to say; for a permission ``<question> once|always|reject``. Raises InvalidError, MissingError.
        """
        if self._store.sessions.get(session_id) is None:
            raise MissingError(f"no session {session_id}")
        if kind != "interrupt" and not (text or "").strip():
            raise InvalidError(f"a {kind} needs a text", hint="say what the agent should do, or how to answer")
        if exec_id is not None and self._store.work.exec(exec_id) is None:
            raise MissingError(f"no exec {exec_id}", hint="record it first with start_exec()")
        return self._store.work.request(session_id, kind, text, exec_id)

    def requests(self, session_id: str, *, open_only: bool = False) -> list[Request]:
        """Return the requests of a conversation, oldest first."""
        return self._store.work.requests(session_id, open_only=open_only)

    def request_state(self, request_id: str) -> Request | None:
        """Return one request, or None."""
        return self._store.work.get_request(request_id)

    def take_requests(self, session_id: str, driver: Driver) -> list[Request]:
        """Take the queued requests as the driver; each is taken once. Raises StaleError."""
        return self._store.work.take_requests(session_id, driver)

    def settle_request(self, request_id: str, state: str, detail: str | None = None) -> None:
        """Record what became of a request: ``accepted not_steerable uncertain refused``."""
        self._store.work.settle_request(request_id, state, detail)

    def change_token(self) -> int:
        """Return a number that changes when another process has committed; cheap enough to poll."""
        return self._store.change_token()
