"""What stands behind a session's usage: its streams, and the receipts of each with the bytes they were read from."""

from __future__ import annotations

import msgspec

from turnlog.errors import MissingError
from turnlog.ledger import Store
from turnlog.model import Gap
from turnlog.queries import pricing, resolve_input
from turnlog.queries.folding import fold, is_covered
from turnlog.queries.rollup import Pricing
from turnlog.usage.buckets import COUNTERS, Rolled, estimate_of
from turnlog.usage.identity import unmarked
from turnlog.usage.prices import Book
from turnlog.usage.report import Native, Tokens
from turnlog.usage.streams import Stream

Places = dict[int, tuple[str, int]]


class ReceiptPlace(msgspec.Struct, frozen=True):
    """One receipt. ``source`` and ``offset`` say where it was read; None = it came over the wire."""

    seq: int
    source: str | None = None
    offset: int | None = None


class Copy(msgspec.Struct, frozen=True):
    """A receipt that repeats a call which ``owner`` (a session) counts."""

    seq: int
    call: str
    owner: str | None
    source: str | None = None
    offset: int | None = None


class StreamTold(msgspec.Struct, frozen=True, kw_only=True):
    """One stream with everything behind it. Instants are unix ms.

    ``estimated_usd`` is what reports count, made by ``prices``; ``price_model`` the entry that today's prices have for
    it. ``counted`` false: the receipts of the parent conversation count this work.
    """

    id: str
    provider: str
    model: str | None
    service: str | None
    thread: str | None
    turn: str | None
    at: int
    source: str
    final: bool
    counted: bool
    calls: int | None
    tokens: Tokens
    peak_input: int | None
    tier: str | None
    reported_usd: float | None
    estimated_usd: float | None
    prices: str | None
    price_model: str | None
    lower_bound: bool
    gaps: tuple[Gap, ...]
    receipts: tuple[ReceiptPlace, ...]


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of one conversation, or of one input of it. ``gaps`` belong to no stream."""

    session: str
    input: str | None
    native: Native
    streams: tuple[StreamTold, ...]
    gaps: tuple[Gap, ...]
    copies: tuple[Copy, ...]
    unreadable: int


def explain(store: Store, selector: str) -> Explained:
    """Return what stands behind the usage of a session, or of an input (its key or a unique prefix of it).

    A fresh fold: O(receipts of the session). Raises MissingError, InvalidError for an ambiguous prefix.
    """
    session = store.sessions.get(selector)
    key = None
    if session is None:
        key = resolve_input(store, selector)
        session = store.sessions.of_artifact(key)
    if session is None:
        raise MissingError(f"no session or input {selector[:80]!r}")
    book = Pricing(pricing.open_book).book
    with store.rollups.read() as tx:
        wanted = {capture for capture, artifact, _, _ in tx.captures(session.id) if artifact == key}
        folded = fold(tx, session.id, details=True)
        covered = is_covered(tx, session.id, {})
        state = tx.state(session.id)
        kept = {} if state.number is None else {row.key: row for row in tx.streams(state.number)}
        versions = {number: version for number, _, version in tx.prices()}
        places = tx.places(session.id)
        streams = []
        for row, stream in zip(folded.streams, folded.details, strict=True):
            if key is None or row.capture in wanted:
                held = kept.get(row.key)
                if held is not None:
                    row.estimated, row.low, row.prices = held.estimated, held.low, held.prices
                row.counted = not covered
                streams.append(_told(row, stream, places, versions, book))
        facts = tx.facts(session.id)
        return Explained(
            session=session.id,
            input=key,
            native=Native(facts[0].provider, facts[0].native) if facts else Native(None, None),
            streams=tuple(streams),
            gaps=tuple(gap for capture, gap in folded.loose_details if key is None or capture in wanted),
            copies=tuple(
                Copy(seq, unmarked(call)[0], owner, *places.get(seq, (None, None)))
                for seq, call, owner in tx.copies(session.id)
            ),
            unreadable=sum(count for name, _, count in tx.problems() if name == session.id),
        )


def _told(row: Rolled, stream: Stream, places: Places, versions: dict[int, str], book: Book | None) -> StreamTold:
    today = None if book is None else estimate_of(row, book)
    usd, low, prices = row.estimated, row.low, versions.get(row.prices or 0)
    if usd is None and row.prices is None and today is not None:
        usd, low, prices = today.usd, today.lower_bound, today.version  # not kept yet
    return StreamTold(
        id=stream.id,
        provider=stream.provider,
        model=stream.model,
        service=stream.service,
        thread=stream.thread,
        turn=stream.turn,
        at=row.at,
        source=stream.source,
        final=stream.final,
        counted=row.counted,
        calls=row.calls,
        tokens=Tokens(**{name: getattr(stream, name) for name in COUNTERS}),
        peak_input=stream.peak,
        tier=stream.tier,
        reported_usd=stream.cost,
        estimated_usd=usd,
        prices=None if usd is None else prices,
        price_model=None if today is None else today.model,
        lower_bound=low,
        gaps=stream.gaps,
        receipts=tuple(ReceiptPlace(seq, *places.get(seq, (None, None))) for seq in stream.seqs),
    )
