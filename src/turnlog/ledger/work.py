"""Verbs on execs (semantics 2.1) and requests to running drivers (D20); those on work stand beside them (2.4)."""

from __future__ import annotations

import uuid

import msgspec

from turnlog.errors import ConflictError, InvalidError, MissingError
from turnlog.ledger import homes
from turnlog.ledger.activity import Activities
from turnlog.ledger.events import fence
from turnlog.ledger.planning import Planning
from turnlog.ledger.rows import exec_of, request_of
from turnlog.model import Driver, Exec, Request

EXEC_OUTCOMES = ("succeeded", "failed", "interrupted")
REQUEST_KINDS = ("steer", "interrupt", "permission")
REQUEST_MOVES = {
    "queued": ("sent", "not_steerable", "uncertain", "refused"),
    "sent": ("accepted", "not_steerable", "uncertain", "refused"),
}


class Work(Planning, Activities):
    """Execs, work records, requests and what happened, of one ledger."""

    # --- execs

    def start_exec(self, new: Exec) -> Exec:
        """Record a process (2.1) and its home. Raises ConflictError when the id is taken."""
        with self._backend.write() as tx:
            if tx.one("exec", id=new.id) is not None:
                raise ConflictError(f"exec {new.id} is recorded already")
            home = homes.note(tx)
            tx.run(
                "insert_exec",
                id=new.id,
                trace=new.trace_id,
                parent=new.parent_id,
                via_agent=None if new.via_agent is None else int(new.via_agent),
                caller_session=new.caller_session_id,
                caller_generation=new.caller_provider_generation,
                command=new.command,
                repo=new.repo,
                cwd=new.cwd,
                at=new.started_at,
                boot=new.boot_id,
                pid=new.pid,
                pid_started_at=new.pid_started_at,
                home=home,
            )
        return msgspec.structs.replace(new, home_id=home)

    def agent_parent(self, session_id: str, provider_generation: int, origin_exec: str) -> str | None:
        """Return the exec that drives the calling session, if the caller is its current engine (1.4)."""
        with self._backend.read() as tx:
            row = tx.one("agent_parent", session=session_id, generation=provider_generation, origin=origin_exec)
            return None if row is None else str(row[0])

    def end_exec(
        self, exec_id: str, outcome: str, *, exit_code: int | None, signal: str | None, error: str | None
    ) -> None:
        """Record an end once; the same end again changes nothing. Raises MissingError, ConflictError."""
        if outcome not in EXEC_OUTCOMES:
            raise InvalidError(f"exec outcome {outcome!r} is none of {', '.join(EXEC_OUTCOMES)}")
        with self._backend.write() as tx:
            changed = tx.run(
                "end_exec", id=exec_id, at=self._now(), outcome=outcome, exit_code=exit_code, signal=signal, error=error
            )
            if changed:
                return
            row = tx.one("exec", id=exec_id)
            if row is None:
                raise MissingError(f"no exec {exec_id}")
            old = exec_of(row)
            if (old.outcome, old.exit_code) != (outcome, exit_code):
                raise ConflictError(f"exec {exec_id} ended already: {old.outcome}")

    def exec(self, exec_id: str) -> Exec | None:
        """Return an exec by id or unique prefix; None without a match. Raises InvalidError when ambiguous (2.1)."""
        with self._backend.read() as tx:
            row = tx.one("exec", id=exec_id)
            if row is None and exec_id:
                found = tx.all("exec_ids_by_prefix", prefix=exec_id)
                if len(found) > 1:
                    raise InvalidError(f"exec {exec_id} is ambiguous", hint="give more characters of the id")
                row = tx.one("exec", id=found[0][0]) if found else None
            return None if row is None else exec_of(row)

    def execs(self, *, search: str | None, repo: str | None, cursor: str | None, limit: int | None) -> list[Exec]:
        """Return execs newest first, after the cursor's (2.1)."""
        with self._backend.read() as tx:
            after = tx.one("exec", id=cursor) if cursor is not None else None
            if cursor is not None and after is None:
                raise InvalidError(f"unknown cursor {cursor!r}", hint="use the `next` of an earlier page")
            rows = tx.all(
                "exec_page",
                search=search,
                repo=repo,
                after_id=cursor,
                after_at=after[7] if after else None,
                limit=-1 if limit is None else limit,
            )
            return [exec_of(row) for row in rows]

    # --- requests

    def request(self, session_id: str, kind: str, text: str | None, exec_id: str | None) -> str:
        """Queue a request to the running driver; return its id. Raises InvalidError, MissingError."""
        if kind not in REQUEST_KINDS:
            raise InvalidError(f"request kind {kind!r} is none of {', '.join(REQUEST_KINDS)}")
        request_id = f"req_{uuid.uuid4().hex}"
        with self._backend.write() as tx:
            if tx.one("session", id=session_id) is None:
                raise MissingError(f"no session {session_id}")
            tx.run(
                "insert_request",
                id=request_id,
                session=session_id,
                kind=kind,
                text=text,
                exec=exec_id,
                at=self._now(),
            )
        return request_id

    def requests(self, session_id: str, *, open_only: bool) -> list[Request]:
        """Return the requests of a conversation, oldest first."""
        with self._backend.read() as tx:
            return [request_of(row) for row in tx.all("requests", session=session_id, open=int(open_only))]

    def get_request(self, request_id: str) -> Request | None:
        """Return one request, or None."""
        with self._backend.read() as tx:
            row = tx.one("request", id=request_id)
            return None if row is None else request_of(row)

    def take_requests(self, session_id: str, driver: Driver) -> list[Request]:
        """Mark the queued requests as sent under the fence and return them: each is taken once. Raises StaleError."""
        with self._backend.write() as tx:
            fence(tx, session_id, driver, self._now)
            taken = []
            for row in tx.all("requests", session=session_id, open=1):
                request = request_of(row)
                if request.state == "queued":
                    tx.run("move_request", id=request.id, state="sent", at=None, detail=None, from_state="queued")
                    taken.append(request)
            return taken

    def settle_request(self, request_id: str, state: str, detail: str | None) -> None:
        """Move a request to its final state; a settled one stays. Raises InvalidError, MissingError."""
        with self._backend.write() as tx:
            row = tx.one("request", id=request_id)
            if row is None:
                raise MissingError(f"no request {request_id}")
            old = request_of(row).state
            if old == state or old not in REQUEST_MOVES:
                return
            if state not in REQUEST_MOVES[old]:
                raise InvalidError(f"a request cannot go from {old} to {state}")
            tx.run("move_request", id=request_id, state=state, at=self._now(), detail=detail, from_state=old)
