"""One session folded: what the reducer makes of its receipts, as the rows of a roll-up."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from turnlog.errors import CorruptError, InvalidError
from turnlog.ledger.backend import Row
from turnlog.ledger.rollups import RollupTx, State, Wire
from turnlog.model import Event, EventKind, Gap
from turnlog.receipts import decode
from turnlog.usage import pruned
from turnlog.usage.buckets import Gaps, Kind, Loose, Rolled, roll, settled
from turnlog.usage.groups import instant
from turnlog.usage.pruned import Dropped, Tombstone
from turnlog.usage.reduce import reduce_streams
from turnlog.usage.streams import Stream

_KINDS: Final = {kind.value: kind for kind in EventKind}

Key = tuple[str, str]
"""Thread and turn; empty = the provider named none."""


class Unit(msgspec.Struct):
    """What is reduced together: an input (``capture`` is its seq), or a turn without input."""

    capture: int | None
    task: str | None = None
    wave: str | None = None
    events: list[Event] = []
    unreadable: list[Gap] = []
    at: int | None = None
    """When its first row was recorded, unix ms."""

    def add(self, event: Event | Gap, at: int) -> None:
        """Add a row, or what is known of one that cannot be read."""
        if isinstance(event, Gap):
            self.unreadable.append(event)
        else:
            self.events.append(event)
        self.at = at if self.at is None else min(at, self.at)


class Start(msgspec.Struct, frozen=True):
    """The start of a turn with the attribution that it was frozen with."""

    seq: int
    at: int
    capture: int | None
    task: str | None
    wave: str | None


class Folded(msgspec.Struct):
    """One session's streams, gaps without stream, and turns that were told with their subagents.

    ``details`` are the streams as the reducer gives them, in the order of ``streams``, ``loose_details`` the gaps
    without stream by their input; empty unless asked for. ``removed`` are the streams (by their place) that rest on
    receipts which were removed.
    """

    session: str
    exists: bool = True
    streams: list[Rolled] = []
    loose: list[Loose] = []
    wire: Wire = []
    covered: bool = False
    details: list[Stream] = []
    loose_details: list[tuple[int | None, Gap]] = []
    removed: dict[int, Dropped] = {}


def fold(tx: RollupTx, session: str, *, details: bool = False) -> Folded:
    """Fold a session anew: O(receipts). Rows that cannot be read are gaps; copies of others' calls do not count."""
    exists, provider = tx.provider(session)
    found = Folded(session, exists)
    if not exists:
        return found
    rows = tx.receipts(session)
    copies = {seq for seq, _, _ in tx.copies(session)}
    if copies:
        rows = [row for row in rows if row[0] not in copies]
    starts = _starts(rows)
    units, running = _units(session, rows, tx.captures(session), starts)
    stones = [pruned.tombstones(unit.events)[0] for unit in units]
    copied = tx.copied_calls(session) if any(stones) else frozenset()
    kept = {each.stream.id for several in stones for stone in several for each in stone.dropped}
    for unit, own in zip(units, stones, strict=True):
        before = _predecessors(tx, session, unit.events, running) if running else {}
        streams, unplaced = reduce_streams(unit.events, predecessors=before, copied=copied)
        if kept:
            mine = {each.stream.id for stone in own for each in stone.dropped}
            streams = tuple(each for each in streams if each.id in mine or not _is_kept(each, kept))
        _add_streams(found, unit, streams, starts, own)
        loose = _add_loose(found, unit, provider or "", streams, unplaced, own)
        if details:
            found.details += streams
            found.loose_details += [(unit.capture, gap) for gap in loose]
    return found


def _add_streams(
    found: Folded, unit: Unit, streams: Iterable[Stream], starts: Mapping[Key, Start], stones: Iterable[Tombstone]
) -> None:
    fallback = unit.at or 0
    own = {each.stream.id: each for stone in stones for each in stone.dropped}
    for stream in streams:
        removed = own.get(stream.id)
        if removed is not None:
            found.removed[len(found.streams)] = removed
            row = roll(stream, capture=unit.capture, task=removed.task, wave=removed.wave, fallback=fallback)
            row.calls = removed.calls
            found.streams.append(row)
            continue
        start = starts.get((stream.thread or "", stream.turn or ""))
        task, wave = (unit.task, unit.wave) if start is None else (start.task, start.wave)
        found.streams.append(roll(stream, capture=unit.capture, task=task, wave=wave, fallback=fallback))
        if _is_wire(stream):
            found.wire.append(_wire(stream, start, unit.events))
    for stone in stones:
        found.wire += [each for each in stone.wire if each not in found.wire]


def _add_loose(
    found: Folded,
    unit: Unit,
    provider: str,
    streams: Iterable[Stream],
    unplaced: Iterable[Gap],
    stones: Sequence[Tombstone],
) -> list[Gap]:
    """Add the gaps of a unit that belong to no stream; return them in the order of ``found.loose``."""
    removed = {stone.seq for stone in stones}
    loose = [*(gap for gap in unplaced if gap.seq not in removed), *unit.unreadable]
    if loose:
        at = min((stream.at for stream in streams), default=_first(unit))
        kind = Kind(provider, None, None, unit.task, unit.wave)
        found.loose.append(Loose(kind, settled(at, unit.at or 0), _counts(loose)))
    for each in (each for stone in stones for each in stone.lost):
        found.loose.append(Loose(Kind(provider, None, None, each.task, each.wave), each.at, _counts(each.gaps)))
        loose += each.gaps
    return loose


def _is_kept(stream: Stream, kept: Collection[str]) -> bool:
    """Tell whether what a receipt told again is counted already, under the input it was for."""
    return stream.id in kept or pruned.turn_id(stream) in kept


def is_covered(tx: RollupTx, session: str, overlay: dict[str, Folded]) -> bool:
    """Tell whether a session is a subagent whose work its parent's receipts already count.

    ``overlay`` holds sessions that are known better than the roll-ups know them.
    """
    for parent in tx.parents(session):
        newer = overlay.get(parent.session)
        state = parent.state if newer is None else State(None, newer.wire, newer.covered)
        if state.covered:
            return True
        for turn, began, ended in state.wire:
            if parent.turn is not None and parent.turn == turn:
                return True
            if parent.began is not None and began <= parent.began and (ended is None or parent.began <= ended):
                return True
    return False


def _starts(rows: Iterable[Row]) -> dict[Key, Start]:
    return {
        (row[1] or "", row[2] or ""): Start(row[0], row[4], row[6], row[7], row[8])
        for row in rows
        if row[3] == "started"
    }


def _units(
    session: str, rows: Iterable[Row], captures: Iterable[Row], starts: dict[Key, Start]
) -> tuple[list[Unit], set[tuple[str | None, str | None]]]:
    """Sort rows into inputs and turns without input; also the turns whose counters may run on from earlier ones.

    Those are none where every receipt counts a call or a message by itself.
    """
    inputs: dict[int, Unit] = {}
    by_key: dict[str, Unit] = {}
    for seq, key, task, wave in captures:
        inputs[seq] = by_key[key] = Unit(seq, task, wave)
    orphans: dict[Key, Unit] = {}
    running: set[tuple[str | None, str | None]] = set()
    lasting = False
    for row in rows:
        if row[3] == "observed":
            unit = by_key.get(row[5].partition(":")[0])
            if unit is None:
                continue
        else:
            key = (row[1] or "", row[2] or "")
            start = starts.get(key)
            if start is None or start.capture is None:
                unit = orphans.get(key)
                if unit is None:
                    unit = orphans[key] = Unit(None, start.task, start.wave) if start else Unit(None)
            else:
                unit = inputs.get(start.capture)
                if unit is None:  # only damage can do that; what was used counts all the same
                    unit = inputs[start.capture] = Unit(start.capture, start.task, start.wave)
        event = _event(session, row)
        unit.add(event, row[4])
        if row[3] == "usage" and isinstance(event, Event):
            payload = event.payload if isinstance(event.payload, dict) else {}
            if payload.get("provider") != "opencode":
                running.add((row[1], row[2]))
                lasting = lasting or payload.get("source") != "file"
    return [*inputs.values(), *orphans.values()], running if lasting else set()


def _event(session: str, row: Row) -> Event | Gap:
    try:
        payload = decode(row[9])
    except (InvalidError, CorruptError):
        return Gap(kind="unreadable", seq=row[0])
    return Event(
        seq=row[0],
        session_id=session,
        thread=row[1],
        turn=row[2],
        kind=_KINDS[row[3]],
        provider_generation=None,
        exec_id=None,
        task_id=row[7],
        wave_id=row[8],
        observed_at=row[4],
        payload=payload,
    )


def _predecessors(
    tx: RollupTx, session: str, events: Iterable[Event], running: set[tuple[str | None, str | None]]
) -> dict[tuple[str, str], list[Event]]:
    """Look up, in the whole thread, the turn before each turn whose counters run on across turns (D5)."""
    found: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        if event.kind is EventKind.STARTED and (event.thread, event.turn) in running and event.thread and event.turn:
            rows = tx.before(session, event.thread, event.turn, event.seq)
            parsed = []
            for row in rows:
                try:
                    parsed.append(row.parse())
                except CorruptError:
                    continue
            found[event.thread, event.turn] = parsed
    return found


def _is_wire(stream: Stream) -> bool:
    """Tell whether Claude told a whole turn, which includes its subagents (D1)."""
    return (
        stream.provider == "claude"
        and stream.final
        and stream.source == "native"
        and stream.id == f"native:{stream.thread or ''}:{stream.turn or ''}"
    )


def _wire(stream: Stream, start: Start | None, events: Iterable[Event]) -> tuple[str | None, int, int | None]:
    began = stream.at if start is None else min(stream.at, start.at)
    ends = [
        event.observed_at
        for event in events
        if event.kind is EventKind.COMPLETED and (event.thread, event.turn) == (stream.thread, stream.turn)
    ]
    return stream.turn, began, max(ends, default=None)


def _first(unit: Unit) -> int:
    """Return when a unit without streams began, by its provider's time where one is told."""
    told = [at for event in unit.events if (at := instant(event.payload)) is not None]
    return min(told, default=unit.at or 0)


def _counts(gaps: Iterable[Gap]) -> Gaps:
    found: Gaps = {}
    for gap in gaps:
        found[gap.kind] = found.get(gap.kind, 0) + 1
    return found
