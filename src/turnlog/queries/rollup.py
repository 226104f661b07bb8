"""Keeping the usage roll-ups up to date, and checking them against a fresh fold."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from turnlog.errors import UnavailableError
from turnlog.ledger import Store
from turnlog.ledger.rollups import RollupTx
from turnlog.model import Problem
from turnlog.queries.folding import Folded, fold, is_covered
from turnlog.usage.buckets import Bucket, Loose, Rolled, buckets, price
from turnlog.usage.prices import Book

OpenBook = Callable[[], Book]

WAIT_MS: Final = 250
"""How long a report waits for the ledger; then it answers from what it can read."""

_CHUNK: Final = 2_000
"""Streams of one transaction: others do not wait longer for the ledger than folding these takes."""

_SESSIONS: Final = 64


class Refreshed(msgspec.Struct, frozen=True):
    """How many sessions were folded, and the streams they have."""

    sessions: int = 0
    streams: int = 0


class Pricing:
    """Price data, opened when the first stream without estimate comes. Without data nothing is estimated."""

    def __init__(self, open_book: OpenBook) -> None:
        self._open = open_book
        self._opened = False
        self._book: Book | None = None

    @property
    def book(self) -> Book | None:
        """The price data; None when it cannot be had."""
        if not self._opened:
            self._opened = True
            with contextlib.suppress(UnavailableError):
                self._book = self._open()
        return self._book

    def estimate(self, rows: list[Rolled], number: int) -> None:
        """Give streams their estimates; ``number`` is that of the book's version."""
        book = self.book
        if book is not None:
            for row in rows:
                price(row, book)
                row.prices = number


def refresh(store: Store, open_book: OpenBook, *, rebuild: bool = False, wait_ms: int | None = None) -> Refreshed:
    """Bring the roll-ups up to date: O(receipts of the sessions that changed), one transaction per some 2 000 streams.

    ``rebuild`` makes every one again. Estimates that exist stay; streams for which the current prices were never tried
    get one. Raises UnavailableError where the ledger cannot be written, or not within ``wait_ms``.
    """
    pricing = Pricing(open_book)
    if not rebuild and _current(store, pricing):
        return Refreshed()
    with store.rollups.write(wait_ms=wait_ms) as tx:
        if rebuild:
            tx.forget()
        tx.collect()
        tx.mark(_retry(tx, pricing))
    sessions = streams = 0
    while True:
        with store.rollups.write(wait_ms=wait_ms) as tx:
            batch = tx.dirty(_SESSIONS)
            if not batch:
                return Refreshed(sessions, streams)
            done = 0
            tx.read_together(batch)
            for session in batch:
                done += _renew(tx, session, pricing)
                sessions += 1
                if done > _CHUNK:
                    break
            streams += done


def current(store: Store, open_book: OpenBook) -> bool:
    """Tell whether ``refresh`` would have nothing to do: O(receipts behind the cursor)."""
    return _current(store, Pricing(open_book))


def _current(store: Store, pricing: Pricing) -> bool:
    with store.rollups.read() as tx:
        tx.expect_check()
        return not tx.stale() and not _retry(tx, pricing)


def _renew(tx: RollupTx, session: str, pricing: Pricing) -> int:
    """Fold a session and store it; its subagents follow where they are covered by what changed."""
    before = tx.state(session)
    folded = fold(tx, session)
    _cover(tx, folded, {})
    if folded.exists:
        kept = {} if before.number is None else {row.key: row for row in tx.streams(before.number)}
        _estimate(tx, folded, kept, pricing)
        sums = buckets(folded.streams, folded.loose)
        tx.replace(session, folded.wire, folded.streams, folded.loose, sums, covered=folded.covered)
    else:
        tx.drop(session)
    tx.settle(session)
    if (before.wire, before.covered) != (folded.wire, folded.covered):
        tx.mark(tx.children(session))
    return len(folded.streams)


def _cover(tx: RollupTx, folded: Folded, overlay: dict[str, Folded]) -> None:
    folded.covered = folded.exists and is_covered(tx, folded.session, overlay)
    if folded.covered:
        for row in folded.streams:
            row.counted = False


def _estimate(tx: RollupTx, folded: Folded, kept: dict[tuple[object, ...], Rolled], pricing: Pricing) -> None:
    """Keep the estimates that were made; the rest is priced by the data of today."""
    fresh = []
    for place, row in enumerate(folded.streams):
        held = kept.get(row.key)
        removed = folded.removed.get(place)
        if held is not None and held.estimated is not None:
            row.estimated, row.low, row.prices = held.estimated, held.low, held.prices
        elif removed is not None and (made := removed.estimate) is not None:
            row.estimated, row.low = made.usd, made.low
            row.prices = tx.price_number(made.source, made.version) if made.source and made.version else None
        else:
            fresh.append(row)
    if fresh and pricing.book is not None:
        pricing.estimate(fresh, tx.price_number(pricing.book.source, pricing.book.version))


def _retry(tx: RollupTx, pricing: Pricing) -> list[str]:
    if not tx.any_unpriced() or pricing.book is None:
        return []
    book = pricing.book
    number = next((each[0] for each in tx.prices() if each[1:] == (book.source, book.version)), None)
    return tx.unpriced(number)


# --- without writing


def overlay(
    tx: RollupTx, sessions: Iterable[str], book: Book | None, inside: Callable[[int], bool], *, reprice: bool = False
) -> dict[str, list[Bucket]]:
    """Fold sessions in memory: the sums of each, of what began at an instant that ``inside`` admits.

    Their subagents are there too where what covers them changed. Estimates that exist stay unless ``reprice``.
    O(receipts of the sessions); memory by session and quarter.
    """
    found: dict[str, list[Bucket]] = {}
    pending = list(sessions)
    known: dict[str, Folded] = {}
    while pending:
        session = pending.pop()
        folded = fold(tx, session)
        _cover(tx, folded, known)
        state = tx.state(session)
        held = known.get(session)
        before = (state.wire, state.covered) if held is None else (held.wire, held.covered)
        if before != (folded.wire, folded.covered):
            pending += tx.children(session)
        kept = {} if state.number is None or reprice else {row.key: row for row in tx.streams(state.number)}
        for place, row in enumerate(folded.streams):
            old = kept.get(row.key)
            removed = folded.removed.get(place)
            if old is not None and old.estimated is not None:
                row.estimated, row.low = old.estimated, old.low
            elif removed is not None and removed.estimate is not None and not reprice:
                row.estimated, row.low = removed.estimate.usd, removed.estimate.low
            elif book is not None:
                price(row, book)
        found[session] = part(folded.streams, folded.loose, inside)
        known[session] = Folded(session, folded.exists, wire=folded.wire, covered=folded.covered)
    return found


def part(streams: Iterable[Rolled], loose: Iterable[Loose], inside: Callable[[int], bool]) -> list[Bucket]:
    """Sum what began at an instant that ``inside`` admits."""
    return buckets((row for row in streams if inside(row.at)), (each for each in loose if inside(each.at)))


# --- checking


def verify(store: Store) -> Iterator[Problem]:
    """Yield where a roll-up differs from a fresh fold: O(receipts). What is known to be out of date is passed over."""
    with store.rollups.read() as tx:
        stale = set(tx.stale())
        for number, session in tx.numbers():
            if session in stale:
                continue
            problem = _drift(tx, number, session)
            if problem is not None:
                yield Problem(kind="drift", where=f"session {session}", detail=problem)


def _drift(tx: RollupTx, number: int, session: str) -> str | None:
    folded = fold(tx, session)
    _cover(tx, folded, {})
    held = tx.streams(number)
    if [_facts(row) for row in held] != [_facts(row) for row in folded.streams] or tx.loose(number) != folded.loose:
        return "streams of usage are out of date"
    if not _agree(tx.buckets(number), buckets(held, folded.loose)):
        return "sums of usage are out of date"
    state = tx.state(session)
    if (state.wire, state.covered) != (folded.wire, folded.covered):
        return "what covers its usage is out of date"
    return None


def _facts(row: Rolled) -> Rolled:
    return msgspec.structs.replace(row, estimated=None, low=False, prices=None)


def _agree(one: list[Bucket], other: list[Bucket]) -> bool:
    """Compare sums; costs may differ in the last bits, which depend on the order of adding."""
    left, right = ({(each.start, each.kind): each for each in side} for side in (one, other))
    return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)


def _same(one: Bucket, other: Bucket) -> bool:
    for name in ("reported", "estimated"):
        a, b = getattr(one.sums, name), getattr(other.sums, name)
        if (a is None) != (b is None) or (a is not None and not math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)):
            return False
    plain = [
        msgspec.structs.replace(each, sums=msgspec.structs.replace(each.sums, reported=None, estimated=None))
        for each in (one, other)
    ]
    return plain[0] == plain[1]
