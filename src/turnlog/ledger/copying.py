"""A whole ledger into another one: every row as it is, numbers of receipts included.

Lists follow by triggers and roll-ups by their fold, as after any other write. The target ends as an equal of the source
with an identity of its own: cursors on the source mean nothing there.

One consistent read of the source, small transactions on the target. Rows are compared in the order of their keys with
those that the target has, so a copy that was cut goes on with what is missing, and one made again takes what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from turnlog.errors import ConflictError, CorruptError, InvalidError
from turnlog.ledger.backend import Backend, Row, Tx
from turnlog.ledger.copy_tables import EVENTS, HOMES, INPUTS, TABLES, Table
from turnlog.ledger.homes import Home
from turnlog.ledger.push_state import ledger_names
from turnlog.ledger.search import Place
from turnlog.ledger.tail import tail_place

_PAGE: Final = 1_000
_PAGE_BYTES: Final = 8_000_000
_WORDLESS: Final = 500

PUSH_HINT: Final = "`turnlog ledger push` adds to a ledger that holds something"


class Copying(msgspec.Struct):
    """How far a copy has come; rows. ``receipts`` are among the ``rows`` written."""

    rows: int = 0
    rows_total: int = 0
    receipts: int = 0
    passages: int = 0


Progress = Callable[[Copying], None]
Said = Callable[[Place], str | None]
"""Gives the text of a passage of the source; None where it cannot be had."""


class Copies:
    """Copying from one ledger."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def homes(self) -> list[Home]:
        """Return the homes that write into this ledger, or were pushed from, by id."""
        with self._backend.read() as tx:
            return [Home(*row) for row in HOMES.page(tx, None, _PAGE)]

    def into(self, target: Copies, *, said: Said, progress: Progress | None = None) -> Copying:
        """Make ``target`` an equal of this ledger: O(rows), memory of a page.

        ``said`` gives the texts of passages, whose words no ledger can give back. Raises ConflictError when the target
        holds anything that is not from here; InvalidError for a value that it cannot hold; UnavailableError when either
        ledger cannot be had, after which the same copy goes on where it was.
        """
        told = progress or (lambda _: None)
        done = Copying()
        with self._backend.read() as source:
            name = ledger_names(source)[0]
            last = source.one("last_seqs") or (0, 0, 0, 0)
            fresh = _admit(target._backend, name, last[0], last[1])
            count = source.one("copy_count")
            done.rows_total = count[0] if count else 0
            for table in TABLES:
                _mirror(source, target._backend, table, done, told, fresh=fresh)
        with target._backend.write() as tx:
            events, requests, sources, natives = last
            tx.one("move_seqs", events=events, requests=requests, sources=sources, natives=natives)
            tx.run("rollup_forget")
        _index(target._backend, said, done, told)
        return done


def _admit(target: Backend, source: str, receipts: int, requests: int) -> bool:
    """Note in the target what becomes of it; True when it was empty. Raises ConflictError.

    The numbers are the last ones of the source. A row behind those of the last copy is one of the target's own: it
    would meet another of the same number. One before them that is gone from the source was removed there.
    """
    with target.write() as tx:
        name, _, copied_from, copied_to = ledger_names(tx)
        if name == source:
            raise ConflictError("both are the same ledger", hint="name another one to copy into")
        empty = tx.one("ledger_is_empty")
        fresh = bool(empty and empty[0])
        before = [0, 0] if copied_to is None else [int(each) for each in copied_to.split()]
        if not fresh and copied_from != source:
            raise ConflictError(f"{target.url} is not empty, and no copy of this ledger", hint=PUSH_HINT)
        held = (tail_place(tx)[3], (tx.one("last_seqs") or (0, 0))[1])
        if not fresh and (held[0] > before[0] or held[1] > before[1]):
            raise ConflictError(f"{target.url} was written to since it was copied", hint=PUSH_HINT)
        tx.run("note_ledger", key="copied_from", value=source)
        tx.run("note_ledger", key="copied_to", value=f"{max(receipts, before[0])} {max(requests, before[1])}")
    return fresh


def pages(tx: Tx, table: Table) -> Iterator[list[Row]]:
    """Yield the rows of a table in the order of its key, in pages of some megabytes."""
    after: tuple[Any, ...] | None = None
    limit = _PAGE // 10
    while True:
        try:
            rows = table.page(tx, after, limit)
        except CorruptError as error:
            where = f"{table.noun} behind {after}"
            raise CorruptError(f"{where}: {error.message}", hint=error.hint) from error
        if not rows:
            return
        yield rows
        after = rows[-1][: table.key]
        size = sum(len(value) for row in rows for value in row if isinstance(value, str | bytes)) // len(rows) + 1
        limit = max(1, min(limit * 2, _PAGE, _PAGE_BYTES // size))


def _mirror(source: Tx, target: Backend, table: Table, done: Copying, told: Progress, *, fresh: bool) -> None:
    there = _There(table, empty=fresh)
    for rows in pages(source, table):
        key = rows[-1][: table.key]
        try:
            with target.write() as tx:
                _write(tx, target, table, rows, there.until(tx, key))
        except InvalidError as error:
            where = f"{table.noun} up to {', '.join(map(str, key))}"
            raise InvalidError(f"{where} cannot be copied: {error.message}", hint=error.hint) from error
        done.rows += len(rows) if table is not INPUTS else 0
        done.receipts += len(rows) if table is EVENTS else 0
        told(done)
    if not fresh:
        with target.write() as tx:
            _drop(tx, target, table, there.until(tx, None))


class _There:
    """The rows that the target has already, read beside the source's in the order of their keys."""

    def __init__(self, table: Table, *, empty: bool) -> None:
        self._table = table
        self._rows: list[Row] = []
        self._after: tuple[Any, ...] | None = None
        self._end = empty

    def until(self, tx: Tx, last: tuple[Any, ...] | None) -> dict[tuple[Any, ...], Row]:
        """Return the rows up to a key that were not returned yet; all the others without one."""
        key = self._table.key
        while not self._end and (last is None or self._after is None or self._after <= last):
            rows = self._table.page(tx, self._after, _PAGE // 10)
            self._rows += rows
            self._end = not rows
            self._after = rows[-1][:key] if rows else self._after
        found = {row[:key]: row for row in self._rows if last is None or row[:key] <= last}
        self._rows = [row for row in self._rows if row[:key] not in found]
        return found


def _write(tx: Tx, target: Backend, table: Table, rows: list[Row], there: dict[tuple[Any, ...], Row]) -> None:
    """Put what the target lacks or has otherwise; forget what only it has."""
    if not there:
        table.write(tx, target, rows)
        return
    new, other = [], []
    for row in rows:
        held = there.pop(row[: table.key], None)
        if held is None:
            new.append(row)
        elif held != row:
            other.append(row)
    _drop(tx, target, table, there)
    for query in table.drop[:1]:
        # The words of a passage that is another now are another's.
        tx.many(query, [row[: table.key] for row in other] if query == "drop_words" else [])
    if table.change is None:
        table.write(tx, target, new + other)
        return
    table.write(tx, target, new)
    for row in other:
        tx.run(table.change, **dict(zip(table.columns, row, strict=True)))


def _drop(tx: Tx, target: Backend, table: Table, rows: dict[tuple[Any, ...], Row]) -> None:
    if not rows:
        return
    if not table.drop:
        example = ", ".join(map(str, next(iter(rows))))
        raise ConflictError(
            f"{target.url} has {table.noun} of its own ({example}): it was written to since it was copied",
            hint=PUSH_HINT,
        )
    for query in table.drop:
        tx.many(query, list(rows))


def _index(target: Backend, said: Said, done: Copying, told: Progress) -> None:
    """Give passages their words where they have none yet."""
    after = 0
    while True:
        with target.read() as tx:
            rows = tx.all("wordless", after=after, limit=_WORDLESS)
        if not rows:
            return
        found = []
        for row in rows:
            place = Place(
                id=row[0],
                session_id=row[1] or "",
                provider=row[2],
                turn=row[3],
                role=row[4],
                at=row[5],
                source_id=row[6],
                offset=row[7],
                part=row[8],
            )
            text = said(place)
            if text is not None:
                found.append((row[0], text))
        with target.write() as tx:
            tx.many("insert_words", found)
        done.passages += len(found)
        after = rows[-1][0]
        told(done)
