"""Arithmetic of usage reports: streams regrouped by a key, with coverage kept beside every sum. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import msgspec

from turnlog.model import Gap
from turnlog.usage.streams import SUMS, Stream


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Sums of token counters in the one meaning of D15; None = no stream reported it."""

    input: int | None = None
    output: int | None = None
    total_input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    reasoning: int | None = None


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """USD. Reported and estimated are never mixed; ``unpriced_calls`` counts streams that have neither."""

    reported_usd: float | None = None
    estimated_usd: float | None = None
    unpriced_calls: int = 0


class GapCount(msgspec.Struct, frozen=True):
    """How often a kind of gap occurs behind a sum."""

    kind: str
    count: int


class Native(msgspec.Struct, frozen=True):
    """The provider's own name of a conversation."""

    provider: str | None
    id: str | None


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a report. ``calls`` counts model calls where the provider tells them apart; None = nobody does."""

    key: str
    tokens: Tokens
    calls: int | None
    streams: int
    final_streams: int
    gaps: tuple[GapCount, ...]
    cost: Cost
    native: Native | None = None
    models: tuple[UsageRow, ...] | None = None

    @property
    def lower_bound(self) -> bool:
        """Tell whether the row's sums may lack something, so that they are shown with ``≥``."""
        return bool(self.gaps) or self.cost.unpriced_calls > 0


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """Rows and their total. ``timezone`` is the zone that days were cut in."""

    by: str
    timezone: str
    rows: tuple[UsageRow, ...]
    totals: UsageRow


class Sheet:
    """Sums under keys, in the order the keys first came. Memory is one sheet row per key."""

    def __init__(self, *, breakdown: bool = False) -> None:
        self._breakdown = breakdown
        self._sums: dict[str, _Sum] = {}

    def add(self, key: str, stream: Stream) -> None:
        """Count a stream under a key."""
        self._sums.setdefault(key, _Sum(breakdown=self._breakdown)).add(stream)

    def add_gaps(self, key: str, gaps: Iterable[Gap]) -> None:
        """Count gaps that belong to no stream under a key."""
        for gap in gaps:
            self._sums.setdefault(key, _Sum(breakdown=self._breakdown)).gaps[gap.kind] += 1

    def keys(self) -> list[str]:
        """Return the keys in the order they first came."""
        return list(self._sums)

    def row(self, key: str, native: Native | None = None) -> UsageRow:
        """Return the sums under a key; all unknown when nothing came."""
        found = self._sums.get(key) or _Sum(breakdown=self._breakdown)
        return found.row(key, native)


class _Sum:
    def __init__(self, *, breakdown: bool) -> None:
        self._counters: dict[str, int] = {}
        self._costs: list[float] = []
        self._unpriced = 0
        self._calls: int | None = None
        self._streams = 0
        self._final = 0
        self.gaps: Counter[str] = Counter()
        self._models = Sheet() if breakdown else None

    def add(self, stream: Stream) -> None:
        for name in SUMS:
            value = stream.counter(name)
            if value is not None:
                self._counters[name] = self._counters.get(name, 0) + value
        if stream.cost is None:
            self._unpriced += 1
        else:
            self._costs.append(stream.cost)
            if len(self._costs) > 1:
                self._costs = [math.fsum(self._costs)]
        calls = calls_of(stream)
        if calls is not None:
            self._calls = (self._calls or 0) + calls
        self._streams += 1
        self._final += stream.final
        self.gaps.update(gap.kind for gap in stream.gaps)
        if self._models is not None:
            self._models.add(stream.model or "unknown", stream)

    def row(self, key: str, native: Native | None) -> UsageRow:
        models = self._models
        return UsageRow(
            key=key,
            native=native,
            tokens=Tokens(**self._counters),
            calls=self._calls,
            streams=self._streams,
            final_streams=self._final,
            gaps=tuple(GapCount(kind, count) for kind, count in sorted(self.gaps.items())),
            cost=Cost(reported_usd=self._costs[0] if self._costs else None, unpriced_calls=self._unpriced),
            models=None if models is None else tuple(models.row(name) for name in sorted(models.keys())),
        )


def calls_of(stream: Stream) -> int | None:
    """Return how many model calls a stream stands for; None where its provider does not tell them apart."""
    if stream.source != "native":
        return None
    if stream.provider == "codex":
        return len(stream.seqs)  # one update of the running totals per model response
    return 1 if stream.provider == "opencode" or ":call:" in stream.id else None
