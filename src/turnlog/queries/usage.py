"""Usage reports over the ledger (contract: ``turnlog usage``)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, date, datetime, tzinfo
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from turnlog.errors import InvalidError
from turnlog.ledger import Store
from turnlog.ledger.events import Scope
from turnlog.ledger.rows import RawEvent
from turnlog.model import Gap
from turnlog.queries import predecessors, tolerant
from turnlog.usage import Reduction, reduce_usage
from turnlog.usage.report import Native, Sheet, UsageReport

REPORTS: Final = ("total", "session", "model", "daily")
_CHUNK: Final = 500


def usage_report(
    store: Store,
    by: str,
    *,
    since: str | int | None = None,
    until: str | int | None = None,
    timezone: str | None = None,
    provider: str | None = None,
    session: str | None = None,
    wave: str | None = None,
    project: str | None = None,
    task: str | None = None,
    breakdown: bool = False,
) -> UsageReport:
    """Add usage up over the ledger by ``total session model daily`` (contract §2).

    A stream belongs to the day on which its call or turn began. ``since`` and ``until`` are days (inclusive,
    ``YYYY-MM-DD`` in the zone) or unix milliseconds. Raises InvalidError. Cost: one read of each input's summary.
    """
    if by not in REPORTS:
        raise InvalidError(f"no usage report {by!r}", hint=f"choose one of {', '.join(REPORTS)}")
    zone, zone_name = resolve_zone(timezone)
    first, last = _bound(since, zone, end=False), _bound(until, zone, end=True)
    sheet, totals = Sheet(breakdown=breakdown), Sheet(breakdown=breakdown)
    natives: dict[str, Native] = {}
    for part in _parts(store, Scope(wave, project, task), session):
        kept = [s for s in part.reduction.streams if _inside(s.at, first, last) and provider in {None, s.provider}]
        # A gap without a stream belongs to the time and the provider of its turns.
        loose = part.loose if _inside(part.at, first, last) and provider in {None, part.provider} else []
        if not kept and not loose:
            continue
        if by == "session" and part.session_id not in natives:
            natives[part.session_id] = _native(store, part.session_id)
        for stream in kept:
            sheet.add(_key(by, stream.at, stream.model, part.session_id, zone), stream)
            totals.add("total", stream)
        sheet.add_gaps(_key(by, part.at, None, part.session_id, zone), loose)
        totals.add_gaps("total", loose)
    keys = sorted(sheet.keys()) if by == "daily" else sheet.keys()
    rows = tuple(sheet.row(key, natives.get(key)) for key in keys)
    return UsageReport(by=by, timezone=zone_name, rows=rows, totals=totals.row("total"))


class _Part(msgspec.Struct, frozen=True):
    """One input, or one turn without an input, reduced. ``at`` is when its first row was recorded."""

    session_id: str
    provider: str | None
    at: int
    reduction: Reduction
    loose: list[Gap]


def _parts(store: Store, scope: Scope, session: str | None) -> Iterator[_Part]:
    for session_id, key in _inputs(store, session):
        yield from _part(store, session_id, store.events.input_summary(key, scope))
    for session_id, thread, turn in store.lists.usage_orphans():
        if session in {None, session_id}:
            yield from _part(store, session_id, store.events.orphaned_history(session_id, thread, turn, scope))


def _inputs(store: Store, session: str | None) -> Iterator[tuple[str, str]]:
    if session is not None:
        yield from ((session, key) for key in store.sessions.capture_keys(session))
        return
    after = 0
    while chunk := store.lists.usage_captures(after, _CHUNK):
        for seq, session_id, key in chunk:
            after = seq
            yield session_id, key


def _part(store: Store, session_id: str, rows: list[RawEvent]) -> Iterator[_Part]:
    events, bad = tolerant(rows)
    if rows:
        reduction = reduce_usage(events, predecessors=predecessors(store, session_id, events))
        facts = store.sessions.get(session_id)
        at = min(row.observed_at for row in rows)
        yield _Part(session_id, facts.provider if facts else None, at, reduction, [*reduction.loose_gaps, *bad])


def _native(store: Store, session_id: str) -> Native:
    engine, facts = store.drivers.engine(session_id), store.sessions.get(session_id)
    return Native(facts.provider if facts else None, engine.thread if engine else None)


def _key(by: str, at: int, model: str | None, session_id: str, zone: tzinfo | None) -> str:
    if by == "session":
        return session_id
    if by == "model":
        return model or "unknown"
    if by == "daily":
        return datetime.fromtimestamp(at / 1000, UTC).astimezone(zone).date().isoformat()
    return "total"


def _inside(at: int, first: int | None, last: int | None) -> bool:
    return (first is None or at >= first) and (last is None or at < last)


def resolve_zone(name: str | None) -> tuple[tzinfo | None, str]:
    """Return a time zone and its name; None means the local one. Raises InvalidError for an unknown name."""
    if name is None or name == "local":
        local = os.environ.get("TZ", "").removeprefix(":")
        if not local:
            parts = str(Path("/etc/localtime").resolve()).partition("zoneinfo/")
            local = parts[2] or datetime.now().astimezone().tzname() or "local"
        return None, local
    try:
        return ZoneInfo(name), name
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidError(f"no time zone {name!r}", hint="use a name like Europe/Berlin or UTC") from error


def _bound(value: str | int | None, zone: tzinfo | None, *, end: bool) -> int | None:
    if value is None or isinstance(value, int):
        return value
    try:
        day = date.fromisoformat(value)
    except ValueError as error:
        raise InvalidError(f"not a day: {value!r}", hint="write YYYY-MM-DD") from error
    if end:
        day = date.fromordinal(day.toordinal() + 1)
    start = datetime(day.year, day.month, day.day, tzinfo=zone) if zone else datetime(day.year, day.month, day.day)  # noqa: DTZ001 - local midnight
    return int(start.timestamp() * 1000)
