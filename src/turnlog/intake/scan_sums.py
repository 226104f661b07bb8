"""Calls of many sources as sums: copies are told from originals, the rest is added up as roll-ups are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from turnlog.harness.quick import Call, Look
from turnlog.usage.buckets import COUNTERS, MOST, QUARTER_MS, Bucket, Kind, Sums, settled
from turnlog.usage.prices import Book
from turnlog.usage.prices import Call as Priced
from turnlog.usage.streams import REQUIRED

_Key = tuple[str, str, int, str | None, str | None]
"""Provider, its id of a conversation, quarter of an hour, service, model."""

_CALENDAR_MS: Final = 253_402_214_400_000
"""The last day of the calendar, unix ms."""

_N = TypeVar("_N", int, float)


class Warm:
    """Price data that is made ready for each model when it is first met, while other processes still look."""

    def __init__(self, ask: Callable[[], Book | None] | None) -> None:
        self._ask = ask
        self._book: Book | None = None
        self._met: set[tuple[str, str | None, str | None]] = set()

    @property
    def book(self) -> Book | None:
        """The price data; None where there is none."""
        if self._ask is not None:
            self._book, self._ask = self._ask(), None
        return self._book

    def look(self, provider: str, look: Look) -> None:
        """See what one source gave."""
        book = self.book
        if book is None:
            return
        for call in look.calls:
            key = (provider, call.service, call.model)
            if key not in self._met:
                self._met.add(key)
                book.estimate(Priced(provider=provider, provider_id=call.service, model=call.model, at=call.at))


class Sheaf:
    """Takes calls in any order, then sums them."""

    def __init__(self, book: Book | None) -> None:
        self._book = book
        self._calls: dict[str, dict[str, Call]] = {}
        self._seen: dict[str, dict[str, list[Call]]] = {}
        self._loose: list[tuple[str, str, str, int]] = []
        self._groups: dict[_Key, list[Call]] = {}

    def take(self, provider: str, calls: Iterable[Call]) -> None:
        """Take what one source told."""
        held = self._calls.setdefault(provider, {})
        seen = self._seen.setdefault(provider, {})
        for call in calls:
            first = held.setdefault(call.call, call)
            if first is not call:
                seen.setdefault(call.call, [first]).append(call)

    def loose(self, provider: str, native: str, kind: str, at: int) -> None:
        """Take a gap that belongs to no call."""
        self._loose.append((provider, native, kind, at))

    def sums(self) -> dict[tuple[str, str], list[Bucket]]:
        """Return the sums by provider and its id of the conversation: O(calls). To be asked once."""
        for provider, calls in self._calls.items():
            seen = self._seen[provider]
            self._group(provider, calls.values() if not seen else (calls[name] for name in calls if name not in seen))
            for several in seen.values():
                self._group(provider, owners(several))
        found: dict[tuple[str, str], list[Bucket]] = {}
        kinds: dict[tuple[str, str | None, str | None], Kind] = {}
        for (provider, native, start, service, model), group in self._groups.items():
            of = (provider, service, model)
            kind = kinds.get(of) or kinds.setdefault(of, Kind(*of))
            found.setdefault((provider, native), []).append(self._bucket(start, kind, group))
        self._missing(found)
        for provider, native, gap, told in self._loose:
            at = settled(told, 0)
            bucket = Bucket(at // QUARTER_MS, Kind(provider), at, at, Sums(gaps={gap: 1}))
            found.setdefault((provider, native), []).append(bucket)
        return found

    def _group(self, provider: str, calls: Iterable[Call]) -> None:
        groups = self._groups
        for call in calls:
            at = call.at
            if not 0 <= at < _CALENDAR_MS:
                at = call.at = settled(at, 0)
            key = (provider, call.session, at // QUARTER_MS, call.service, call.model)
            group = groups.get(key)
            if group is None:
                groups[key] = [call]
            else:
                group.append(call)

    def _bucket(self, start: int, kind: Kind, group: list[Call]) -> Bucket:
        gaps = _cleaned(group)
        sums = Sums(
            streams=len(group),
            final=sum([call.final for call in group]),
            calls=len(group),
            input=_added([call.input for call in group]),
            output=_added([call.output for call in group]),
            total_input=_added([call.total_input for call in group]),
            cache_read=_added([call.cache_read for call in group]),
            cache_write=_added([call.cache_write for call in group]),
            cache_write_1h=_added([call.cache_write_1h for call in group]),
            reasoning=_added([call.reasoning for call in group]),
            reported=_added([call.cost for call in group]),
            gaps=gaps,
        )
        self._price(kind, group, sums)
        times = [call.at for call in group]
        return Bucket(start, kind, min(times), max(times), sums)

    def _price(self, kind: Kind, group: list[Call], sums: Sums) -> None:
        """Estimate a group at once where that is the same as call by call, else call by call."""
        book = self._book
        if book is None:
            sums.unpriced = sum([call.cost is None for call in group])
            return
        if len(group) > 1 and _alike(group, sums):
            peak = max([call.total_input or 0 for call in group])
            whole = book.estimate(_priced(kind, sums, group[0].at, group[0].tier, peak, summed=True))
            if whole is not None and not whole.lower_bound:
                sums.estimated = whole.usd
                return
        for call in group:
            found = book.estimate(_priced(kind, call, call.at, call.tier, call.total_input, summed=False))
            if found is not None:
                sums.estimated = found.usd if sums.estimated is None else sums.estimated + found.usd
                sums.low += found.lower_bound
            elif call.cost is None:
                sums.unpriced += 1

    def _missing(self, found: Mapping[tuple[str, str], Sequence[Bucket]]) -> None:
        """Count counters that a call lacks while others of its conversation have them (D17)."""
        for (provider, native, start, service, model), group in self._groups.items():
            lacking = [
                call for call in group if None in (call.total_input, call.output, call.cache_read, call.cache_write)
            ]
            if not lacking:
                continue
            buckets = found[provider, native]
            kind = Kind(provider, service, model)
            sums = next(each.sums for each in buckets if each.start == start and each.kind == kind)
            for name in REQUIRED:
                if any(getattr(each.sums, name) is not None for each in buckets):
                    for call in lacking:
                        if getattr(call, name) is None:
                            sums.gaps["missing_counter"] = sums.gaps.get("missing_counter", 0) + 1


def _cleaned(group: Iterable[Call]) -> dict[str, int]:
    """Leave out what nobody can have used, and say all input where only its parts are told; returns the gaps."""
    gaps: dict[str, int] = {}
    for call in group:
        if call.total_input is None and call.input is not None:
            call.total_input = call.input + (call.cache_read or 0) + (call.cache_write or 0)
        if (call.total_input or 0) > MOST or (call.output or 0) > MOST:
            for name in COUNTERS:
                if (getattr(call, name) or 0) > MOST:
                    setattr(call, name, None)
                    gaps["overflow"] = gaps.get("overflow", 0) + 1
        for gap in call.gaps:
            gaps[gap] = gaps.get(gap, 0) + 1
    return gaps


def _added(values: list[_N | None]) -> _N | None:
    """Add up what is known; None where nothing is."""
    if None not in values:
        return sum(values)  # type: ignore[arg-type]
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _alike(group: list[Call], sums: Sums) -> bool:
    """Tell whether calls of one quarter and model ran in one tier, and each tells what any of them tells."""
    tier = group[0].tier
    for call in group:
        if call.tier != tier:
            return False
    for name in COUNTERS:
        if getattr(sums, name) is not None and None in [getattr(call, name) for call in group]:
            return False
    return True


def _priced(kind: Kind, told: Call | Sums, at: int, tier: str | None, peak: int | None, *, summed: bool) -> Priced:
    return Priced(
        provider=kind.provider,
        provider_id=kind.service,
        model=kind.model,
        at=at,
        input=told.input,
        output=told.output,
        total_input=told.total_input,
        cache_read=told.cache_read,
        cache_write=told.cache_write,
        cache_write_1h=told.cache_write_1h,
        reasoning=told.reasoning,
        tier=tier,
        summed=summed,
        peak=peak,
    )


def owners(several: Sequence[Call]) -> list[Call]:
    """Return which sightings of one call count, as told by all of them together.

    Those of one conversation are one, with the largest counters of all. Of sightings without rivals the earliest
    counts, then the one with the smallest session id, with the counters of the one that tells most output: a copy may
    have been cut before the call's last word. One with rivals counts if none of them has the call.
    """
    sessions: dict[str, list[Call]] = {}
    for call in several:
        sessions.setdefault(call.session, []).append(call)
    merged = [_together(each) for each in sessions.values()]
    found = [call for call in merged if call.rivals and sessions.keys().isdisjoint(call.rivals)]
    free = [call for call in merged if not call.rivals]
    if free:
        free.sort(key=lambda call: (call.at if call.copied_at is None else call.copied_at, call.session))
        owner, fullest = free[0], max(free, key=lambda call: call.output or 0)
        model = owner.model or fullest.model
        found.append(msgspec.structs.replace(fullest, session=owner.session, at=owner.at, model=model))
    return found


def _together(several: Sequence[Call]) -> Call:
    """Return one sighting for several of one conversation: the largest counters, the earliest instant."""
    first = min(several, key=lambda call: call.at)
    if len(several) == 1:
        return first
    made = msgspec.structs.replace(first)
    for name in (*COUNTERS, "cost"):
        known = [value for call in several if (value := getattr(call, name)) is not None]
        if known:
            setattr(made, name, max(known))
    made.model = min((call.model for call in several if call.model is not None), default=None)
    made.final = any(call.final for call in several)
    made.gaps = tuple(sorted({gap for call in several for gap in call.gaps}))
    if all(call.rivals for call in several):
        made.rivals = tuple(sorted({rival for call in several for rival in call.rivals}))
    else:
        made.rivals = ()
    return made
