"""What was pruned stays pruned when another file tells of it again: its text is not indexed, its bytes are not kept."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from turnlog import archive
from turnlog.intake.pump import Chunk
from turnlog.ledger.imports import Conversation, ImportTx

Piece = tuple[int, int, bytes]
"""Where a piece begins in its source, how many bytes it holds, and these compressed."""


class Held:
    """Which lines of sources are left out. One object for one import."""

    def __init__(self) -> None:
        self._since: dict[int, int | None] = {}
        self._turns: dict[int, list[tuple[int, bool]]] = {}  # by task: from which byte on lines are left out, or not

    def text(self, tx: ImportTx, conversation: Conversation, source: int, at: int | None) -> bool:
        """Tell whether what a source says of an instant (unix ms) was dropped from the ledger before.

        A source that was there when its conversation was pruned goes on with what is new in it. One that came later
        (the file was replaced or copied) may tell everything once more: of it, only what is younger than that is new,
        and nothing whose time is not known.
        """
        if conversation.holds(at):
            return True
        pruned = conversation.text_pruned_at
        if pruned is None or (at is not None and at > pruned):
            return False
        if source not in self._since:
            self._since[source] = tx.unpruned_since(source)
        since = self._since[source]
        return since is not None and since >= pruned

    def pieces(self, chunk: Chunk, lines: Iterable[tuple[int, bool]]) -> list[Piece]:
        """Return the archived pieces of a chunk without the bytes that are left out.

        ``lines``: where something was said, and whether that is left out. What follows such a line goes with it, and so
        does what stands before the first one. O(lines), and unpacking the pieces that are kept in part.
        """
        turns = self._turns.setdefault(chunk.task, [])
        marks: dict[int, bool] = {}
        for offset, held in lines:
            marks[offset] = held and marks.get(offset, True)
        for offset, held in sorted(marks.items()):
            if not turns or turns[-1][1] != held:
                turns.append((offset if turns else chunk.start, held))
        if chunk.last:
            del self._turns[chunk.task]
        if not any(held for _, held in turns):
            return chunk.pieces
        return [part for piece in chunk.pieces for part in _without(piece, turns)]


def _without(piece: Piece, turns: list[tuple[int, bool]]) -> Iterator[Piece]:
    start, size, data = piece
    spans = list(_kept(start, start + size, turns))
    if spans == [(start, start + size)]:
        yield piece
    elif spans:
        raw = archive.decompress(data, size)
        for begin, end in spans:
            yield begin, end - begin, archive.compress(raw[begin - start : end - start])


def _kept(start: int, end: int, turns: list[tuple[int, bool]]) -> Iterator[tuple[int, int]]:
    """Yield the parts of a range that are kept; what lies before the first turn is."""
    at = bisect_right(turns, start, key=lambda turn: turn[0])
    held = at > 0 and turns[at - 1][1]
    for offset, following in turns[at:]:
        if offset >= end:
            break
        if not held:
            yield start, offset
        start, held = offset, following
    if not held:
        yield start, end
