"""The history record of one input or orphan group (3.16), and the words lists use for it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from turnlog.history.work import NO_WORK, name_work
from turnlog.model import NATIVE_KINDS, Event, EventKind, InputHistory, ProviderRecord, Session, Usage
from turnlog.usage import Reduction, Stream, total
from turnlog.usage.evidence import observations
from turnlog.usage.streams import I64_MAX

Key = tuple[str | None, str | None]


class CaptureFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the ``captured`` row of an input says. ``current``: it is the conversation's current input.

    ``cwd`` to ``model`` are what the input was captured with; they stay true when the conversation goes on otherwise.
    One that was ``imported`` says nothing of its folder and model: ``cwd`` is what its sources tell.
    """

    seq: int
    artifact_key: str
    observed_at: int
    current: bool
    caller_artifact_key: str | None = None
    task_id: str | None = None
    wave_id: str | None = None
    work_source: str | None = None
    cwd: str | None = None
    skill: str | None = None
    provider: str | None = None
    model: str | None = None
    imported: bool = False


class WorkNames(msgspec.Struct, frozen=True, kw_only=True):
    """Names of the input's Task and Wave (the ids that ``attribution`` gives), looked up by the ledger."""

    task_identifier: str | None = None
    wave_name: str | None = None


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What an input was launched with (R16.1)."""

    harness: str = "unknown"
    surface: str = "unknown"
    model: str | None = None
    skill: str | None = None
    repo: str | None = None
    worktree: str | None = None
    task_pr_id: str | None = None


_UNNAMED = WorkNames()


def build_input_history(
    session: Session,
    capture: CaptureFacts,
    events: Sequence[Event],
    reduction: Reduction,
    names: WorkNames = _UNNAMED,
) -> InputHistory:
    """Build the record of one input from its summary rows and their reduction (3.16, R15.1, R15.2)."""
    manifest_row = _manifest_row(events)
    task_id, wave_id = attribution(capture, events)
    terminal = reduction.terminal
    started = [event.observed_at for event in events if event.kind is EventKind.STARTED]
    attempts = [at for at in (min(started, default=None), reduction.first_attempt_at) if at is not None]
    facts = _facts(session, capture, reduction)
    return InputHistory(
        session_id=session.id,
        captured=capture.seq,
        artifact_key=capture.artifact_key,
        caller_artifact_key=capture.caller_artifact_key,
        task_pr_id=facts.task_pr_id,
        repo=facts.repo,
        worktree=facts.worktree,
        task_id=task_id,
        wave_id=wave_id,
        task_identifier=names.task_identifier,
        work_source=capture.work_source,
        wave_name=names.wave_name,
        skill=facts.skill,
        observed_at=capture.observed_at if manifest_row is None else manifest_row.observed_at,
        first_provider_attempt_at=min(attempts, default=None),
        recorded_outcome=None if terminal is None else terminal.outcome,
        recorded_at=None if terminal is None else terminal.ended_ms,
        providers=_records(events, reduction, (task_id, wave_id)),
        usage=reduction.usage,
        evidence_gaps=reduction.evidence_gaps,
        harness=facts.harness,
        model=facts.model,
        surface=facts.surface,
    )


def orphan_history(
    session: Session, events: Sequence[Event], reduction: Reduction, names: WorkNames = _UNNAMED
) -> InputHistory:
    """Build the record of an orphan group: the native rows of one (thread, turn) that no capture owns (3.15 b).

    It has no input, so nothing is known of it but what its rows say. ``events`` must not be empty.
    """
    start = next((event for event in events if event.kind is EventKind.STARTED), None)
    facts = _Facts()
    return InputHistory(
        session_id=session.id,
        captured=None,
        artifact_key=None,
        caller_artifact_key=None,
        task_pr_id=None,
        repo=None,
        worktree=None,
        task_id=None if start is None else start.task_id,
        wave_id=None if start is None else start.wave_id,
        task_identifier=names.task_identifier,
        work_source=None,
        wave_name=names.wave_name,
        skill=None,
        observed_at=min(event.observed_at for event in events),
        first_provider_attempt_at=None if start is None else start.observed_at,
        recorded_outcome=None,
        recorded_at=None,
        providers=_records(events, reduction, (None, None)),
        usage=reduction.usage,
        evidence_gaps=reduction.evidence_gaps,
        harness=facts.harness,
        model=None,
        surface=facts.surface,
    )


def attribution(capture: CaptureFacts, events: Sequence[Event]) -> tuple[str | None, str | None]:
    """Return (task id, wave id) of an input: the manifest row's, else the capture's (R15.2)."""
    row = _manifest_row(events)
    if row is not None and (row.task_id is not None or row.wave_id is not None):
        return row.task_id, row.wave_id
    return capture.task_id, capture.wave_id


def status_label(history: InputHistory) -> str:
    """Say how an input went: every provider outcome in order, so that no later success hides a failure (R16.9)."""
    if not history.providers:
        return "unknown" if history.recorded_outcome is None else f"{history.recorded_outcome} (recorded)"
    words = []
    for record in history.providers:
        word = record.outcome or "unknown"
        words.append(f"{word} (recorded)" if record.kind == "recorded_attempt" else word)
    return " → ".join(words)


def work_label(history: InputHistory) -> str:
    """Say which work an input is for, marked if its checkout said so; ``mixed`` if a record was for other (R16.10)."""
    own = (history.task_id, history.wave_id)
    if any((record.task_id, record.wave_id) != own for record in history.providers):
        return "mixed (see providers)"
    name = name_work(history.task_id, history.task_identifier, history.wave_id, history.wave_name)
    return f"{name} (checkout)" if history.work_source == "checkout" and name != NO_WORK else name


def total_tokens(usage: Usage) -> int | None:
    """Add input and output; None when either is unknown or the sum does not fit 64 bits (R16.11)."""
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    tokens = usage.input_tokens + usage.output_tokens
    return tokens if tokens <= I64_MAX else None


def _manifest_row(events: Sequence[Event]) -> Event | None:
    """The row of the manifest, decodable or not: its time and attribution are the observer's, not the evidence's."""
    seqs = {seq for seq, source, _ in observations(events) if source == "manifest.json"}
    return next((event for event in events if event.seq in seqs), None)


def _facts(session: Session, capture: CaptureFacts, reduction: Reduction) -> _Facts:
    manifest = reduction.manifest
    if manifest is not None:
        return _Facts(
            harness=manifest.harness,
            surface=manifest.surface,
            model=manifest.model,
            skill=manifest.skill,
            repo=manifest.repo,
            worktree=manifest.cwd,
            task_pr_id=manifest.flow.task_pr_id if manifest.flow is not None else None,
        )
    if not capture.current:
        # The session row may tell of a later input; the captured row is this input's own record.
        called = max(reduction.streams, key=lambda each: (each.at, each.id), default=None) if capture.imported else None
        return _Facts(
            harness=capture.provider or "unknown",
            model=capture.model if called is None else called.model,
            skill=capture.skill,
            repo=session.repo,
            worktree=capture.cwd,
        )
    return _Facts(
        harness=session.provider or "unknown",
        surface="interactive" if session.interactive else "headless",
        model=session.model,
        skill=session.skill,
        repo=session.repo,
        worktree=session.cwd,
    )


def _records(
    events: Sequence[Event], reduction: Reduction, recorded_work: tuple[str | None, str | None]
) -> tuple[ProviderRecord, ...]:
    """One record per native turn and per recorded attempt (R16.3 to R16.7)."""
    found: dict[Key, dict[EventKind, Event]] = {}
    for event in sorted(events, key=attrgetter("seq")):
        if event.kind in NATIVE_KINDS:
            found.setdefault((event.thread, event.turn), {})[event.kind] = event
    groups = dict(sorted(found.items(), key=lambda each: (each[0][0] or "", each[0][1] or "")))
    by_turn: dict[Key, list[Stream]] = {}
    by_attempt: dict[str, list[Stream]] = {}
    for stream in reduction.streams:
        if (stream.thread, stream.turn) in groups:
            by_turn.setdefault((stream.thread, stream.turn), []).append(stream)
        elif stream.attempt_key is not None:  # a stream shown under its native turn is not shown again (R16.5)
            by_attempt.setdefault(stream.attempt_key, []).append(stream)
    records = [
        _native_record(key, rows, _turn_usage(key, by_turn.get(key, []), reduction)) for key, rows in groups.items()
    ]
    records += [
        ProviderRecord(
            kind="recorded_attempt",
            attempt_key=attempt.key,
            task_id=recorded_work[0],
            wave_id=recorded_work[1],
            started_at=attempt.started_at,
            completed_at=attempt.completed_at,
            outcome=attempt.outcome,
            usage=total(by_attempt.get(attempt.key, [])),
        )
        for attempt in reduction.attempts
    ]
    return tuple(sorted(records, key=_by_time))


def _native_record(key: Key, rows: dict[EventKind, Event], usage: Usage) -> ProviderRecord:
    start, completion = rows.get(EventKind.STARTED), rows.get(EventKind.COMPLETED)
    status = completion.payload.get("status") if completion and isinstance(completion.payload, dict) else None
    return ProviderRecord(
        kind="native_turn",
        thread=key[0],
        turn=key[1],
        start_seq=None if start is None else start.seq,
        completion_seq=None if completion is None else completion.seq,
        exec_id=None if start is None else start.exec_id,
        task_id=None if start is None else start.task_id,
        wave_id=None if start is None else start.wave_id,
        started_at=None if start is None else start.observed_at,
        completed_at=None if completion is None else completion.observed_at,
        outcome=status if isinstance(status, str) else None,
        usage=usage,
    )


def _turn_usage(key: Key, streams: Sequence[Stream], reduction: Reduction) -> Usage:
    name = f"native:{key[0] or ''}:{key[1] or ''}"
    return total(streams, [gap for gap in reduction.loose_gaps if gap.stream == name])


def _by_time(record: ProviderRecord) -> tuple[bool, int]:
    """Started, else completed; what has neither comes first (R16.7)."""
    at = record.started_at if record.started_at is not None else record.completed_at
    return at is not None, at or 0
