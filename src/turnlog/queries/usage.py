"""Usage reports over the ledger (contract: ``turnlog usage``): from sums by quarter of an hour, never from payloads."""

from __future__ import annotations

import contextlib
from pathlib import Path

from turnlog.errors import InvalidError, UnavailableError
from turnlog.ledger import Store
from turnlog.ledger.rollups import RollupTx
from turnlog.queries import pricing
from turnlog.queries.reporting import REPORTS, UNSEEN, Report, Seen
from turnlog.queries.rollup import WAIT_MS, Pricing, refresh
from turnlog.queries.wanted import Wanted
from turnlog.queries.zones import bound, resolve_zone
from turnlog.usage.report import Prices, Sheet, UsageReport


def usage_report(
    store: Store,
    by: str,
    *,
    since: str | int | None = None,
    until: str | int | None = None,
    timezone: str | None = None,
    provider: str | None = None,
    session: str | None = None,
    wave: str | None = None,
    project: str | None = None,
    task: str | None = None,
    breakdown: bool = False,
    prices: Path | None = None,
    seen: Seen | None = None,
) -> UsageReport:
    """Add usage up over the ledger by one of ``REPORTS`` (contract §2).

    A stream belongs to the time at which its call or turn began. ``since`` and ``until`` are days (inclusive,
    ``YYYY-MM-DD`` in the zone), RFC 3339 or unix milliseconds (``until`` is then the first instant left out).
    ``project`` is a repository's path or name, or a planning project. ``prices`` is a file of prices for this report
    alone. ``seen`` is what the ledger does not have yet. Raises InvalidError.

    Brings the roll-ups up to date first; where the ledger cannot be written now, what is out of date is folded in
    memory. Cost: O(quarters of an hour with usage), with ``prices`` O(streams).
    """
    if by not in REPORTS:
        raise InvalidError(f"no usage report {by!r}", hint=f"choose one of {', '.join(REPORTS)}")
    zone, zone_name = resolve_zone(timezone)
    first, last = bound(since, zone, end=False), bound(until, zone, end=True)
    book = None if prices is None else pricing.open_book(prices)
    with contextlib.suppress(UnavailableError):
        refresh(store, pricing.open_book, wait_ms=WAIT_MS)
    with store.rollups.read() as tx:
        tx.expect_report()
        beside = None if seen is None else seen.facts
        wanted = Wanted(tx, provider=provider, session=session, wave=wave, project=project, task=task, beside=beside)
        report = Report(tx, by, zone, wanted, Sheet(breakdown=breakdown), seen)
        report.fill(first, last, Pricing(pricing.open_book) if book is None else book)
        return UsageReport(
            by=by,
            timezone=zone_name,
            prices=_prices(tx, seen) if book is None else Prices(book.source, book.version),
            rows=report.rows(),
            totals=report.totals(),
            unseen_gaps=() if seen is None else UNSEEN,
        )


def _prices(tx: RollupTx, seen: Seen | None) -> Prices | None:
    """Return which prices the estimates rest on: those of the roll-ups, and those of what is not imported yet."""
    used = tx.prices()
    if seen is not None and seen.buckets and seen.prices is not None:
        earlier = tuple(each[2] for each in used if each[2] != seen.prices.version)
        return Prices(seen.prices.source, seen.prices.version, earlier)
    return Prices(used[-1][1], used[-1][2], tuple(each[2] for each in used[:-1])) if used else None
