"""A ledger into one that holds those of others, as of a team: what is new since the last time, each thing once.

Everything is told by what names it anywhere, never by its number. A push that was cut goes on where it was; made again
it changes nothing; pushes from several homes at once, in any order, make the same ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from turnlog.clock import Now
from turnlog.ledger.backend import Backend
from turnlog.ledger.copy_tables import ARCHIVE, SOURCES
from turnlog.ledger.homes import Home
from turnlog.ledger.imports import ImportTx
from turnlog.ledger.push_receipts import Receipts
from turnlog.ledger.push_sessions import push_sessions
from turnlog.ledger.push_state import Push, Pushed, Wishes
from turnlog.ledger.push_work import (
    push_execs,
    push_homes,
    push_natives,
    push_requests,
    push_sources,
    push_work,
)
from turnlog.ledger.search import Place
from turnlog.ledger.sessions import Sessions

__all__ = ["Pushed", "Pushes"]

SKEW_MS: Final = 5 * 60_000
"""A home whose clock differs more than this from the server's is told of."""

_PIECES: Final = 8
_PASSAGES: Final = 500


class Pushes:
    """Pushing from one ledger."""

    def __init__(self, backend: Backend, now: Now) -> None:
        self._backend = backend
        self._now = now

    def into(
        self,
        target: Pushes,
        *,
        home: Home | None,
        archive: bool,
        same: Callable[[str, Any, Any], bool],
        said: Callable[[Place], str | None],
        progress: Callable[[Pushed], None] | None = None,
    ) -> Pushed:
        """Tell ``target`` what it was not told yet: O(new receipts + rows of everything else), memory of a page.

        ``archive``: the bytes of sources and the text in them, too. Conflicts are counted in the answer and never
        overwrite. Raises ConflictError for the same ledger, UnavailableError when either cannot be had, after which the
        same push goes on.
        """
        wishes = Wishes(home, archive, same, said, progress or (lambda _: None))
        push = Push(self._backend, target._backend, self._now, wishes)
        _look_at_clock(push)
        cursor = push.begin()
        push_homes(push)
        push_execs(push)
        push_work(push)
        push_sources(push)
        receipts = Receipts(push)
        receipts.after(cursor)
        receipts.again()
        push_sessions(push)
        push_requests(push)
        push_natives(push)
        if archive:
            _push_text(push)
        push.visit()
        return push.done


def _look_at_clock(push: Push) -> None:
    with push.target.read() as tx:
        row = tx.one("server_time")
    skew = 0 if row is None or row[0] is None else push.now() - int(row[0])
    if abs(skew) > SKEW_MS:
        minutes = round(abs(skew) / 60_000)
        way = "ahead of" if skew > 0 else "behind"
        push.done.notes.append(
            f"the clock here is {minutes} minutes {way} the server's; receipts keep the times that were noted here"
        )


def _push_text(push: Push) -> None:
    """Tell the bytes of sources and their text, of each source that has other ones than last time."""
    after: tuple[Any, ...] | None = None
    while True:
        with push.source.read() as tx:
            rows = SOURCES.page(tx, after, _PASSAGES)
        if not rows:
            return
        after = rows[-1][:1]
        for row in rows:
            source = dict(zip(SOURCES.columns, row, strict=True))
            there = push.sources.get(source["id"])
            if source["archived"] and there is not None:
                _source_text(push, source, there)


def _source_text(push: Push, source: dict[str, Any], there: int) -> None:
    number = source["id"]
    with push.source.read() as tx:
        found = tx.one("text_state", source=number)
    state = f"{source['read_to']} {source['pruned_at']} {found}"
    if push.told("text", [str(number)]).get(str(number)) == state:
        return
    with push.target.read() as tx:
        last = tx.one("last_piece", id=there)
    # The last piece may have grown since.
    after: tuple[Any, ...] = (number, -(2**63) if last is None else int(last[0]) - 1)
    while True:
        with push.source.read() as tx:
            rows = [row for row in ARCHIVE.page(tx, after, _PIECES) if row[0] == number]
        if not rows:
            break
        after = rows[-1][:2]
        with push.target.write() as tx:
            tx.many("insert_pieces", [(there, *row[1:]) for row in rows])
        push.done.pieces += len(rows)
        push.wishes.progress(push.done)
    _passages(push, number, there)
    push.tell("text", {str(number): state})


def _passages(push: Push, number: int, there: int) -> None:
    with push.target.write() as tx:
        tx.one("last_passage")  # takes its turn with imports
        tx.run("delete_words", id=there)
        tx.run("delete_passages", id=there)
        tx.run("mark_archived", id=there)
    natives: dict[tuple[str, str], int | None] = {}
    after = 0
    while True:
        with push.source.read() as tx:
            rows = tx.all("passages_of_source", source=number, after=after, limit=_PASSAGES)
        if not rows:
            return
        after = rows[-1][0]
        with push.target.write() as tx:
            told = []
            for row in rows:
                provider, native = row[2], row[10]
                if (provider, native) not in natives:
                    found = tx.one("native_of", provider=provider, native=native)
                    natives[provider, native] = None if found is None else int(found[0])
                here = natives[provider, native]
                words = push.wishes.said(_place(row))
                if here is not None and words is not None:
                    told.append((here, row[3], row[4], row[5], there, row[7], row[8], row[9], words))
            ImportTx(tx, push.now(), Sessions(push.target, push.now)).passages(told)
        push.done.passages += len(told)
        push.wishes.progress(push.done)


def _place(row: tuple[Any, ...]) -> Place:
    return Place(
        id=row[0],
        session_id=row[1],
        provider=row[2],
        turn=row[3],
        role=row[4],
        at=row[5],
        source_id=row[6],
        offset=row[7],
        part=row[8],
    )
