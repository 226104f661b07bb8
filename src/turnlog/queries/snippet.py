"""A few words around what was found, safe to show: without terminal escapes, secrets hidden. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from turnlog.ledger.search import Group, Term
from turnlog.ledger.words import Word, words
from turnlog.queries.hide import hide
from turnlog.redact import strip_terminal

__all__ = ["Snippet", "snippet"]

LENGTH: Final = 240
"""Characters of a snippet, about."""

_AROUND: Final = 1_000
"""Characters around a find that are cleaned: a secret is known by what stands before it."""

_WHOLE: Final = 16_000
"""Texts up to here are cut into words as a whole."""

_TRIES: Final = 50
_ELLIPSIS: Final = "…"
_BEFORE: Final = 60


class Snippet(NamedTuple):
    """One line of text; ``marks`` are (start, end) in characters of what was searched for."""

    text: str
    marks: tuple[tuple[int, int], ...]


class _Find(NamedTuple):
    start: int
    end: int
    term: Term


def snippet(text: str, groups: Sequence[Group], *, redact: bool = True) -> Snippet:
    """Return the part of ``text`` in which most of what was searched for stands close together.

    With ``redact`` secrets are hidden, and so is a find in one. O(length of the text) where the words are rare in it.
    """
    terms = list(dict.fromkeys(term for group in groups for term in group.every))
    text = strip_terminal(text)
    region = _region(text, terms)
    region = " ".join((hide(region) if redact else region).split())
    found = _finds(words(region), terms)
    start = _best(found)
    return _cut(region, found, start)


def _region(text: str, terms: Sequence[Term]) -> str:
    """Return the whole of a short text; of a long one what is around the first place where a term really stands."""
    short = len(text) <= _WHOLE
    found = _finds(words(text), terms) if short else _sought(text, terms) or _scanned(text, terms)
    at = _best(found)
    end = next((find.end for find in found if find.start >= at), at)
    # From the beginning of a line, where it is near: what hides a secret may stand there.
    start = max(at - _AROUND, 0)
    line = text.rfind("\n", max(start - _AROUND, 0), start)
    start = line + 1 if line >= 0 else _word_start(text, start)
    stop = min(end + _AROUND, len(text))
    return text[start : _word_end(text, stop)]


def _word_start(text: str, at: int) -> int:
    """Return where the word that holds ``at`` begins, not far away: half a secret could not be told from a word."""
    floor = max(at - _AROUND, 0)
    while at > floor and not text[at - 1].isspace():
        at -= 1
    return at


def _word_end(text: str, at: int) -> int:
    ceiling = min(at + _AROUND, len(text))
    while at < ceiling and not text[at].isspace():
        at += 1
    return at


def _sought(text: str, terms: Sequence[Term]) -> list[_Find]:
    """Find terms by their letters, and look at the words only there. Misses what is written with accents."""
    for term in sorted(terms, key=lambda each: -len(each.words[0])):
        pattern = re.compile(re.escape(term.words[0]), re.IGNORECASE)
        for tries, match in enumerate(pattern.finditer(text)):
            if tries == _TRIES:
                break
            start = max(match.start() - _AROUND, 0)
            if found := _shifted(text, start, match.end() + _AROUND, terms):
                return found
    return []


def _scanned(text: str, terms: Sequence[Term]) -> list[_Find]:
    """Find terms by cutting everything into words, part by part, until there is one."""
    for start in range(0, len(text), _WHOLE):
        if found := _shifted(text, max(start - _AROUND, 0), start + _WHOLE, terms):
            return found
    return []


def _shifted(text: str, start: int, end: int, terms: Sequence[Term]) -> list[_Find]:
    # Words at both ends may be halves.
    start, end = _word_start(text, start), _word_end(text, min(end, len(text)))
    return [_Find(f.start + start, f.end + start, f.term) for f in _finds(words(text[start:end]), terms)]


def _finds(found: Sequence[Word], terms: Sequence[Term]) -> list[_Find]:
    """Return where terms stand, in order of the text. O(words × terms)."""
    finds: list[_Find] = []
    spelled = [word.folded for word in found]
    exact: dict[str, list[Term]] = {}
    open_: list[tuple[str, Term]] = []
    for term in terms:
        if term.prefix and len(term.words) == 1:
            open_.append((term.words[0], term))
        else:
            exact.setdefault(term.words[0], []).append(term)
    for at, word in enumerate(spelled):
        candidates = [*exact.get(word, ()), *(term for start, term in open_ if word.startswith(start))]
        for term in candidates:
            if _stands(spelled, at, term):
                finds.append(_Find(found[at].start, found[at + len(term.words) - 1].end, term))
                break
    return finds


def _stands(spelled: Sequence[str], at: int, term: Term) -> bool:
    last = at + len(term.words) - 1
    if last >= len(spelled):
        return False
    *first, final = term.words
    if any(spelled[at + step] != word for step, word in enumerate(first)):
        return False
    return spelled[last].startswith(final) if term.prefix else spelled[last] == final


def _best(found: Sequence[_Find]) -> int:
    """Return the start of the find from which on most different terms stand within a snippet's length."""
    best, most, last = 0, 0, 0
    for first, find in enumerate(found):
        last = max(last, first)
        while last < len(found) and found[last].end <= find.start + LENGTH - _BEFORE:
            last += 1
        different = len({each.term for each in found[first : min(last, first + 32)]})
        if different > most:
            best, most = find.start, different
    return best


def _cut(text: str, found: Sequence[_Find], at: int) -> Snippet:
    start = max(at - _BEFORE, 0)
    if start:
        start = text.find(" ", start, at) + 1 or start
    longest = max((f.end for f in found if f.start == at), default=at)
    stop = max(start + LENGTH, longest)
    if stop < len(text):
        stop = max(text.rfind(" ", longest, stop), longest) if " " in text[longest:stop] else stop
    else:
        stop = len(text)
    head, tail = _ELLIPSIS if start else "", _ELLIPSIS if stop < len(text) else ""
    shift = len(head) - start
    marks: list[tuple[int, int]] = []
    for find in found:
        if find.start >= start and find.end <= stop and (not marks or find.start + shift >= marks[-1][1]):
            marks.append((find.start + shift, find.end + shift))
    return Snippet(f"{head}{text[start:stop]}{tail}", tuple(marks))
