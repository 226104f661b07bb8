"""Usage reports as values: sums under keys, with their coverage kept beside every sum. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from turnlog.usage.adding import together
from turnlog.usage.buckets import Gaps, Sums


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
    """USD. Reported and estimated are never mixed; ``unpriced_calls`` counts streams that have neither.

    ``low_estimates`` counts those whose estimate is a lower bound.
    """

    reported_usd: float | None = None
    estimated_usd: float | None = None
    unpriced_calls: int = 0
    low_estimates: int = 0


class GapCount(msgspec.Struct, frozen=True):
    """How often a kind of gap occurs behind a sum."""

    kind: str
    count: int


class Native(msgspec.Struct, frozen=True):
    """The provider's own name of a conversation."""

    provider: str | None
    id: str | None


class Window(msgspec.Struct, frozen=True):
    """A 5-hour window: ``starts_at`` ≤ at < ``ends_at``, and its first and last calls; unix ms."""

    starts_at: int
    ends_at: int
    first_at: int
    last_at: int


class Prices(msgspec.Struct, frozen=True):
    """The price data behind estimates. ``earlier`` versions made some that were kept."""

    source: str
    version: str
    earlier: tuple[str, ...] = ()


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
    window: Window | None = None
    models: tuple[UsageRow, ...] | None = None

    @property
    def lower_bound(self) -> bool:
        """Tell whether the row's sums may lack something, so that they are shown with ``≥``."""
        return bool(self.gaps) or self.cost.unpriced_calls + self.cost.low_estimates > 0


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """Rows and their total. ``timezone`` is the zone that days were cut in, ``prices`` None: nothing was estimated.

    ``unseen_gaps`` are kinds of gaps of which there may be more: nobody has looked for all of them yet.
    """

    by: str
    timezone: str
    prices: Prices | None = None
    rows: tuple[UsageRow, ...]
    totals: UsageRow
    unseen_gaps: tuple[str, ...] = ()


class Sheet:
    """Sums under keys, and over all of them. Memory is one row per key, and per model of it with ``breakdown``."""

    def __init__(self, *, breakdown: bool = False) -> None:
        self.breakdown = breakdown
        self._sums: dict[str, Sums] = {}
        self._models: dict[str, dict[str, Sums]] = {}
        self._total = Sums()
        self._total_models: dict[str, Sums] = {}

    def add(self, key: str, model: str | None, sums: Sums) -> None:
        """Add sums under a key; ``model`` is asked for in a breakdown only."""
        self._at(self._sums, key).add(sums)
        self._total.add(sums)
        if self.breakdown and sums.streams:
            name = model or "unknown"
            self._at(self._models.setdefault(key, {}), name).add(sums)
            self._at(self._total_models, name).add(sums)

    def add_all(self, several: Iterable[tuple[str, str | None, Sums]]) -> None:
        """Add (key, model, sums) as ``add`` does, several times as fast: O(sums). They are left as they are."""
        keys: dict[str, list[Sums]] = {}
        models: dict[tuple[str, str], list[Sums]] = {}
        whole: list[Sums] = []
        for key, model, sums in several:
            whole.append(sums)
            held = keys.get(key)
            if held is None:
                keys[key] = [sums]
            else:
                held.append(sums)
            if self.breakdown and sums.streams:
                models.setdefault((key, model or "unknown"), []).append(sums)
        for key, group in keys.items():
            _put(self._sums, key, group)
        totals: dict[str, list[Sums]] = {}
        for (key, name), group in models.items():
            _put(self._models.setdefault(key, {}), name, group)
            totals.setdefault(name, []).extend(group)
        for name, group in totals.items():
            _put(self._total_models, name, group)
        if whole:
            self._total.add(together(whole))

    def add_gaps(self, key: str | None, gaps: Gaps, *, model: str | None = None, total: bool = True) -> None:
        """Add gaps of a model's sums under a key, None for those of no row, and to the total unless it has them."""
        if key is not None:
            self._at(self._sums, key).take_gaps(gaps)
        if total:
            self._total.take_gaps(gaps)
        if self.breakdown and model is not None:
            self._at(self._total_models, model).take_gaps(gaps)
            if key is not None:
                self._at(self._models.setdefault(key, {}), model).take_gaps(gaps)

    def keys(self) -> list[str]:
        """Return the keys in the order they first came."""
        return list(self._sums)

    def size(self, key: str) -> int:
        """Return how many tokens are under a key, to order rows by."""
        sums = self._sums[key]
        return (sums.total_input or 0) + (sums.output or 0)

    def row(self, key: str, *, native: Native | None = None, window: Window | None = None) -> UsageRow:
        """Return the sums under a key."""
        return _row(key, self._sums[key], self._models.get(key, {}) if self.breakdown else None, native, window)

    def totals(self) -> UsageRow:
        """Return the sums over all keys."""
        return _row("total", self._total, self._total_models if self.breakdown else None)

    @staticmethod
    def _at(where: dict[str, Sums], key: str) -> Sums:
        found = where.get(key)
        if found is None:
            found = where[key] = Sums()
        return found


def _put(where: dict[str, Sums], key: str, group: list[Sums]) -> None:
    """Add a group of sums, which are left as they are, under a key."""
    held = where.get(key)
    if held is not None:
        held.add(together(group))
    elif len(group) == 1:
        where[key] = msgspec.structs.replace(group[0], gaps=dict(group[0].gaps))
    else:
        where[key] = together(group)


def _row(
    key: str,
    sums: Sums,
    models: dict[str, Sums] | None,
    native: Native | None = None,
    window: Window | None = None,
) -> UsageRow:
    return UsageRow(
        key=key,
        tokens=Tokens(
            input=sums.input,
            output=sums.output,
            total_input=sums.total_input,
            cache_read=sums.cache_read,
            cache_write=sums.cache_write,
            cache_write_1h=sums.cache_write_1h,
            reasoning=sums.reasoning,
        ),
        calls=sums.calls,
        streams=sums.streams,
        final_streams=sums.final,
        gaps=_counts(sums.gaps.items()) if sums.gaps else (),
        cost=Cost(
            reported_usd=sums.reported,
            estimated_usd=sums.estimated,
            unpriced_calls=sums.unpriced,
            low_estimates=sums.low,
        ),
        native=native,
        window=window,
        models=None if models is None else tuple(_row(name, models[name], None) for name in sorted(models)),
    )


def _counts(gaps: Iterable[tuple[str, int]]) -> tuple[GapCount, ...]:
    return tuple(GapCount(kind, count) for kind, count in sorted(gaps))
