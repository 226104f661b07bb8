"""Retention: transcripts that are old are dropped, a session's receipts are removed; totals stay what they were."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from turnlog import process
from turnlog.archive import decompress
from turnlog.errors import CorruptError, DrivenError, InvalidError, MissingError, UnavailableError
from turnlog.ledger import Store
from turnlog.ledger.retention import Driving, Removable, SessionTx
from turnlog.process import Liveness
from turnlog.queries import pricing
from turnlog.queries.folding import Folded, fold
from turnlog.queries.rollup import refresh
from turnlog.usage import pruned
from turnlog.usage.buckets import Rolled

__all__ = ["Compacted", "Progress", "Pruned", "PrunedMark", "compact", "marks", "prune_session", "prune_transcripts"]

_AT_ONCE: Final = 32 << 20
"""Archived bytes dropped in one transaction: others wait some ten milliseconds for it."""

_SOURCES: Final = 100

_SILENT_MS: Final = 3_600_000
"""A driver on another machine that has not been heard of for so long drives no more, as far as pruning goes."""


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """What was pruned, or would be.

    ``sources`` of which something was dropped, ``bytes`` stored of them, ``passages`` of text, ``sessions`` concerned;
    ``receipts`` removed. ``driven``: sessions left alone because a process drives them.
    """

    sources: int = 0
    bytes: int = 0
    passages: int = 0
    sessions: int = 0
    receipts: int = 0
    driven: tuple[str, ...] = ()


class Progress(msgspec.Struct, frozen=True):
    """How far a prune is."""

    sources: int
    sources_total: int
    bytes: int


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that the ledger takes; ``problem`` tells why unused space could not be given back."""

    before: int
    after: int
    problem: str | None = None


class PrunedMark(msgspec.Struct, frozen=True, kw_only=True):
    """When text of a conversation was dropped last, and when receipts were removed last; unix ms, None = never."""

    text_at: int | None
    receipts_at: int | None


def prune_transcripts(
    store: Store,
    *,
    before: int | None = None,
    provider: str | None = None,
    session: str | None = None,
    dry_run: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Pruned:
    """Drop archived bytes and text of conversations that were last heard of before an instant (unix ms; None: any).

    No receipt is touched. Of a source that tells of others, too, their lines stay. Each source is dropped in one
    transaction; a prune that was interrupted goes on when it is asked for again. A conversation that a process drives
    is left alone, and is an error (DrivenError) where it is the one asked for. Raises InvalidError for an instant that
    is not past, MissingError. O(turns and passages of what is old).
    """
    if before is not None and before > store.now():
        raise InvalidError("only what is past can be pruned", hint="name a day that is over, or a length of time: 90d")
    if session is not None and store.sessions.get(session) is None:
        raise MissingError(f"no session {session}")
    found = store.retention.conversations(before=before, provider=provider, session=session)
    now = store.now()
    busy = [each for each in found if _is_driven(each.driving, now)]
    if session is not None and busy:
        _refuse_driven(session, busy[0].driving, now)
    driven = tuple(each.session_id for each in busy)
    numbers = {each.number for each in found}.difference(each.number for each in busy)
    sources = store.retention.sources(numbers, before=None if session else before, provider=provider)
    told = Pruned(driven=driven)
    concerned: set[int] = set()
    done = 0
    while done < len(sources):
        batch = sources[done : done + _SOURCES]
        if dry_run:
            dropped = [store.retention.look(each, numbers, _ends_line) for each in batch]
        else:
            dropped = store.retention.drop(batch, numbers, _ends_line, most=_AT_ONCE)
        done += len(dropped)
        some = [each for each in dropped if each.pieces or each.passages]
        concerned.update(number for each in some for number in each.conversations)
        told = msgspec.structs.replace(
            told,
            sources=told.sources + len(some),
            bytes=told.bytes + sum(each.bytes for each in some),
            passages=told.passages + sum(each.passages for each in some),
            sessions=len(concerned),
        )
        if progress is not None:
            progress(Progress(done, len(sources), told.bytes))
    return told


def prune_session(
    store: Store, session: str, *, dry_run: bool = False, progress: Callable[[Progress], None] | None = None
) -> Pruned:
    """Drop everything of one conversation but its inputs and what it used.

    Its text goes first, as in ``prune_transcripts``. Then its receipts are removed, in one transaction, and an
    observation ``prune`` on each input keeps the streams that they were reduced to, so that every total stays. What
    tells of the same time again is not taken again. Raises DrivenError, MissingError. O(receipts of the conversation).
    """
    if store.sessions.get(session) is None:
        raise MissingError(f"no session {session}")
    if dry_run:
        with store.retention.look_at(session) as tx:
            _refuse_driven(session, tx.driving, tx.now)
            receipts: Sequence[Removable] = tx.removable()
        told = prune_transcripts(store, session=session, dry_run=True)
    else:
        told = prune_transcripts(store, session=session, progress=progress)
        with contextlib.suppress(UnavailableError):
            refresh(store, pricing.open_book)  # what the receipts are estimated to have cost is kept with them
        with store.retention.session(session) as tx:
            _refuse_driven(session, tx.driving, tx.now)
            receipts = tx.removable()
            if receipts:
                tx.remove(receipts, _stones(tx, session))
    return msgspec.structs.replace(told, receipts=len(receipts), sessions=max(told.sessions, int(bool(receipts))))


def compact(store: Store, *, before: int) -> Compacted:
    """Give the space of what was dropped back to the system. ``before`` is what the ledger took then, in bytes.

    While the ledger is copied nobody else can write: so not while a process drives a conversation.
    """
    problem = None
    try:
        if any(_is_driven(each, store.now()) for each in store.retention.driving()):
            problem = "a conversation is being driven"
        else:
            store.compact()
    except UnavailableError as error:
        problem = error.message
    return Compacted(before=before, after=store.size(), problem=problem)


def marks(store: Store, session: str) -> PrunedMark:
    """Return when something of a conversation was pruned: O(observations of it)."""
    stones = store.retention.stones(session)
    return PrunedMark(
        text_at=store.retention.text_pruned(session), receipts_at=stones[-1].observed_at if stones else None
    )


# --- what stands for removed receipts


def _stones(tx: SessionTx, session: str) -> list[tuple[str, int, str, dict[str, Any]]]:
    """Return what to keep of receipts: (artifact key, capture, source, evidence) for each input with usage or gaps."""
    folded = fold(tx.rollups, session, details=True)
    state = tx.rollups.state(session)
    held = {} if state.number is None else {row.key: row for row in tx.rollups.streams(state.number)}
    prices = {number: (source, version) for number, source, version in tx.rollups.prices()}
    calls = tx.calls()
    captures = tx.rollups.captures(session)
    current = captures[-1][0] if captures else None
    known = {each.seq for each in tx.stones()}
    streams: dict[int | None, list[pruned.Dropped]] = {}
    for place, (row, stream) in enumerate(zip(folded.streams, folded.details, strict=True)):
        if place in folded.removed:
            continue
        old = held.get(row.key)
        dropped = pruned.Dropped(
            stream=msgspec.structs.replace(stream, at=row.at),
            call=next((calls[seq] for seq in stream.seqs if seq in calls), None),
            calls=row.calls,
            task=row.kind.task,
            wave=row.kind.wave,
            estimate=None if old is None else _estimate(old, prices),
        )
        streams.setdefault(current if row.capture is None else row.capture, []).append(dropped)
    lost = _lost(folded, current, known)
    counts = {key: sum(each.key.startswith(f"{key}:") for each in tx.stones()) for _, key, _, _ in captures}
    found = []
    for capture, key, _, _ in captures:
        if capture in streams or capture in lost or capture == current:
            wire = folded.wire if capture == current else []
            number = counts[key] + 1
            source = pruned.SOURCE if number == 1 else f"{pruned.SOURCE}:{number}"
            found.append((key, capture, source, pruned.evidence(streams.get(capture, []), lost.get(capture, []), wire)))
    return found


def _lost(folded: Folded, current: int | None, known: Collection[int]) -> dict[int | None, list[pruned.Lost]]:
    """Return the gaps without stream by input; those of receipts that were removed earlier are kept already."""
    found: dict[int | None, list[pruned.Lost]] = {}
    details = iter(folded.loose_details)
    for each in folded.loose:
        mine = list(islice(details, sum(each.gaps.values())))
        gaps = tuple(gap for _, gap in mine if gap.seq not in known)
        if gaps:
            capture = current if mine[0][0] is None else mine[0][0]
            found.setdefault(capture, []).append(pruned.Lost(each.at, each.kind.task, each.kind.wave, gaps))
    return found


def _estimate(row: Rolled, prices: dict[int, tuple[str, str]]) -> pruned.Estimate | None:
    if row.estimated is None:
        return None
    source, version = prices.get(row.prices or 0, (None, None))
    return pruned.Estimate(row.estimated, row.low, source, version)


# --- who drives


def _is_driven(driving: Driving, now: int) -> bool:
    """Tell whether a process drives a session, as far as anybody can tell: one elsewhere does while it says so."""
    if driving.exec is None or driving.completed_at is not None:
        return False
    found = process.liveness(driving.boot, driving.pid, driving.started_at)
    if found is Liveness.UNKNOWN:
        return driving.heartbeat_at is None or now - driving.heartbeat_at < _SILENT_MS
    return found is Liveness.ALIVE


def _refuse_driven(session: str, driving: Driving, now: int) -> None:
    if _is_driven(driving, now):
        raise DrivenError(
            f"session {session} is being driven", hint="end that first: `turnlog interrupt`, or wait for the command"
        )


def _ends_line(data: bytes, size: int) -> bool:
    """Tell whether an archived piece ends with a line; of one that is damaged nobody knows what follows from it."""
    try:
        return decompress(data, size).endswith(b"\n")
    except CorruptError:
        return False
