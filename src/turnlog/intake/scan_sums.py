"""Calls of many sources as sums: copies are told from originals, the rest is added up as roll-ups are.

Each process adds up what only it has seen (``Sheaf``); what several have seen is added up where all comes together
(``gathered``).
"""

from __future__ import annotations

import operator
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from turnlog.harness.quick import Call
from turnlog.usage.adding import added, together
from turnlog.usage.buckets import COUNTERS, MOST, QUARTER_MS, Bucket, Kind, Sums, settled
from turnlog.usage.identity import apart
from turnlog.usage.prices import Book
from turnlog.usage.prices import Call as Priced
from turnlog.usage.streams import REQUIRED

_Key = tuple[str, str, int, str | None, str | None]
"""Provider, its id of a conversation, quarter of an hour, service, model."""

_Columns = tuple[list[int | None], ...]

_gaps: Final = operator.attrgetter("gaps")
_OUTPUT: Final = COUNTERS.index("output")
_TOTAL: Final = COUNTERS.index("total_input")
_TOLD: Final = tuple(map(COUNTERS.index, ("total_input", "output", "cache_read", "cache_write")))
"""What every program tells of a call."""

_CALENDAR_MS: Final = 253_402_214_400_000
"""The last day of the calendar, unix ms."""


class Tally(msgspec.Struct, array_like=True, gc=False):
    """Sums of some calls of one kind in one quarter of an hour (at ``start``) of one conversation.

    ``first`` and ``last`` are unix ms. ``lacking``: how many of them lack each counter of ``REQUIRED``; None = none.
    """

    provider: str
    native: str
    start: int
    service: str | None
    model: str | None
    first: int
    last: int
    sums: Sums
    lacking: tuple[int, ...] | None = None


class Part(msgspec.Struct, array_like=True):
    """What one process counted. ``shared`` are calls, by provider, that others have seen too."""

    tallies: list[Tally]
    shared: list[tuple[str, list[Call]]]


class Sheaf:
    """Takes calls in any order, then sums them."""

    def __init__(self) -> None:
        self._calls: dict[str, dict[str, Call]] = {}
        self._seen: dict[str, dict[str, list[Call]]] = {}

    def take(self, provider: str, calls: Iterable[Call]) -> None:
        """Take what one source told."""
        held = self._calls.setdefault(provider, {})
        seen = self._seen.setdefault(provider, {})
        for call in calls:
            first = held.setdefault(call.call, call)
            if first is not call:
                seen.setdefault(call.call, [first]).append(call)

    def marks(self) -> array[int]:
        """Return the hashes of the calls' names."""
        marks: array[int] = array("q")
        for calls in self._calls.values():
            marks.extend(map(hash, calls))
        return marks

    def part(self, shared: Collection[int], book: Book | None) -> Part:
        """Return the sums: O(calls). Calls whose mark is ``shared`` are left as they are. To be asked once."""
        adder = _Adder(book)
        held: list[tuple[str, list[Call]]] = []
        for provider, calls in self._calls.items():
            seen = self._seen[provider]
            if shared:
                others = [name for name in calls if hash(name) in shared]
                held.append((provider, [call for name in others for call in seen.get(name) or (calls[name],)]))
                for name in others:
                    del calls[name]
                    seen.pop(name, None)
            adder.take(provider, calls.values() if not seen else (calls[name] for name in calls if name not in seen))
            for several in seen.values():
                adder.take(provider, owners(several))
        return Part(adder.tallies(), held)


def gathered(
    parts: Iterable[Part], loose: Iterable[tuple[str, str, str, int]], book: Book | None
) -> dict[tuple[str, str], list[Bucket]]:
    """Return what several processes counted, as buckets by provider and its id of the conversation.

    ``loose`` are gaps that belong to no call: (provider, conversation, kind, unix ms). O(sums, and calls that several
    have seen).
    """
    tallies: list[Tally] = []
    sheaf = Sheaf()
    for part in parts:
        tallies += part.tallies
        for provider, calls in part.shared:
            sheaf.take(provider, calls)
    tallies += sheaf.part((), book).tallies
    groups: dict[_Key, list[Tally]] = {}
    for each in tallies:
        key = (each.provider, each.native, each.start, each.service, each.model)
        held = groups.get(key)
        if held is None:
            groups[key] = [each]
        else:
            held.append(each)
    found: dict[tuple[str, str], list[Bucket]] = {}
    lacking: dict[tuple[str, str], list[tuple[Sums, Tally]]] = {}
    kinds: dict[tuple[str, str | None, str | None], Kind] = {}
    for (provider, native, start, service, model), group in groups.items():
        of = (provider, service, model)
        kind = kinds.get(of) or kinds.setdefault(of, Kind(*of))
        first = group[0]
        if len(group) == 1:
            bucket = Bucket(start, kind, first.first, first.last, first.sums)
        else:
            sums = together([each.sums for each in group])
            bucket = Bucket(start, kind, min(each.first for each in group), max(each.last for each in group), sums)
        found.setdefault((provider, native), []).append(bucket)
        for each in group:
            if each.lacking is not None:
                lacking.setdefault((provider, native), []).append((bucket.sums, each))
    _missing(found, lacking)
    for provider, native, gap, told in loose:
        at = settled(told, 0)
        bucket = Bucket(at // QUARTER_MS, Kind(provider), at, at, Sums(gaps={gap: 1}))
        found.setdefault((provider, native), []).append(bucket)
    return found


def _missing(
    found: Mapping[tuple[str, str], Sequence[Bucket]], lacking: Mapping[tuple[str, str], Sequence[tuple[Sums, Tally]]]
) -> None:
    """Count counters that a call lacks while others of its conversation have them (D17)."""
    for key, several in lacking.items():
        told = [any(getattr(each.sums, name) is not None for each in found[key]) for name in REQUIRED]
        for sums, tally in several:
            count = sum(count for count, known in zip(tally.lacking or (), told, strict=True) if known)
            if count:
                sums.gaps["missing_counter"] = sums.gaps.get("missing_counter", 0) + count


class _Adder:
    """Adds calls up that are each counted once."""

    def __init__(self, book: Book | None) -> None:
        self._book = book
        self._groups: dict[_Key, list[Call]] = {}

    def take(self, provider: str, calls: Iterable[Call]) -> None:
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

    def tallies(self) -> list[Tally]:
        """Return the sums."""
        return [self._tally(key, group) for key, group in self._groups.items()]

    def _tally(self, key: _Key, group: list[Call]) -> Tally:
        provider, native, start, service, model = key
        columns = _columns(group)
        gaps: dict[str, int] = {}
        if _unclean(group, columns):
            gaps = _cleaned(group)
            columns = _columns(group)
        fresh, output, total, read, write, hour, reasoning = map(added, columns)
        sums = Sums(
            streams=len(group),
            final=sum([call.final for call in group]),
            calls=len(group),
            input=fresh,
            output=output,
            total_input=total,
            cache_read=read,
            cache_write=write,
            cache_write_1h=hour,
            reasoning=reasoning,
            reported=added([call.cost for call in group]),
            gaps=gaps,
        )
        self._price(key, group, sums, columns)
        times = [call.at for call in group]
        lacking = _lacking(group) if any(None in columns[place] for place in _TOLD) else None
        return Tally(provider, native, start, service, model, min(times), max(times), sums, lacking)

    def _price(self, key: _Key, group: list[Call], sums: Sums, columns: _Columns) -> None:
        """Estimate a group at once where that is the same as call by call, else call by call."""
        book = self._book
        if book is None:
            sums.unpriced = sum([call.cost is None for call in group])
            return
        if len(group) > 1 and _alike(group, columns):
            peak = max(columns[_TOTAL]) if sums.total_input is not None else 0  # type: ignore[type-var]
            whole = book.estimate(_priced(key, sums, group[0].at, group[0].tier, peak, summed=True))
            if whole is not None and not whole.lower_bound:
                sums.estimated = whole.usd
                return
        for call in group:
            found = book.estimate(_priced(key, call, call.at, call.tier, call.total_input, summed=False))
            if found is not None:
                sums.estimated = found.usd if sums.estimated is None else sums.estimated + found.usd
                sums.low += found.lower_bound
            elif call.cost is None:
                sums.unpriced += 1


def _columns(group: list[Call]) -> _Columns:
    """Return the counters of calls, each counter on its own, in the order of ``COUNTERS``."""
    return (
        [call.input for call in group],
        [call.output for call in group],
        [call.total_input for call in group],
        [call.cache_read for call in group],
        [call.cache_write for call in group],
        [call.cache_write_1h for call in group],
        [call.reasoning for call in group],
    )


def _unclean(group: list[Call], columns: _Columns) -> bool:
    """Tell whether a group needs ``_cleaned``: few do."""
    for place in (_TOTAL, _OUTPUT):
        column = columns[place]
        if None in column or max(column) > MOST:  # type: ignore[type-var, operator]
            return True
    return any(map(_gaps, group))


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


def _lacking(group: Iterable[Call]) -> tuple[int, ...] | None:
    lacking = [call for call in group if None in (call.total_input, call.output, call.cache_read, call.cache_write)]
    if not lacking:
        return None
    return tuple(sum(getattr(call, name) is None for call in lacking) for name in REQUIRED)


def _alike(group: list[Call], columns: _Columns) -> bool:
    """Tell whether calls of one quarter and model ran in one tier, and each tells what any of them tells."""
    tier, size = group[0].tier, len(group)
    for column in columns:
        if None in column and column.count(None) < size:
            return False
    return [call.tier for call in group].count(tier) == size


def _priced(key: _Key, told: Call | Sums, at: int, tier: str | None, peak: int | None, *, summed: bool) -> Priced:
    return Priced(
        provider=key[0],
        provider_id=key[3],
        model=key[4],
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
    """Return which mentions of one id count, as told by all of them together.

    An id that was used again is several calls (see ``turnlog.usage.identity``). Sightings of one conversation are one,
    with the largest counters of all. Of sightings without rivals the one that tells most output counts (any other was
    cut before the call's last word), then the earliest, then the one with the smallest session id. One with rivals
    counts if none of them has the call.
    """
    marks = [
        (call.request, (call.model, call.input, call.cache_read, call.cache_write), _told(call)) for call in several
    ]
    return [owner for places in apart(marks) for owner in _owners([several[place] for place in places])]


def _owners(several: Sequence[Call]) -> list[Call]:
    sessions: dict[str, list[Call]] = {}
    for call in several:
        sessions.setdefault(call.session, []).append(call)
    merged = [_together(each) for each in sessions.values()]
    found = [call for call in merged if call.rivals and sessions.keys().isdisjoint(call.rivals)]
    free = [call for call in merged if not call.rivals]
    if free:
        found.append(min(free, key=_told))
    return found


def _told(call: Call) -> tuple[int, int, str]:
    return -(call.output or 0), call.at if call.copied_at is None else call.copied_at, call.session


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
    gaps: Counter[str] = Counter()
    for call in several:
        gaps |= Counter(call.gaps)
    made.gaps = tuple(sorted(gaps.elements()))
    if all(call.rivals for call in several):
        made.rivals = tuple(sorted({rival for call in several for rival in call.rivals}))
    else:
        made.rivals = ()
    return made
