"""A usage report while it is filled: the rows that streams go to, and in which order they are shown."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import tzinfo
from typing import Final

import msgspec

from turnlog.clock import to_rfc3339
from turnlog.ledger.rollups import Facts, RollupTx, Where
from turnlog.queries.rollup import Pricing, overlay, part
from turnlog.queries.wanted import Wanted
from turnlog.queries.zones import PERIODS, Period
from turnlog.usage.blocks import Block, blocks
from turnlog.usage.buckets import QUARTER_MS, Bucket, Gaps, Kind, Sums, price
from turnlog.usage.prices import DAY_MS, Book
from turnlog.usage.report import Native, Prices, Sheet, UsageRow, Window

REPORTS: Final = ("daily", "weekly", "monthly", "blocks", "session", "model", "project", "task", "total")

_FEW: Final = 64
"""So many sessions are looked up one by one."""

_DAY: Final = DAY_MS // QUARTER_MS

_END: Final = 2**53
"""A quarter of an hour later than all."""


UNSEEN: Final = (
    "start_unknown",
    "unfinished",
    "interrupted",
    "compaction_unrecorded",
    "usage_unknown",
    "unreadable",
)
"""Gaps of turns and of lines without a mark of usage: who looks at calls alone does not see them all."""


class Seen(msgspec.Struct, frozen=True):
    """Usage that the ledger does not have yet: sums by session, which stand in the place of what it says of those.

    ``problems`` are (session or None, provider) of bytes that could not be used and may have held usage. ``prices`` is
    what the estimates rest on.
    """

    buckets: dict[str, list[Bucket]]
    facts: dict[str, Facts]
    problems: tuple[tuple[str | None, str], ...] = ()
    prices: Prices | None = None


class Report:
    """One report while it is filled."""

    def __init__(
        self, tx: RollupTx, by: str, zone: tzinfo | None, wanted: Wanted, sheet: Sheet, seen: Seen | None = None
    ) -> None:
        self._tx, self._by, self._zone, self._wanted, self._sheet = tx, by, zone, wanted, sheet
        self._seen = seen
        self._kinds = tx.kinds()
        self._tasks = tx.tasks() if by == "task" else {}
        self._blocks: list[Block] = []
        self._begins: list[int] = []
        self._periods: dict[int, list[Period]] = {}
        self._last: dict[str, int] = {}  # when a session was last active

    def fill(self, first: int | None, last: int | None, prices: Book | Pricing) -> None:
        """Add up everything that began in ``first`` ≤ at < ``last`` (unix ms; None = open).

        A ``Pricing`` stands for estimates as they are kept, a ``Book`` for others in their place.
        """
        since = 0 if first is None else max(-(-first // QUARTER_MS), 0)
        until = _END if last is None else max(last // QUARTER_MS, since)
        beside, without = self._beside(first, last, prices)
        if not isinstance(prices, Pricing):
            until = since  # nothing is taken from stored sums
        where = self._wanted.where(since, until, self._kinds, without)
        if self._by == "blocks":
            spans = [(each.first, each.last) for _, each in beside if each.sums.streams]
            self._blocks = blocks([*self._tx.spans(where), *spans])
            self._begins = [each.start for each in self._blocks]
        self._stored(where)
        self._add(beside)
        self._problems(where, beside)

    def rows(self) -> tuple[UsageRow, ...]:
        """Return the rows: times as they run, sessions by their last activity, everything else by size."""
        sheet = self._sheet
        keys = sheet.keys()
        if self._by == "session":
            facts = self._wanted.facts
            keys.sort(key=lambda key: (self._last.get(key, 0), key))
            return tuple(sheet.row(key, native=_native(facts.get(key))) for key in keys)
        if self._by == "blocks":
            windows = {_name(each): Window(each.start, each.end, each.first, each.last) for each in self._blocks}
            return tuple(sheet.row(key, window=windows.get(key)) for key in sorted(keys))
        keys.sort(key=None if self._by in PERIODS else lambda key: (-sheet.size(key), key))
        return tuple(sheet.row(key) for key in keys)

    def totals(self) -> UsageRow:
        """Return the sums over all rows, and the gaps of no row."""
        return self._sheet.totals()

    def _add(self, beside: Iterable[tuple[str, Bucket]]) -> None:
        """Add sums that are not among the stored ones."""
        sheet, last = self._sheet, self._last
        found: list[tuple[str, str | None, Sums]] = []
        for session, bucket in beside:
            key = self._key(bucket.first, session, bucket.kind)
            if key is None:
                sheet.add_gaps(key, bucket.sums.gaps)
                continue
            if bucket.last > last.get(session, 0):
                last[session] = bucket.last
            found.append((key, bucket.kind.model, bucket.sums))
        sheet.add_all(found)

    # --- stored sums

    def _stored(self, where: Where) -> None:
        tx, sheet = self._tx, self._sheet
        names: dict[int, str] = {}
        if self._by in {"model", "task"}:
            for number, sums in tx.by_kind(where):
                kind = self._kinds[number]
                sheet.add(self._key(0, "", kind) or "", kind.model, sums)
        elif self._by in {"session", "project"}:
            names = self._by_session(where)
        else:
            stretches = list(self._stretches(where))
            tx.expect_sums((stretch for _, stretch in stretches), by_kind=sheet.breakdown)
            for key, stretch in stretches:
                if sheet.breakdown:
                    for number, sums in tx.by_kind(stretch):
                        sheet.add(key, self._kinds[number].model, sums)
                elif (whole := tx.sums(stretch)) is not None:
                    sheet.add(key, None, whole)
        for start, session, number, gaps in tx.gaps(where):
            kind = self._kinds[number]
            row = self._key(start * QUARTER_MS, names.get(session, ""), kind)
            sheet.add_gaps(row, gaps, model=kind.model)

    def _by_session(self, where: Where) -> dict[int, str]:
        """Add up sums of sessions; return the sessions by their numbers."""
        names = dict(self._tx.numbers())
        found: list[tuple[str, str | None, Sums]] = []
        for number, apart, last, sums in self._tx.by_session(where, apart=self._sheet.breakdown):
            name = names[number]
            found.append((self._of_session(name), None if apart is None else self._kinds[apart].model, sums))
            if last > self._last.get(name, 0):
                self._last[name] = last
        self._sheet.add_all(found)
        return names

    def _stretches(self, where: Where) -> Iterator[tuple[str, Where]]:
        """Yield the stretches of time that rows stand for, as filters; those without usage of anybody may lack."""
        if self._by == "total":
            yield "total", where
            return
        if self._by == "blocks":
            for block in self._blocks:
                yield _name(block), _within(where, block.start, block.end)
            return
        upto = 0
        for day in self._tx.days(where.since, where.until):
            # A day of UTC lies in two days of most zones; of those without usage the ledger tells nothing.
            while upto < (day + 1) * _DAY:
                period = PERIODS[self._by](max(upto, day * _DAY) * QUARTER_MS, self._zone)
                upto = max(_quarter(period.end), upto + 1)
                yield period.key, _within(where, period.begin, period.end)

    def _key(self, at: int, session: str, kind: Kind) -> str | None:
        """Return the row that something belongs to; None = no row, the total alone."""
        match self._by:
            case "total":
                return "total"
            case "session" | "project":
                return self._of_session(session)
            case "model":
                return kind.model or "unknown"
            case "task":
                return "unattributed" if kind.task is None else self._tasks.get(kind.task, kind.task)
            case "blocks":
                place = bisect_right(self._begins, at) - 1
                return _name(self._blocks[place]) if place >= 0 and at < self._blocks[place].end else None
            case _:
                return self._period(at)

    def _of_session(self, session: str) -> str:
        """Return the row that a session belongs to, whatever its streams are."""
        if self._by == "session":
            return session
        facts = self._wanted.facts.get(session)
        return (facts and facts.project) or "unknown"

    def _period(self, at: int) -> str:
        """Return the key of the period that an instant lies in; one is worked out once for each day that it touches."""
        known = self._periods.setdefault(at // DAY_MS, [])
        for period in known:
            if period.begin <= at < period.end:
                return period.key
        period = PERIODS[self._by](at, self._zone)
        known.append(period)
        return period.key

    # --- beside them

    def _beside(
        self, first: int | None, last: int | None, prices: Book | Pricing
    ) -> tuple[list[tuple[str, Bucket]], tuple[int, ...] | None]:
        """Return sums that are not among the stored ones of whole quarters, and the sessions to leave out of those.

        They are: sessions that are out of date, parts of quarters at the bounds, and everything for other prices.
        """
        tx, wanted = self._tx, self._wanted

        def inside(at: int) -> bool:
            return (first is None or at >= first) and (last is None or at < last)

        stale = [each for each in tx.stale() if wanted.session in {None, each}]
        other = None if isinstance(prices, Pricing) else prices
        today = prices.book if isinstance(prices, Pricing) and stale else other
        sums = overlay(tx, stale, today, inside, reprice=other is not None)
        if self._seen is not None:
            whole = first is None and last is None
            sums |= {
                session: several if whole else [each for each in several if inside(each.start * QUARTER_MS)]
                for session, several in self._seen.buckets.items()
            }
        left_out = self._numbers(sums)
        if other is not None:
            for number, session in tx.numbers():
                if session not in sums and wanted.session in {None, session}:
                    rows = tx.streams(number)
                    for row in rows:
                        price(row, other)
                    sums[session] = part(rows, tx.loose(number), inside)
        else:
            for session, each in self._edges(first, last, inside):
                if session not in sums:
                    sums[session] = each
        found = [(session, each) for session, several in sums.items() for each in several]
        if not wanted.everything:
            found = [each for each in found if wanted.admits(each[0], each[1].kind)]
        return found, left_out or None

    def _numbers(self, sessions: Collection[str]) -> tuple[int, ...]:
        """Return the numbers of sessions, of those that have one."""
        if len(sessions) < _FEW:
            return tuple(number for each in sessions if (number := self._tx.state(each).number) is not None)
        return tuple(number for number, session in self._tx.numbers() if session in sessions)

    def _edges(
        self, first: int | None, last: int | None, inside: Callable[[int], bool]
    ) -> Iterator[tuple[str, list[Bucket]]]:
        """Yield the sums of the parts of quarters at the bounds, of each session once."""
        tx = self._tx
        quarters = {at // QUARTER_MS for at in (first, last) if at is not None and at % QUARTER_MS}
        sessions = {pair for quarter in quarters for pair in tx.in_quarter(quarter)}
        for number, session in sorted(sessions):
            yield (
                session,
                part(tx.streams(number), tx.loose(number), lambda at: at // QUARTER_MS in quarters and inside(at)),
            )

    def _problems(self, where: Where, beside: Iterable[tuple[str, Bucket]]) -> None:
        """Count bytes that could not be read and may have held usage, in every total over their session."""
        tx, wanted = self._tx, self._wanted
        problems = [*tx.problems(), *self._unread()]
        fresh: dict[str, set[str | None]] = {name: set() for name, _, _ in problems if name is not None}
        if fresh:
            for session, bucket in beside:
                if session in fresh:
                    fresh[session].add(self._key(bucket.first, session, bucket.kind))
        for name, provider, count in problems:
            gaps = {"unreadable": count}
            if name is None:
                if wanted.of_provider(provider) and not wanted.scoped:
                    self._sheet.add_gaps("total" if self._by == "total" else None, gaps)
            elif wanted.session in {None, name}:
                self._problem(where, name, provider, gaps, fresh[name])

    def _unread(self) -> Iterator[tuple[str | None, str, int]]:
        """Yield (session, provider, count) of what could not be read outside the ledger."""
        if self._seen is not None:
            for (session, provider), count in Counter(self._seen.problems).items():
                yield session, provider, count

    def _problem(self, where: Where, session: str, provider: str, gaps: Gaps, keys: set[str | None]) -> None:
        """Count what could not be read of one session; ``keys`` are rows that it has usage in, among others."""
        tx, wanted = self._tx, self._wanted
        fresh = bool(keys)
        keys = set(keys)
        number = tx.state(session).number
        held = [] if number is None else tx.buckets(number)
        if number is not None and number not in (where.without or ()):
            keys |= {
                self._key(each.first, session, each.kind)
                for each in held
                if where.since <= each.start < where.until and wanted.admits(session, each.kind)
            }
        # Without any usage of its own, its bytes may have held usage of any time.
        unknown = not (held or fresh or wanted.by_work) and wanted.of_provider(provider) and wanted.in_session(session)
        if unknown and self._by in {"session", "project", "total"}:
            keys.add(self._key(0, session, Kind(provider)))
        for key in keys - {None}:
            self._sheet.add_gaps(key, gaps, total=False)
        if keys or unknown:
            self._sheet.add_gaps(None, gaps)


def _within(where: Where, begin: int, end: int) -> Where:
    since, until = max(where.since, _quarter(begin)), min(where.until, _quarter(end))
    return msgspec.structs.replace(where, since=since, until=max(since, until))


def _quarter(at: int) -> int:
    """Return the first quarter that begins at an instant or later."""
    return -(-at // QUARTER_MS)


def _name(block: Block) -> str:
    return to_rfc3339(block.start)


def _native(facts: Facts | None) -> Native:
    return Native(None, None) if facts is None else Native(facts.provider, facts.native)
