"""What was recorded lately (7.3): thirteen kinds of facts, each read by its own index, merged newest first."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from heapq import merge
from itertools import islice
from typing import Any, Final

import msgspec
import orjson

from turnlog.errors import InvalidError
from turnlog.history.binds import TurnSpan
from turnlog.history.work import Activity
from turnlog.ledger.backend import Backend, Row, Tx

_SOURCES: Final = (
    ("activity_waves", "work_created", "wave"),
    ("activity_projects", "work_created", "project"),
    ("activity_tasks", "work_created", "task"),
    ("activity_prs", "pr_recorded", "pr"),
    ("activity_inputs", "input_captured", "input"),
    ("activity_completions", "input_completion_recorded", "input"),
    ("activity_turns", "provider_history_recorded", "turn"),
    ("activity_requests", "steer_issued", "request"),
    ("activity_bound", "bound", "session"),
    ("activity_closed", "conversation_closed", "session"),
    ("activity_retired_waves", "work_retired", "wave"),
    ("activity_retired_projects", "work_retired", "project"),
    ("activity_retired_tasks", "work_retired", "task"),
)
"""Queries with the kind of their facts and subject. Facts of one instant are told in this order, then by key."""

_END_OF_TIME: Final = 2**62


class BoundSession(msgspec.Struct, frozen=True):
    """A conversation that was bound to a task; ``bound_at`` unix ms."""

    id: str
    task_id: str
    wave_id: str | None
    title: str
    bound_at: int


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """The last fact of a page."""

    at: int
    rank: int
    key: str


class Activities:
    """What was recorded lately in one ledger."""

    _backend: Backend

    def activity(self, *, since: int, limit: int, cursor: str | None) -> tuple[list[Activity], str | None]:
        """Return what was recorded since an instant (unix ms), newest first, and the cursor of the next page.

        O(limit) rows of each kind, beside imported conversations of subagents, which are passed over. Raises
        InvalidError for a cursor that is none.
        """
        place = None if cursor is None else _place(cursor)
        with self._backend.read() as tx:
            found = [
                [(-row[0], rank, row[1], row) for row in self._facts(tx, rank, since, limit + 1, place)]
                for rank in range(len(_SOURCES))
            ]
            page = list(islice(merge(*found), limit + 1))
            names: dict[tuple[str | None, str | None], Row] = {}
            facts = [_fact(tx, names, rank, row) for _, rank, _, row in page[:limit]]
        if len(page) <= limit:
            return facts, None
        at, rank, key, _ = page[limit - 1]
        return facts, _cursor(_Place(-at, rank, key))

    def _facts(self, tx: Tx, rank: int, since: int, limit: int, place: _Place | None) -> list[Row]:
        before, key = _END_OF_TIME, ""
        if place is not None:
            before = place.at - 1 if rank < place.rank else place.at
            key = place.key if rank == place.rank else ""
        return tx.all(_SOURCES[rank][0], since=since, before=before, key=key, limit=limit)

    def bound_sessions(
        self, *, since: int, tasks: str | None, waves: str | None, cursor: str | None, limit: int | None
    ) -> tuple[list[BoundSession], str | None]:
        """Return conversations bound to a task since an instant, newest first, and the cursor of the next page.

        ``tasks`` and ``waves`` are JSON lists of ids, None = any. O(limit), with a filter O(bound conversations).
        """
        place = None if cursor is None else _place(cursor)
        with self._backend.read() as tx:
            rows = tx.all(
                "bound_sessions",
                since=since,
                before=_END_OF_TIME if place is None else place.at,
                key="" if place is None else place.key,
                tasks=tasks,
                waves=waves,
                limit=-1 if limit is None else limit + 1,
            )
        found = [BoundSession(*row) for row in rows]
        if limit is None or len(found) <= limit:
            return found, None
        last = found[limit - 1]
        return found[:limit], _cursor(_Place(last.bound_at, 0, last.id))

    def bound_to_task(self, task_id: str) -> list[BoundSession]:
        """Return every conversation bound to a task."""
        with self._backend.read() as tx:
            return [BoundSession(*row) for row in tx.all("bound_to_task", task=task_id)]

    def turn_spans(self, session_id: str) -> list[TurnSpan]:
        """Return when the turns of a conversation began and ended, in no order: O(its turns)."""
        with self._backend.read() as tx:
            return [TurnSpan(*row) for row in tx.all("turn_spans", session=session_id)]


def _fact(tx: Tx, names: dict[tuple[str | None, str | None], Row], rank: int, row: Row) -> Activity:
    at, key, session, turn, task, wave, title, outcome, detail, mark = row
    (_, kind, subject), imported = _SOURCES[rank], False
    if kind == "steer_issued":
        kind = f"{mark}_issued"
    elif mark:
        imported = True
        kind = "provider_history_recorded" if kind == "input_captured" else kind
    pair = (task, wave)
    if pair not in names:
        names[pair] = tx.one("work_names", task=task, wave=wave) or (None, None)
    return Activity(
        at=at,
        kind=kind,
        subject=subject,
        id=key,
        session=session,
        turn=turn,
        task=task,
        task_identifier=names[pair][0],
        wave=wave,
        wave_name=names[pair][1],
        title=title,
        outcome=outcome,
        detail=detail,
        imported=imported,
    )


def _cursor(place: _Place) -> str:
    return urlsafe_b64encode(orjson.dumps(msgspec.structs.astuple(place))).decode().rstrip("=")


def _place(cursor: str) -> _Place:
    try:
        raw: Any = orjson.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return msgspec.convert(raw, _Place)
    except (ValueError, msgspec.ValidationError):
        raise InvalidError(f"unknown cursor {cursor[:80]!r}", hint="use the `next` of an earlier page") from None
