"""Execs (2.1, 1.4), and the work they are for (2.4)."""

from __future__ import annotations

import json
import uuid

from turnlog.api.base import positive
from turnlog.api.planning import Planning
from turnlog.errors import MissingError
from turnlog.model import Exec


class Work(Planning):
    """Execs (2.1, 1.4), and the work they are for (2.4)."""

    def start_exec(
        self,
        *,
        id: str | None = None,
        trace_id: str | None = None,
        parent_id: str | None = None,
        via_agent: bool | None = None,
        caller_session_id: str | None = None,
        caller_provider_generation: int | None = None,
        command: str | list[str] | None = None,
        repo: str | None = None,
        cwd: str | None = None,
    ) -> Exec:
        """Record this process as a new Exec with its boot id, pid and start time.

        With a calling session, ``parent_id`` is the caller's origin exec: the parent becomes the exec that drives
        that session now only if generation and origin are the current engine's (1.4). The trace is the parent's.
        Raises MissingError for a parent that is not in this ledger.
        """
        parent = parent_id
        if caller_session_id is not None and caller_provider_generation is not None and parent_id is not None:
            parent = (
                self._store.work.agent_parent(caller_session_id, caller_provider_generation, parent_id) or parent_id
            )
        known = self._store.work.exec(parent) if parent else None
        if parent and (known is None or known.id != parent):
            raise MissingError(f"no exec {parent}", hint="record it first with start_exec()")
        from turnlog import process

        identity = process.identify()
        new_id = id or str(uuid.uuid4())
        return self._store.work.start_exec(
            Exec(
                id=new_id,
                trace_id=trace_id or (known.trace_id if known else str(uuid.uuid4())),
                parent_id=parent,
                via_agent=(caller_session_id is not None) if via_agent is None else via_agent,
                command=command if isinstance(command, str | None) else json.dumps(command, ensure_ascii=False),
                repo=repo,
                cwd=cwd,
                started_at=self._store.now(),
                completed_at=None,
                outcome=None,
                exit_code=None,
                signal=None,
                error=None,
                boot_id=identity.boot_id if identity else None,
                pid=identity.pid if identity else None,
                pid_started_at=identity.started_at if identity else None,
                caller_session_id=caller_session_id,
                caller_provider_generation=caller_provider_generation,
            )
        )

    def end_exec(
        self,
        exec_id: str,
        outcome: str,
        *,
        exit_code: int | None = None,
        signal: str | None = None,
        error: str | None = None,
    ) -> None:
        """Record how an Exec ended: ``succeeded failed interrupted``, once."""
        self._store.work.end_exec(exec_id, outcome, exit_code=exit_code, signal=signal, error=error)

    def exec(self, exec_id: str) -> Exec | None:
        """Return an Exec by id or unique prefix. Raises InvalidError for an ambiguous prefix."""
        return self._store.work.exec(exec_id)

    def execs(
        self, *, search: str | None = None, repo: str | None = None, cursor: str | None = None, limit: int | None = 100
    ) -> list[Exec]:
        """Return Execs newest first; ``search`` is a literal part of the command; the cursor is the last id."""
        return self._store.work.execs(search=search, repo=repo, cursor=cursor, limit=positive(limit))
