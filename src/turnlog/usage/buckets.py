"""Roll-up arithmetic: streams as reports need them, and their sums by quarter of an hour. Pure.

Days, weeks and months of any time zone, and 5-hour windows, begin with a quarter of an hour (UTC): sums by quarter give
them all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from turnlog.usage.prices import Book, Call, Estimate
from turnlog.usage.streams import Stream

QUARTER_MS: Final = 900_000
COUNTERS: Final = ("input", "output", "total_input", "cache_read", "cache_write", "cache_write_1h", "reasoning")

MOST: Final = 2**43
"""No stream has so many tokens. What claims to is not summed (gap ``overflow``), so that sums always fit 64 bits."""

_LAST_MS: Final = 253_370_764_800_000
"""Begin of the last year of the calendar, unix ms."""

Gaps = dict[str, int]
"""Counts by kind of gap."""


class Kind(msgspec.Struct, frozen=True, array_like=True):
    """What streams are grouped by beside time and session. ``service`` is whose model it was; None = not told."""

    provider: str
    service: str | None = None
    model: str | None = None
    task: str | None = None
    wave: str | None = None


class Rolled(msgspec.Struct, array_like=True):
    """One stream in a roll-up. ``seq`` is its first receipt; tokens, USD, unix ms; None = unknown.

    ``calls``: model calls it stands for, None where nobody tells them apart. ``prices``: number of the prices by which
    an estimate was tried; ``low``: something that would have cost more is unknown.
    """

    kind: Kind
    capture: int | None
    seq: int | None
    at: int
    source: str
    final: bool
    counted: bool
    calls: int | None
    input: int | None
    output: int | None
    total_input: int | None
    cache_read: int | None
    cache_write: int | None
    cache_write_1h: int | None
    reasoning: int | None
    peak: int | None
    window: int | None
    tier: str | None
    reported: float | None
    estimated: float | None = None
    prices: int | None = None
    low: bool = False
    gaps: Gaps | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What an estimate depends on, and which receipt it was for."""
        return (
            self.seq,
            self.kind.provider,
            self.kind.service,
            self.kind.model,
            self.at,
            self.tier,
            self.input,
            self.output,
            self.total_input,
            self.cache_read,
            self.cache_write,
            self.cache_write_1h,
            self.reasoning,
            self.peak,
            self.calls,
        )


class Loose(msgspec.Struct, array_like=True):
    """Gaps that belong to no stream, with the time and the provider of their input."""

    kind: Kind
    at: int
    gaps: Gaps


class Sums(msgspec.Struct, array_like=True):
    """Sums with their coverage; None = no stream reported it. ``unpriced`` streams have neither kind of cost.

    ``low`` ones have an estimate that is a lower bound.
    """

    streams: int = 0
    final: int = 0
    unpriced: int = 0
    low: int = 0
    calls: int | None = None
    input: int | None = None
    output: int | None = None
    total_input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    reasoning: int | None = None
    reported: float | None = None
    estimated: float | None = None
    gaps: Gaps = {}

    def take_gaps(self, gaps: Gaps) -> None:
        """Add gaps that belong to no stream."""
        for kind, count in gaps.items():
            self.gaps[kind] = self.gaps.get(kind, 0) + count

    def add(self, other: Sums) -> None:
        """Add other sums."""
        self.streams += other.streams
        self.final += other.final
        self.unpriced += other.unpriced
        self.low += other.low
        for name in ADDED:
            value = getattr(other, name)
            if value is not None:
                held = getattr(self, name)
                setattr(self, name, value if held is None else held + value)
        if other.gaps:
            self.take_gaps(other.gaps)


ADDED: Final = ("calls", *COUNTERS, "reported", "estimated")
"""Members of streams and sums that add up where they are known."""


class Bucket(msgspec.Struct, array_like=True):
    """Sums of one kind of streams in the quarter of an hour that begins at ``start`` × 900 000 ms."""

    start: int
    kind: Kind
    first: int
    last: int
    sums: Sums


def roll(stream: Stream, *, capture: int | None, task: str | None, wave: str | None, fallback: int) -> Rolled:
    """Return a stream as a roll-up keeps it. ``fallback`` (unix ms) is its time where its own is none."""
    row = Rolled(
        kind=Kind(stream.provider, stream.service, stream.model, task, wave),
        capture=capture,
        seq=stream.seqs[0] if stream.seqs else None,
        at=settled(stream.at, fallback),
        source=stream.source,
        final=stream.final,
        counted=True,
        calls=calls_of(stream),
        input=stream.input,
        output=stream.output,
        total_input=stream.total_input,
        cache_read=stream.cache_read,
        cache_write=stream.cache_write,
        cache_write_1h=stream.cache_write_1h,
        reasoning=stream.reasoning,
        peak=stream.peak,
        window=stream.window,
        tier=stream.tier,
        reported=stream.cost,
    )
    found: Gaps = {}
    for gap in stream.gaps:
        found[gap.kind] = found.get(gap.kind, 0) + 1
    if (
        max(
            row.total_input or 0,
            row.output or 0,
            row.input or 0,
            row.cache_read or 0,
            row.cache_write or 0,
            row.cache_write_1h or 0,
            row.reasoning or 0,
            row.peak or 0,
            row.window or 0,
        )
        > MOST
    ):
        for name in (*COUNTERS, "peak", "window"):
            if (getattr(row, name) or 0) > MOST:
                setattr(row, name, None)
                found["overflow"] = found.get("overflow", 0) + 1
    if found:
        row.gaps = found
    return row


def settled(at: int, fallback: int) -> int:
    """Return an instant that lies in the calendar: ``at``, else ``fallback``, else the first one."""
    for each in (at, fallback):
        if 0 <= each < _LAST_MS:
            return each
    return 0


def calls_of(stream: Stream) -> int | None:
    """Return how many model calls a stream stands for; None where its provider does not tell them apart."""
    if stream.source != "native":
        return None
    if stream.id != f"native:{stream.thread or ''}:{stream.turn or ''}":
        return 1  # a message, or a call read from a file
    return len(stream.seqs) if stream.provider == "codex" else None  # Codex updates its totals with each response


def price(row: Rolled, book: Book) -> None:
    """Give a stream its estimate by a price book, in USD; None where it has no price."""
    found = estimate_of(row, book)
    row.estimated, row.low = (None, False) if found is None else (found.usd, found.lower_bound)


def estimate_of(row: Rolled, book: Book) -> Estimate | None:
    """Return the whole estimate of a stream by a price book."""
    kind = row.kind
    return book.estimate(
        Call(
            provider=kind.provider,
            provider_id=kind.service,
            model=kind.model,
            at=row.at,
            input=row.input,
            output=row.output,
            total_input=row.total_input,
            cache_read=row.cache_read,
            cache_write=row.cache_write,
            cache_write_1h=row.cache_write_1h,
            reasoning=row.reasoning,
            tier=row.tier,
            summed=row.calls != 1,
            peak=row.peak,
        )
    )


def buckets(streams: Iterable[Rolled], loose: Iterable[Loose]) -> list[Bucket]:
    """Sum the streams that count, and gaps, by quarter and kind: O(streams)."""
    rows: dict[tuple[int, Kind], list[Rolled]] = {}
    for row in streams:
        if row.counted:
            rows.setdefault((row.at // QUARTER_MS, row.kind), []).append(row)
    found = {key: _bucket(key, group) for key, group in rows.items()}
    for each in loose:
        key = (each.at // QUARTER_MS, each.kind)
        bucket = found.get(key)
        if bucket is None:
            bucket = found[key] = Bucket(key[0], each.kind, each.at, each.at, Sums())
        bucket.sums.take_gaps(each.gaps)
    return list(found.values())


def _bucket(key: tuple[int, Kind], rows: list[Rolled]) -> Bucket:
    times = [row.at for row in rows]
    sums = Sums(
        streams=len(rows),
        final=sum([row.final for row in rows]),
        unpriced=sum([row.reported is None and row.estimated is None for row in rows]),
        low=sum([row.low for row in rows]),
    )
    for name in ADDED:
        known = [value for row in rows if (value := getattr(row, name)) is not None]
        if known:
            setattr(sums, name, sum(known))
    for row in rows:
        if row.gaps:
            sums.take_gaps(row.gaps)
    return Bucket(key[0], key[1], min(times), max(times), sums)
