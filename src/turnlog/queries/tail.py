"""Following the receipts of a ledger: pages behind a cursor, and waiting for what comes next."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from turnlog.errors import CorruptError, InvalidError
from turnlog.ledger import Store
from turnlog.ledger.rows import RawEvent, parse_payload
from turnlog.model import EventKind

__all__ = ["Page", "Received", "follow", "page"]

PAGE: Final = 500
"""Receipts read at once: memory stays small whatever lies behind a cursor."""

BEAT_S: Final = 1.0
"""An empty page comes at least this often, so that whoever follows may look after other things."""


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """One receipt of a tail; ``cursor`` lies behind it. The other members are those of Event.

    ``payload`` is None where it cannot be read, and ``problem`` tells why: nothing else is lost with it. ``kind`` is
    plain text, for a newer turnlog may write kinds that this one does not know.
    """

    cursor: str
    seq: int
    session_id: str
    thread: str | None
    turn: str | None
    kind: str
    provider_generation: int | None
    exec_id: str | None
    task_id: str | None
    wave_id: str | None
    observed_at: int
    payload: Any
    problem: str | None = None


class Page(msgspec.Struct, frozen=True):
    """Receipts in the order of the tail, and the cursor behind all that was looked at for them."""

    receipts: tuple[Received, ...]
    cursor: str


def page(
    store: Store, cursor: str | None, *, session: str | None = None, kind: str | None = None, limit: int = PAGE
) -> Page:
    """Return up to ``limit`` receipts behind a cursor (None: from the first on): O(limit) without filters.

    Raises InvalidError for what is no cursor or kind, StaleError for a cursor of another ledger.
    """
    if kind is not None and kind not in {each.value for each in EventKind}:
        raise InvalidError(f"no kind {kind!r}", hint=f"choose one of {', '.join(EventKind)}")
    rows, after = store.tail.page(cursor, limit, session=session, kind=kind)
    return Page(tuple(_received(place, row) for place, row in rows), after)


def follow(
    store: Store,
    cursor: str | None,
    *,
    session: str | None = None,
    kind: str | None = None,
    stop: threading.Event | None = None,
) -> Iterator[Page]:
    """Yield pages of receipts behind a cursor (None: from the first on) as they are committed, until ``stop`` is set.

    No receipt is left out and none comes twice, whoever writes and however many do. An empty page comes when nothing
    new has for a second. Raises what ``page`` does.
    """
    stop = stop or threading.Event()
    while not stop.is_set():
        token = store.change_token()  # before reading, so that nothing falls between the two
        found = page(store, cursor, session=session, kind=kind)
        cursor = found.cursor
        yield found
        if not found.receipts:
            store.tail.wait(token, BEAT_S, stop)


def _received(cursor: str, row: RawEvent) -> Received:
    payload, problem = None, None
    try:
        payload = parse_payload(row.payload, row.seq, row.session_id)
    except CorruptError as error:
        problem = error.message
    return Received(
        cursor=cursor,
        seq=row.seq,
        session_id=row.session_id,
        thread=row.thread,
        turn=row.turn,
        kind=row.kind,
        provider_generation=row.provider_generation,
        exec_id=row.exec_id,
        task_id=row.task_id,
        wave_id=row.wave_id,
        observed_at=row.observed_at,
        payload=payload,
        problem=problem,
    )
