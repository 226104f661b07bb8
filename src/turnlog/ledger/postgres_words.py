"""Full text on PostgreSQL with the words of the SQLite ledger: text as a tsvector, a search as a tsquery.

PostgreSQL's own parser keeps paths and addresses whole and so would number words differently.
"""

from __future__ import annotations

import re
from typing import Final

from turnlog.ledger.words import words

_LAST_PLACE: Final = 16_383
"""PostgreSQL counts places up to here; words behind are found, but in no phrase."""
_LONGEST: Final = 2_000
_MOST: Final = 900_000
"""Bytes of different words of one passage: a tsvector holds 1 MiB."""

_TOKENS: Final = re.compile(r'"([^"]*)"\s*(\*)?|(AND|OR|NOT)|([()])')
_OPERATORS: Final = {"AND": "&", "OR": "|", "NOT": "& !"}


def vector(text: str) -> str:
    """Return the words of ``text`` with their places, as PostgreSQL reads a tsvector. Linear."""
    places: dict[str, list[int]] = {}
    size = 0
    for place, word in enumerate(words(text), 1):
        known = places.get(word.folded)
        if known is None:
            length = len(word.folded.encode())
            if length > _LONGEST or size + length > _MOST:
                continue
            size += length + 2
            places[word.folded] = [min(place, _LAST_PLACE)]
        elif place <= _LAST_PLACE:
            known.append(place)
    return " ".join(f"{_quoted(word)}:{','.join(map(str, where))}" for word, where in places.items())


def query(match: str) -> str:
    """Return an expression of the full-text table (quoted phrases, AND, OR, NOT, parentheses) as a tsquery."""
    found = []
    for phrase, prefix, operator, parenthesis in _TOKENS.findall(match):
        if operator:
            found.append(_OPERATORS[operator])
        elif parenthesis:
            found.append(parenthesis)
        else:
            terms = [_quoted(word) for word in phrase.removesuffix(" *").split()]
            if terms and (prefix or phrase.endswith(" *")):
                terms[-1] += ":*"
            found.append(f"({' <-> '.join(terms)})" if terms else "('')")
    return " ".join(found)


def _quoted(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"
