"""Text of passages, read again from the archive: the ledger knows where a passage is, not what it says."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from turnlog.archive import decompress
from turnlog.errors import CorruptError
from turnlog.harness.reading import Passage
from turnlog.ledger import Store
from turnlog.ledger.search import Place

__all__ = ["Read", "Texts"]

Read = Callable[[str, bytes], tuple[Passage, ...]]
"""Gives the passages of one line of a provider's (``Reader.passages``)."""

_KEPT: Final = 4
"""Pieces kept unpacked, at most 1 MiB each."""


class Texts:
    """Reads passages; those of neighbouring lines come from the same piece and cost little. Not for several threads."""

    def __init__(self, store: Store, read: Read) -> None:
        self._store = store
        self._read = read
        self._pieces: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._line: tuple[int, int, tuple[Passage, ...]] | None = None

    def passage(self, place: Place) -> Passage | None:
        """Return what a passage says; None where the archive does not have it. Raises CorruptError for damage.

        O(length of its line), and unpacking a piece when it is another than the last ones.
        """
        if self._line is None or self._line[:2] != (place.source_id, place.offset):
            raw = self._raw(place.source_id, place.offset)
            passages = () if raw is None else self._read(place.provider, raw)
            self._line = (place.source_id, place.offset, passages)
        passages = self._line[2]
        return passages[place.part] if place.part < len(passages) else None

    def _raw(self, source_id: int, offset: int) -> bytes | None:
        """Return the line that begins at a byte of a source, without its line end."""
        found = self._piece(source_id, offset)
        if found is None:
            return None
        start, data = found
        parts: list[bytes] = []
        at = offset - start
        while True:
            end = data.find(b"\n", at)
            if end >= 0:
                parts.append(data[at:end])
                break
            parts.append(data[at:])
            following = self._piece(source_id, start + len(data))
            if following is None:  # the last line
                break
            start, data = following
            at = 0
        return b"".join(parts)

    def _piece(self, source_id: int, at: int) -> tuple[int, bytes] | None:
        for (source, start), data in reversed(self._pieces.items()):
            if source == source_id and start <= at < start + len(data):
                self._pieces.move_to_end((source, start))
                return start, data
        piece = self._store.text.piece(source_id, at)
        if piece is None:
            return None
        try:
            data = decompress(piece.data, piece.size)
        except CorruptError as error:
            raise CorruptError(f"{error.message} (source {source_id}, byte {piece.start})") from error
        self._pieces[source_id, piece.start] = data
        if len(self._pieces) > _KEPT:
            self._pieces.popitem(last=False)
        return piece.start, data
