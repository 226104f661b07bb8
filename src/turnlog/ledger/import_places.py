"""Verbs of importing that keep where things were read: the places of receipts, native bytes, text and its index."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import orjson

from turnlog.ledger.backend import Tx
from turnlog.receipts import receipt_key

if TYPE_CHECKING:
    from turnlog.ledger.import_conversations import Conversation
    from turnlog.ledger.imports import Row

_Passage = tuple[int, str | None, int, int | None, int, int, int, str | None, str]
"""(native session, turn, role, at, source, offset, part, key, text)"""


class PlacesTx:
    """The verbs inside a batch."""

    _tx: Tx

    def places(self, rows: Iterable[tuple[int, int, int, str | None]]) -> None:
        """Store (seq, source, offset, call)."""
        self._tx.many("insert_places", rows)

    def known_places(self, rows: Iterable[tuple[Conversation, Row, int, int]]) -> None:
        """Store where receipts that are known were read again: (conversation, receipt, source, offset)."""
        self._tx.each(
            "insert_known_places",
            [
                {
                    "session": conversation.session_id,
                    "thread": row.thread,
                    "turn": row.turn,
                    "kind": row.kind,
                    "key": "" if row.kind == "started" else receipt_key(row.kind, row.text),
                    "source": source,
                    "offset": offset,
                }
                for conversation, row, source, offset in rows
            ],
        )

    def pieces(self, rows: Iterable[tuple[int, int, int, bytes]]) -> None:
        """Store (source, start, size, compressed bytes)."""
        self._tx.many("insert_pieces", rows)

    def passages(self, rows: Sequence[_Passage]) -> None:
        """Store (native session, turn, role, at, source, offset, part, key, text) and index the text.

        Text with a key replaces what was said of that before in its source. Of several sources that tell of the same
        the first by path is kept, whichever was read first.
        """
        rows, old = self._settled(rows)
        self._tx.many("drop_passages", old)
        last = self._tx.one("last_passage")
        first = 1 if last is None else int(last[0]) + 1
        self._tx.many("insert_passages", [(number, *row[:8]) for number, row in enumerate(rows, first)])
        self._tx.many("drop_words", old)
        self._tx.many("insert_words", [(number, row[8]) for number, row in enumerate(rows, first)])

    def _settled(self, rows: Sequence[_Passage]) -> tuple[Sequence[_Passage], list[tuple[int]]]:
        """Return the passages to store, and the numbers of those that they replace: O(passages with a key)."""
        newest = {(row[7], row[4]): row[5] for row in rows if row[7] is not None}
        if not newest:
            return rows, []
        sources = orjson.dumps(sorted({source for _, source in newest})).decode()
        paths: dict[int, str] = dict(self._tx.all("source_paths", ids=sources))
        found = self._tx.all("passages_of_keys", keys=orjson.dumps(sorted({key for key, _ in newest})).decode())
        told = {(key, paths[source]) for key, source in newest}
        kept: dict[str, str] = {}
        for key, path in itertools.chain(told, (row[1:] for row in found)):
            kept[key] = min(path, kept.get(key, path))
        old = [(number,) for number, key, path in found if path > kept[key] or (key, path) in told]
        new = [
            row
            for row in rows
            if row[7] is None or (newest[row[7], row[4]] == row[5] and paths[row[4]] == kept[row[7]])
        ]
        return new, old
