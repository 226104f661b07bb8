"""Which inputs a list shows, before any payload is read (semantics 3.15, D13)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from turnlog.errors import InvalidError
from turnlog.history.inputs import CaptureFacts, WorkNames
from turnlog.history.window import Candidate
from turnlog.ledger.backend import Backend, Question, Tx
from turnlog.ledger.events import Scope
from turnlog.receipts import canonical, decode


class _Filter(msgspec.Struct, frozen=True):
    """A scope as JSON lists of ids; None in a list's place means: not restricted."""

    scoped: bool
    captures: str
    waves: str | None
    tasks: str | None


class Lists:
    """List reads of one ledger."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def candidates(self, *, since: int, include_finished: bool, scope: Scope, limit: int | None) -> list[Candidate]:
        """Return the candidates of a window, unordered (R15.4).

        With a limit: every held one and at least the newest ``limit + 1`` others, so that budget and truncation can
        be decided (R15.6) at a cost of O(limit + held).
        """
        with self._backend.read() as tx:
            where = _filter(tx, scope)
            bound = -1 if limit is None else limit + 1
            tx.expect(_questions(where, since, bound))
            found = _captures(tx, "held_captures", where, since, bound) + _orphans(
                tx, "held_orphans", where, since, bound
            )
            others = _captures(tx, "settled_captures", where, since, bound) + _orphans(
                tx, "settled_orphans", where, since, bound
            )
            # What ended in the window but began before it sorts behind all others: needed only while there is room.
            if include_finished and (limit is None or len(others) <= limit):
                others += _captures(tx, "ended_captures", where, since, bound)
                others += _orphans(tx, "ended_orphans", where, since, bound)
            return found + others

    def of_caller(self, key: str, since: int, include_finished: bool, scope: Scope) -> list[Candidate]:  # noqa: FBT001
        """Return every listed input whose capture names this caller (R15.8), in the window and scope."""
        with self._backend.read() as tx:
            where = _filter(tx, scope)
            rows = tx.all(
                "captures_of_caller",
                key=key,
                since=since,
                finished=int(include_finished),
                scoped=int(where.scoped),
                scope=where.captures,
            )
            return [_candidate(row) for row in rows]

    def capture_facts(self, key: str) -> tuple[str, CaptureFacts, WorkNames] | None:
        """Return the session, the facts of an input and the names of its work; None when there is no such input."""
        with self._backend.read() as tx:
            row = tx.one("capture_facts", key=key)
        if row is None:
            return None
        try:
            captured = decode(row[11])
        except InvalidError:
            captured = None  # only damage can do that; what it said is unknown then
        told = captured if isinstance(captured, dict) else {}
        facts = CaptureFacts(
            seq=row[0],
            artifact_key=row[2],
            observed_at=row[4],
            current=bool(row[7]),
            caller_artifact_key=row[3],
            task_id=row[5],
            wave_id=row[6],
            work_source=told.get("work_source", row[10]),
            cwd=told.get("cwd") or row[12],
            skill=told.get("skill"),
            provider=told.get("provider"),
            model=told.get("model"),
            imported=told.get("cwd", "") is None,
        )
        return row[1], facts, WorkNames(task_identifier=row[8], wave_name=row[9])

    def work_names(self, task_id: str | None, wave_id: str | None) -> WorkNames:
        """Return the identifier of a task and the address of a wave."""
        with self._backend.read() as tx:
            row = tx.one("work_names", task=task_id, wave=wave_id)
        return WorkNames(task_identifier=row[0], wave_name=row[1]) if row else WorkNames()


def _filter(tx: Tx, scope: Scope) -> _Filter:
    if scope.wave is None and scope.project is None and scope.task is None:
        return _Filter(False, "[]", None, None)  # noqa: FBT003
    waves = None if scope.wave is None else {row[0] for row in tx.all("scope_waves", word=scope.wave)}
    tasks: set[Any] | None = None
    if scope.project is not None:
        tasks = {row[0] for row in tx.all("scope_project_tasks", word=scope.project)}
    if scope.task is not None:
        named = {row[0] for row in tx.all("scope_tasks", word=scope.task)}
        tasks = named if tasks is None else tasks & named
    wave_list = None if waves is None else canonical(sorted(waves))
    task_list = None if tasks is None else canonical(sorted(tasks))
    captures = [row[0] for row in tx.all("scope_captures", waves=wave_list, tasks=task_list)]
    return _Filter(True, canonical(captures), wave_list, task_list)  # noqa: FBT003


def _questions(where: _Filter, since: int, limit: int) -> Iterator[Question]:
    window = {"since": since, "limit": limit, "scoped": int(where.scoped)}
    for name in ("held", "settled"):
        yield f"{name}_captures", {**window, "scope": where.captures}
        yield f"{name}_orphans", {**window, "waves": where.waves, "tasks": where.tasks}


def _captures(tx: Tx, query: str, where: _Filter, since: int, limit: int) -> list[Candidate]:
    rows = tx.all(query, since=since, limit=limit, scoped=int(where.scoped), scope=where.captures)
    return [_candidate(row) for row in rows]


def _candidate(row: tuple[Any, ...]) -> Candidate:
    return Candidate(
        session_id=row[1],
        capture=row[0],
        key=row[2],
        thread=None,
        turn=None,
        started_at=row[3],
        ended_at=row[4],
        held=bool(row[5]),
    )


def _orphans(tx: Tx, query: str, where: _Filter, since: int, limit: int) -> list[Candidate]:
    rows = tx.all(query, since=since, limit=limit, scoped=int(where.scoped), waves=where.waves, tasks=where.tasks)
    return [
        Candidate(
            session_id=row[0],
            capture=None,
            key=None,
            thread=row[1],
            turn=row[2],
            started_at=row[3],
            ended_at=row[4],
            held=bool(row[5]),
        )
        for row in rows
    ]
