"""Reads that join the store with the usage and history folds: what ``Ledger`` answers beyond single rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from turnlog.errors import CorruptError, InvalidError, MissingError
from turnlog.history import answer, identity, window
from turnlog.history import inputs as records
from turnlog.ledger import Store
from turnlog.ledger.events import Scope
from turnlog.ledger.rows import RawEvent
from turnlog.ledger.snapshot import Snapshot, snapshot
from turnlog.model import NATIVE_KINDS, Event, EventKind, FinalAnswer, Gap, InputHistory, ProviderSession, Session
from turnlog.receipts import decode
from turnlog.usage import reduce_usage
from turnlog.usage.evidence import decode_manifest
from turnlog.usage.evidence import event_times as times_of

_NO_SCOPE: Final = Scope()

_AT_ONCE: Final = 64
"""So many inputs are read before the first of them is reduced."""


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
    rows, bad = tolerant(store.events.input_summary(key, _NO_SCOPE))
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
    with snapshot(store) as seen:
        return _records(seen, [_look_at_input(seen, resolve_input(seen, selector), _Owners(seen), strict=True)])[0]


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


class _Owner(msgspec.Struct, frozen=True):
    """The conversation of an input (None: there is none), which several inputs may share.

    ``copies`` are its receipts that repeat a call which another conversation owns; ``copied`` are those calls.
    """

    session: Session | None
    copies: frozenset[int]
    copied: frozenset[str]


class _Owners(dict[str, _Owner]):
    """Conversations by id, each asked for once."""

    def __init__(self, seen: Snapshot) -> None:
        super().__init__()
        self._seen = seen

    def __missing__(self, session_id: str) -> _Owner:
        session = self._seen.sessions.get(session_id)
        with self._seen.rollups.read() as tx:
            copies = frozenset(seq for seq, _, _ in tx.copies(session_id))
            found = self[session_id] = _Owner(session, copies, tx.copied_calls(session_id))
        return found


class _Look(msgspec.Struct, frozen=True):
    """What is read of an input, or of a turn without one (``facts`` None), before it is reduced.

    ``counted`` are the ``events`` without receipts that repeat a call which another conversation owns, whose names are
    ``copied``; ``bad`` the gaps of rows that cannot be read, ``shown`` the events with those rows.
    """

    session: Session
    facts: records.CaptureFacts | None
    names: records.WorkNames
    shown: list[Event]
    counted: list[Event]
    copied: frozenset[str]
    bad: list[Gap]


def _details(store: Store, candidates: Iterable[window.Candidate], *, strict: bool = False) -> list[InputHistory]:
    """Build the records of candidates, in their order: O(their receipts). ``strict``: rows that cannot be read raise.

    Raises MissingError for an input that is not there.
    """
    pending = list(candidates)
    found: list[InputHistory] = []
    with snapshot(store) as seen:
        owners = _Owners(seen)
        while pending:
            several, pending = pending[:_AT_ONCE], pending[_AT_ONCE:]
            seen.expect(
                sessions=dict.fromkeys(each.session_id for each in several if each.session_id not in owners),
                inputs=[each.key for each in several if each.key is not None],
                orphans=[(each.session_id, each.thread, each.turn) for each in several if each.key is None],
            )
            looks = [
                _look_at_orphan(seen, each, owners)
                if each.key is None
                else _look_at_input(seen, each.key, owners, strict=strict)
                for each in several
            ]
            found += _records(seen, [look for look in looks if look is not None])
    return found


def _records(seen: Snapshot, looks: Sequence[_Look]) -> list[InputHistory]:
    starts = [_running(look.session.id, look.counted) for look in looks]
    before = iter(_before(seen, looks, [start for each in starts for start in each]))
    return [
        _record(look, {(start[1], start[2]): next(before) for start in mine})
        for look, mine in zip(looks, starts, strict=True)
    ]


def _before(seen: Snapshot, looks: Sequence[_Look], starts: Sequence[tuple[str, str, str, int]]) -> list[list[Event]]:
    """Return, for each start, what can be read of the turn before it (D5). What an input was read for is at hand."""
    turns = seen.events.turns_before(starts)
    wanted = {(start[0], start[1], turn) for start, turn in zip(starts, turns, strict=True) if turn is not None}
    held: dict[tuple[str, str | None, str | None], list[Event]] = {}
    for look in looks if wanted else ():
        if look.counted is look.shown:  # it lacks no row
            for event in look.shown:
                key = (look.session.id, event.thread, event.turn)
                if key in wanted and event.kind in NATIVE_KINDS:
                    held.setdefault(key, []).append(event)
    asked = [
        (start[0], start[1], turn, start[3])
        for start, turn in zip(starts, turns, strict=True)
        if turn is not None and (start[0], start[1], turn) not in held
    ]
    read = iter(seen.events.rows_before(asked))
    found: list[list[Event]] = []
    for start, turn in zip(starts, turns, strict=True):
        if turn is None:
            found.append([])
        elif (rows := held.get((start[0], start[1], turn))) is not None:
            found.append([event for event in rows if event.seq < start[3]])
        else:
            found.append(tolerant(next(read))[0])
    return found


def _record(look: _Look, before: dict[tuple[str, str], list[Event]]) -> InputHistory:
    reduction = reduce_usage(look.counted, predecessors=before, copied=look.copied)
    if look.facts is None:
        return _with_gaps(records.orphan_history(look.session, look.shown, reduction, look.names), look.bad)
    return _with_gaps(
        records.build_input_history(look.session, look.facts, look.shown, reduction, look.names), look.bad
    )


def _look_at_input(seen: Snapshot, key: str, owners: _Owners, *, strict: bool) -> _Look:
    found = seen.lists.capture_facts(key)
    owner = owners[found[0]] if found else None
    if found is None or owner is None or owner.session is None:
        raise MissingError(f"no input {key}")
    _, facts, names = found
    raw = seen.events.input_summary(key, _NO_SCOPE)
    events, bad = ([row.parse() for row in raw], []) if strict else tolerant(raw)
    shown = _shown(events, raw) if bad else events
    return _Look(owner.session, facts, names, shown, _counted(owner, events), owner.copied, bad)


def _look_at_orphan(seen: Snapshot, candidate: window.Candidate, owners: _Owners) -> _Look | None:
    owner = owners[candidate.session_id]
    raw = seen.events.orphaned_history(candidate.session_id, candidate.thread, candidate.turn, _NO_SCOPE)
    events, bad = tolerant(raw)
    shown = _shown(events, raw) if bad else events
    if owner.session is None or not shown:
        return None
    start = next((event for event in shown if event.kind is EventKind.STARTED), None)
    names = seen.lists.work_names(start.task_id, start.wave_id) if start else records.WorkNames()
    return _Look(owner.session, None, names, shown, _counted(owner, events), owner.copied, bad)


def _counted(owner: _Owner, events: list[Event]) -> list[Event]:
    return [event for event in events if event.seq not in owner.copies] if owner.copies else events


def _shown(events: Sequence[Event], raw: Iterable[RawEvent]) -> list[Event]:
    """Add the rows that cannot be read, without payload: what they say is unknown, that they are there is not."""
    read = {event.seq: event for event in events}
    rows = (read.get(row.seq) or row.unread() for row in raw)
    return [row for row in rows if row is not None]


def _with_gaps(record: InputHistory, bad: Sequence[Gap]) -> InputHistory:
    if not bad:
        return record
    usage = record.usage
    usage = msgspec.structs.replace(usage, gaps=usage.gaps + len(bad), gap_list=(*usage.gap_list, *bad))
    return msgspec.structs.replace(record, usage=usage, evidence_gaps=record.evidence_gaps + len(bad))


def tolerant(rows: Iterable[RawEvent]) -> tuple[list[Event], list[Gap]]:
    """Parse what can be parsed; a broken row is a gap and nothing else is lost with it (D8, promise 7)."""
    events: list[Event] = []
    bad: list[Gap] = []
    for row in rows:
        try:
            events.append(row.parse())
        except CorruptError:
            bad.append(Gap(kind="unreadable", seq=row.seq))
    return events, bad


def _running(session_id: str, events: Sequence[Event]) -> list[tuple[str, str, str, int]]:
    """Return the starts of turns whose counters may run on from the turn before: (session, thread, turn, seq) (D5).

    Those are none where every receipt counts a call or a message by itself.
    """
    running: set[tuple[str | None, str | None]] = set()
    lasting: set[tuple[str | None, str | None]] = set()
    for event in events:
        if event.kind is EventKind.USAGE:
            payload = event.payload if isinstance(event.payload, dict) else {}
            if payload.get("provider") != "opencode":
                running.add((event.thread, event.turn))
            if payload.get("source") != "file":
                lasting.add((event.thread, event.turn))
    if not running & lasting:
        return []
    return [
        (session_id, event.thread, event.turn, event.seq)
        for event in events
        if event.kind is EventKind.STARTED and (event.thread, event.turn) in running and event.thread and event.turn
    ]


# --- lists of inputs


def inputs(store: Store, *, scope: Scope, caller: str | None, since: int, include_finished: bool) -> list[InputHistory]:
    """Return all inputs of a window, or exactly those of a caller (3.15). With a caller broken rows are errors (D8)."""
    if caller is None:
        found = store.lists.candidates(since=since, include_finished=include_finished, scope=scope, limit=None)
        return _listed(store, window.ordered(found))
    keys = store.sessions.capture_keys(caller) or [caller]  # a session id means any of its inputs (R15.8)
    found = [each for key in keys for each in store.lists.of_caller(key, since, include_finished, scope)]
    return _details(store, [each for each in window.ordered(found) if each.key], strict=True)


def recent_inputs(store: Store, *, scope: Scope, since: int, limit: int | None) -> tuple[list[InputHistory], bool]:
    """Return every unfinished and the newest finished inputs of a window; the budget comes before payloads (R15.7)."""
    with snapshot(store) as seen:
        found = seen.lists.candidates(since=since, include_finished=True, scope=scope, limit=limit)
        kept, truncated = window.budget(found, limit)
        return _listed(seen, kept), truncated


def _listed(store: Store, candidates: Iterable[window.Candidate]) -> list[InputHistory]:
    try:
        return _details(store, candidates)
    except MissingError as error:  # nothing is ever deleted
        raise CorruptError(f"the ledger is damaged: {error.message}, but a list names it") from error
