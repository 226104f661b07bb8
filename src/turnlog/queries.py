"""Reads that join the store with the usage and history folds: what ``Ledger`` answers beyond single rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, tzinfo
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from turnlog.errors import CorruptError, InvalidError, MissingError
from turnlog.history import answer, identity, window
from turnlog.history import inputs as records
from turnlog.ledger import Store
from turnlog.ledger.events import Scope
from turnlog.ledger.rows import RawEvent
from turnlog.model import Event, EventKind, FinalAnswer, Gap, InputHistory, ProviderSession
from turnlog.receipts import decode
from turnlog.usage import Reduction, Stream, reduce_usage
from turnlog.usage.evidence import decode_manifest
from turnlog.usage.evidence import event_times as times_of
from turnlog.usage.report import Native, Sheet, UsageReport, UsageRow

__all__ = ["UsageReport", "UsageRow"]

REPORTS: Final = ("total", "session", "model", "daily")
_CHUNK: Final = 500
_NO_SCOPE: Final = Scope()


# --- one input


def readable(text: str | None) -> Any:
    """Return a stored payload's value, or None where it cannot be read: a detail of a list is unknown then (3.14)."""
    try:
        return None if text is None else decode(text)
    except InvalidError:
        return None


def event_times(store: Store, key: str) -> list[int]:
    """Return the recorder's times of an input in ordinal order, unix ms (3.6)."""
    return times_of(store.events.evidence(key))


def membership(manifest_payload: str | None) -> dict[str, Any] | None:
    """Return an input's flow membership as its manifest tells it; None = unknown (R17.2)."""
    payload = readable(manifest_payload)
    evidence = payload.get("evidence") if isinstance(payload, dict) else None
    if not isinstance(evidence, dict) or decode_manifest(evidence) is None:
        return None
    flow = evidence.get("flow")
    return dict(flow) if isinstance(flow, dict) else None


def provider_session(store: Store, key: str) -> ProviderSession | None:
    """Return the provider's id of the conversation of an input (3.7); rows that cannot be read are gaps (D8)."""
    rows, bad = _tolerant(store.events.input_summary(key, _NO_SCOPE))
    found = identity.provider_session(rows)
    return found if found is None or not bad else msgspec.structs.replace(found, gaps=(*found.gaps, *bad))


def final_answer(store: Store, key: str) -> FinalAnswer | None:
    """Return the final answer of an input (3.13, D7); rows that cannot be read are gaps (D8)."""
    unreadable: list[int] = []
    turns = []
    for row in store.events.answer_turns(key):
        output, seq = None, row.output_seq
        if row.output is not None and seq is not None:
            try:
                output = decode(row.output)
            except InvalidError:
                unreadable.append(seq)
                seq = None
        turns.append(
            answer.NativeTurn(
                thread=row.thread,
                turn=row.turn,
                completion_seq=row.completion_seq,
                status=row.status,
                output_seq=seq,
                output=output,
            )
        )
    events = []
    for seq, text in store.events.input_evidence(key):
        try:
            payload = decode(text)
        except InvalidError:
            unreadable.append(seq)
            continue
        events.append(answer.RecordedEvent(seq, payload.get("evidence") if isinstance(payload, dict) else None))
    return answer.final_answer(turns, events, unreadable=unreadable)


def input_history(store: Store, selector: str) -> InputHistory:
    """Return the record of one input (3.16); strict. Raises MissingError, InvalidError (ambiguous), CorruptError."""
    return _record(store, resolve_input(store, selector), strict=True)


def resolve_input(store: Store, selector: str) -> str:
    """Return the artifact key a selector names: session id (its current input), else a unique key prefix (R15.11)."""
    session = store.sessions.get(selector)
    if session is not None:
        return session.artifact_key
    keys = store.sessions.artifact_keys_by_prefix(selector) if selector else []
    if selector in keys:
        return selector
    if len(keys) > 1:
        raise InvalidError(f"input {selector} is ambiguous", hint="give more characters of the id")
    if not keys:
        raise MissingError(f"no session or input {selector[:80]!r}")
    return keys[0]


def _record(store: Store, key: str, *, strict: bool) -> InputHistory:
    found = store.lists.capture_facts(key)
    session = store.sessions.get(found[0]) if found else None
    if found is None or session is None:
        raise MissingError(f"no input {key}")
    _, facts, names = found
    events, bad = _read(store.events.input_summary(key, _NO_SCOPE), strict=strict)
    reduction = reduce_usage(events, predecessors=_predecessors(store, session.id, events))
    return _with_gaps(records.build_input_history(session, facts, events, reduction, names), bad)


def _orphan(store: Store, candidate: window.Candidate) -> InputHistory | None:
    session = store.sessions.get(candidate.session_id)
    raw = store.events.orphaned_history(candidate.session_id, candidate.thread, candidate.turn, _NO_SCOPE)
    events, bad = _tolerant(raw)
    if session is None or not events:
        return None
    start = next((event for event in events if event.kind is EventKind.STARTED), None)
    names = store.lists.work_names(start.task_id, start.wave_id) if start else records.WorkNames()
    reduction = reduce_usage(events, predecessors=_predecessors(store, session.id, events))
    return _with_gaps(records.orphan_history(session, events, reduction, names), bad)


def _with_gaps(record: InputHistory, bad: Sequence[Gap]) -> InputHistory:
    if not bad:
        return record
    usage = record.usage
    usage = msgspec.structs.replace(usage, gaps=usage.gaps + len(bad), gap_list=(*usage.gap_list, *bad))
    return msgspec.structs.replace(record, usage=usage, evidence_gaps=record.evidence_gaps + len(bad))


def _read(rows: Iterable[RawEvent], *, strict: bool) -> tuple[list[Event], list[Gap]]:
    return ([row.parse() for row in rows], []) if strict else _tolerant(rows)


def _tolerant(rows: Iterable[RawEvent]) -> tuple[list[Event], list[Gap]]:
    """Parse what can be parsed; a broken row is a gap and nothing else is lost with it (D8, promise 7)."""
    events: list[Event] = []
    bad: list[Gap] = []
    for row in rows:
        try:
            events.append(row.parse())
        except CorruptError:
            bad.append(Gap(kind="unreadable", seq=row.seq))
    return events, bad


def _predecessors(store: Store, session_id: str, events: Sequence[Event]) -> dict[tuple[str, str], list[Event]]:
    """Look up, in the whole thread, the turn before each turn whose counters run on across turns (D5)."""
    running = {
        (event.thread, event.turn)
        for event in events
        if event.kind is EventKind.USAGE
        and not (isinstance(event.payload, dict) and event.payload.get("provider") == "opencode")
    }
    found: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        if event.kind is EventKind.STARTED and (event.thread, event.turn) in running and event.thread and event.turn:
            rows = store.events.predecessor(session_id, event.thread, event.turn, event.seq)
            found[event.thread, event.turn] = _tolerant(rows)[0]
    return found


# --- lists of inputs


def inputs(store: Store, *, scope: Scope, caller: str | None, since: int, include_finished: bool) -> list[InputHistory]:
    """Return all inputs of a window, or exactly those of a caller (3.15). With a caller broken rows are errors (D8)."""
    if caller is None:
        found = store.lists.candidates(since=since, include_finished=include_finished, scope=scope, limit=None)
        return _details(store, window.ordered(found))
    keys = store.sessions.capture_keys(caller) or [caller]  # a session id means any of its inputs (R15.8)
    found = [each for key in keys for each in store.lists.of_caller(key, since, include_finished, scope)]
    return [_record(store, each.key, strict=True) for each in window.ordered(found) if each.key]


def recent_inputs(store: Store, *, scope: Scope, since: int, limit: int | None) -> tuple[list[InputHistory], bool]:
    """Return every unfinished and the newest finished inputs of a window; the budget comes before payloads (R15.7)."""
    found = store.lists.candidates(since=since, include_finished=True, scope=scope, limit=limit)
    kept, truncated = window.budget(found, limit)
    return _details(store, kept), truncated


def _details(store: Store, candidates: Iterable[window.Candidate]) -> list[InputHistory]:
    details = (
        _record(store, each.key, strict=False) if each.key is not None else _orphan(store, each) for each in candidates
    )
    return [each for each in details if each is not None]


# --- usage reports


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
    for session_id, reduction, bad in _reductions(store, Scope(wave, project, task), session):
        kept = [s for s in reduction.streams if _inside(s, first, last) and provider in (None, s.provider)]
        loose = [*reduction.loose_gaps, *bad]
        if not kept and not loose:
            continue
        if by == "session" and session_id not in natives:
            engine, facts = store.drivers.engine(session_id), store.sessions.get(session_id)
            natives[session_id] = Native(facts.provider if facts else None, engine.thread if engine else None)
        for stream in kept:
            sheet.add(_key(by, stream, session_id, zone), stream)
            totals.add("total", stream)
        fallback = _key(by, kept[0], session_id, zone) if kept else session_id if by == "session" else "unknown"
        if (first is None and last is None and provider is None) or kept:
            sheet.add_gaps(fallback if by != "total" else "total", loose)
            totals.add_gaps("total", loose)
    keys = sorted(sheet.keys()) if by == "daily" else sheet.keys()
    rows = tuple(sheet.row(key, natives.get(key)) for key in keys)
    return UsageReport(by=by, timezone=zone_name, rows=rows, totals=totals.row("total"))


def _reductions(store: Store, scope: Scope, session: str | None) -> Iterator[tuple[str, Reduction, list[Gap]]]:
    after = 0
    while chunk := store.lists.usage_captures(after, _CHUNK):
        for seq, session_id, key in chunk:
            after = seq
            if session in (None, session_id):
                events, bad = _tolerant(store.events.input_summary(key, scope))
                if events or bad:
                    yield (
                        session_id,
                        reduce_usage(events, predecessors=_predecessors(store, session_id, events)),
                        bad,
                    )
    for session_id, thread, turn in store.lists.usage_orphans():
        if session in (None, session_id):
            events, bad = _tolerant(store.events.orphaned_history(session_id, thread, turn, scope))
            if events or bad:
                yield session_id, reduce_usage(events, predecessors=_predecessors(store, session_id, events)), bad


def _key(by: str, stream: Stream, session_id: str, zone: tzinfo | None) -> str:
    if by == "session":
        return session_id
    if by == "model":
        return stream.model or "unknown"
    if by == "daily":
        return datetime.fromtimestamp(stream.at / 1000, UTC).astimezone(zone).date().isoformat()
    return "total"


def _inside(stream: Stream, first: int | None, last: int | None) -> bool:
    return (first is None or stream.at >= first) and (last is None or stream.at < last)


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
