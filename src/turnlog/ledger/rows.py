"""Rows as the queries give them, and their way to frozen values."""

from __future__ import annotations

from typing import Any

import msgspec

from turnlog.errors import CorruptError, InvalidError
from turnlog.ledger.backend import Row
from turnlog.model import Driver, Event, EventKind, Exec, Project, Request, Session, Task, Wave
from turnlog.receipts import decode

_KINDS = {kind.value: kind for kind in EventKind}


class RawEvent(msgspec.Struct, frozen=True):
    """One ledger row before its payload is parsed."""

    seq: int
    session_id: str
    thread: str | None
    turn: str | None
    kind: str
    provider_generation: int | None
    exec_id: str | None
    task_id: str | None
    wave_id: str | None
    observed_at: int
    payload: bytes

    def parse(self) -> Event:
        """Parse strictly (R5.3). Raises CorruptError for a broken payload or an unknown kind."""
        kind = _KINDS.get(self.kind)
        if kind is None:
            raise CorruptError(f"unknown kind {self.kind!r} in row {self.seq} of session {self.session_id}")
        try:
            return self._event(kind, decode(self.payload))
        except InvalidError as error:
            raise _no_json(self.seq, self.session_id, error) from error

    def unread(self) -> Event | None:
        """Return the row without its payload, for lists; None when its kind is unknown."""
        kind = _KINDS.get(self.kind)
        return None if kind is None else self._event(kind, None)

    def _event(self, kind: EventKind, payload: Any) -> Event:
        return Event(
            seq=self.seq,
            session_id=self.session_id,
            thread=self.thread,
            turn=self.turn,
            kind=kind,
            provider_generation=self.provider_generation,
            exec_id=self.exec_id,
            task_id=self.task_id,
            wave_id=self.wave_id,
            observed_at=self.observed_at,
            payload=payload,
        )


class AnswerTurn(msgspec.Struct, frozen=True):
    """One turn begun under a capture, with its completion and output (3.13)."""

    thread: str
    turn: str
    start_seq: int
    completion_seq: int | None
    status: str | None
    output_seq: int | None
    output: bytes | None


class Intent(msgspec.Struct, frozen=True):
    """A request of ours that has neither a start nor a refusal (D4), with the tuple that made it."""

    request_id: str
    thread: str | None
    turn: str | None
    seq: int
    exec_id: str | None
    provider_generation: int
    generation: int

    @property
    def author(self) -> Driver:
        """The driver tuple that made the intent, as far as a request is told by it."""
        return Driver(
            exec_id=self.exec_id,
            generation=self.generation,
            provider_generation=self.provider_generation,
            provider_exec_id=None,
        )


class EngineRecord(msgspec.Struct, frozen=True):
    """The engine's records beside the driver tuple (3.11)."""

    endpoint: str | None
    thread: str | None
    pid: int | None
    started_at: int | None
    heartbeat_at: int | None


def parse_payload(text: bytes, seq: int, session_id: str) -> Any:
    """Parse a stored payload. Raises CorruptError that names the row."""
    try:
        return decode(text)
    except InvalidError as error:
        raise _no_json(seq, session_id, error) from error


def _no_json(seq: int, session_id: str, error: InvalidError) -> CorruptError:
    return CorruptError(f"row {seq} of session {session_id} does not hold JSON: {error.message}")


def session_of(row: Row) -> Session:
    """Build a Session from the ``session`` query's columns."""
    return Session(
        id=row[0],
        title=row[1],
        title_source=row[2],
        kind=row[3],
        interactive=bool(row[4]),
        created_at=row[5],
        completed_at=row[6],
        ready_summary=row[7],
        cwd=row[8],
        repo=row[9],
        skill=row[10],
        provider=row[11],
        model=row[12],
        task_id=row[13],
        wave_id=row[14],
        flow_session_id=row[15],
        work_source=row[16],
        bound_at=row[17],
        primary_scope=row[18],
        artifact_key=row[19],
        captured=row[20],
        home_id=row[21],
    )


def exec_of(row: Row) -> Exec:
    """Build an Exec from the ``exec`` query's columns."""
    return Exec(
        id=row[0],
        trace_id=row[1],
        parent_id=row[2],
        via_agent=None if row[3] is None else bool(row[3]),
        command=row[4],
        repo=row[5],
        cwd=row[6],
        started_at=row[7],
        completed_at=row[8],
        outcome=row[9],
        exit_code=row[10],
        signal=row[11],
        error=row[12],
        boot_id=row[13],
        pid=row[14],
        pid_started_at=row[15],
        caller_session_id=row[16],
        caller_provider_generation=row[17],
        home_id=row[18],
    )


def driver_of(row: Row) -> Driver | None:
    """Build the driver tuple; a conversation that was never claimed has none (3.9)."""
    if row[1] == 0:
        return None
    return Driver(exec_id=row[0], generation=row[1], provider_generation=row[2], provider_exec_id=row[3])


def request_of(row: Row) -> Request:
    """Build a Request from the ``requests`` query's columns."""
    return Request(
        id=row[0],
        session_id=row[1],
        kind=row[2],
        text=row[3],
        by_exec=row[4],
        state=row[5],
        created_at=row[6],
        settled_at=row[7],
        detail=row[8],
    )


def wave_of(row: Row) -> Wave:
    """Build a Wave from the ``wave`` query's columns."""
    return Wave(
        id=row[0], name=row[1], repo=row[2], created_at=row[3], parent_id=row[4], retired_at=row[5], slug=row[6]
    )


def project_of(row: Row) -> Project:
    """Build a Project from the ``project`` query's columns."""
    return Project(
        id=row[0],
        wave_id=row[1],
        external_id=row[2],
        created_at=row[3],
        slug=row[4],
        name=row[5],
        retired_at=row[6],
    )


def task_of(row: Row) -> Task:
    """Build a Task from the ``task`` query's columns."""
    return Task(
        id=row[0],
        project_id=row[1],
        external_id=row[2],
        identifier=row[3],
        title=row[4],
        created_at=row[5],
        started_at=row[6],
        wave_id=row[7],
        worktree=row[8],
        retired_at=row[9],
    )
