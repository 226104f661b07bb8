"""Full-text search over what was imported: a query as people write it, ranked pages, snippets from the archive."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, get_args

import msgspec

from turnlog.errors import CorruptError, InvalidError
from turnlog.harness.reading import ROLES, Role
from turnlog.ledger import Store
from turnlog.ledger.search import RANKED, Group, Let, Place, Span, Term
from turnlog.ledger.words import words
from turnlog.queries.snippet import snippet
from turnlog.queries.text import Read, Texts

__all__ = ["Hit", "Results", "Roles", "parse", "search"]

Roles = Literal["user", "assistant", "reasoning", "tool_input", "tool_output", "note", "tool"]
"""What ``role`` may be: a role, or ``tool`` for what went into tools and came out of them."""

MOST_WORDS: Final = 200
MOST_HITS: Final = 1_000

_PARTS: Final = re.compile(r'(?P<minus>-?)"(?P<phrase>[^"]*)(?:"(?P<star>\*?)|$)|(?P<word>\S+)')


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One passage that was found. ``at`` is unix ms, None = its source gives no time.

    ``snippet`` is one line, None where the archive cannot give it; ``marks`` are (start, end) in its characters.
    ``score`` is larger for better ones and compares only within one search.
    """

    session: str
    provider: str
    turn: str | None
    role: Role
    at: int | None
    snippet: str | None
    marks: tuple[tuple[int, int], ...]
    score: float


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """A page of hits, best first. ``ranked``: ``all`` matches were compared, or only the ``recent`` ones.

    ``next`` continues; ``problems`` are places of the archive that could not be read.
    """

    hits: tuple[Hit, ...]
    next: str | None
    ranked: Literal["all", "recent"]
    problems: tuple[str, ...] = ()


class _Cursor(msgspec.Struct, array_like=True):
    query: str
    floor: int
    ceiling: int
    partial: bool
    skip: int


class _Part(NamedTuple):
    text: str
    negated: bool
    prefix: bool
    operator: str | None


def search(
    store: Store,
    query: str,
    read: Read,
    *,
    let: Let | None = None,
    limit: int = 20,
    cursor: str | None = None,
    most: int = RANKED,
    redact: bool = True,
) -> Results:
    """Return the passages that match a query, best first (bm25, of equal ones the newest).

    Where more than ``most`` match, the ``most`` that were recorded last are ranked. Costs 0.1 µs for each match, 1 µs
    for each that is ranked, and about 1 ms for each hit's snippet. Raises InvalidError for a query without a word to
    look for, a limit outside 1…1000 and a cursor of another search.
    """
    let = let or Let()
    if not 1 <= limit <= MOST_HITS:
        raise InvalidError(f"a search gives 1 to {MOST_HITS} hits", hint="--cursor continues")
    groups = parse(query)
    digest = hashlib.sha256(msgspec.json.encode((groups, let))).hexdigest()[:16]
    span, skip = None, 0
    if cursor is not None:
        place = _decoded(cursor, digest)
        span, skip = Span(place.floor, place.ceiling, place.partial), place.skip
    places, span = store.text.ranked(groups, let, span, skip=skip, limit=limit + 1, most=most)
    following = None
    if len(places) > limit:
        following = _encoded(_Cursor(digest, span.floor, span.ceiling, span.partial, skip + limit))
    hits, problems = _hits(Texts(store, read), places[:limit], groups, redact=redact)
    return Results(
        hits=tuple(hits), next=following, ranked="recent" if span.partial else "all", problems=tuple(problems)
    )


def _hits(
    texts: Texts, places: Sequence[Place], groups: Sequence[Group], *, redact: bool
) -> tuple[list[Hit], list[str]]:
    problems: dict[str, None] = {}
    hits: dict[int, Hit] = {}
    # Read by place: hits of one piece are neighbours then, and it is unpacked once.
    for place in sorted(places, key=lambda each: (each.source_id, each.offset, each.part)):
        text: str | None = None
        marks: tuple[tuple[int, int], ...] = ()
        try:
            passage = texts.passage(place)
        except CorruptError as error:
            problems[error.message] = None
        else:
            if passage is not None:
                text, marks = snippet(passage.text, groups, redact=redact)
        hits[place.id] = Hit(
            session=place.session_id,
            provider=place.provider,
            turn=place.turn,
            role=ROLES[place.role],
            at=place.at,
            snippet=text,
            marks=marks,
            score=round(place.score, 9),
        )
    return [hits[place.id] for place in places], list(problems)


def role_numbers(role: str | None) -> tuple[int, ...] | None:
    """Return which roles a word lets through; None = all. Raises InvalidError for one that does not exist."""
    if role is None:
        return None
    if role not in get_args(Roles):
        raise InvalidError(f"no such role: {role}", hint=f"one of {', '.join(get_args(Roles))}")
    return tuple(at for at, name in enumerate(ROLES) if role == name or (role == "tool" and name.startswith("tool_")))


# --- the query


def parse(query: str) -> tuple[Group, ...]:
    """Return what a query asks for: groups of which one must match.

    Words must all be there; ``"words in quotes"`` one after the other; ``begin*`` is the beginning of a word, ``-word``
    and ``NOT word`` must not be there; ``OR`` parts groups. Everything else only separates words, as in the text that
    is searched. Raises InvalidError when nothing is left to look for.
    """
    parts = list(_parts(query))
    if all(part.operator for part in parts):  # somebody looks for the word "or"
        parts = [part._replace(operator=None) for part in parts]
    groups = [group for group in _groups(parts) if group.every]
    if not groups:
        raise InvalidError("nothing to search for", hint="give a word that must be there; -word only leaves things out")
    count = sum(len(term.words) for group in groups for term in (*group.every, *group.none))
    if count > MOST_WORDS:
        raise InvalidError(f"{count} words are too many to search for", hint=f"at most {MOST_WORDS}")
    return tuple(groups)


def _parts(query: str) -> list[_Part]:
    parts = []
    for match in _PARTS.finditer(query):
        word = match["word"]
        if word is None:
            parts.append(_Part(match["phrase"], bool(match["minus"]), bool(match["star"]), None))
        elif word in {"AND", "OR", "NOT"}:
            parts.append(_Part(word, negated=False, prefix=False, operator=word))
        else:
            negated = word.startswith("-") and not word.startswith("--")
            parts.append(_Part(word, negated, word.endswith("*"), None))
    return parts


def _groups(parts: Sequence[_Part]) -> list[Group]:
    groups: list[Group] = []
    every: list[Term] = []
    none: list[Term] = []
    negate = False
    for part in parts:
        if part.operator == "OR":
            groups.append(_group(every, none))
            every, none = [], []
        if part.operator is None and (term := _term(part)) is not None:
            (none if part.negated or negate else every).append(term)
        negate = part.operator == "NOT"
    groups.append(_group(every, none))
    return groups


def _group(every: Sequence[Term], none: Sequence[Term]) -> Group:
    return Group(tuple(dict.fromkeys(every)), tuple(dict.fromkeys(none)))


def _term(part: _Part) -> Term | None:
    text = part.text.rstrip("*") if part.prefix else part.text
    found = words(text)
    if not found:
        return None
    # A star behind a mark of punctuation stands for nothing.
    prefix = part.prefix and found[-1].end == len(text)
    return Term(tuple(word.folded for word in found), prefix)


# --- pages


def _encoded(cursor: _Cursor) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def _decoded(text: str, digest: str) -> _Cursor:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        cursor = msgspec.json.decode(raw, type=_Cursor)
    except (binascii.Error, msgspec.DecodeError, ValueError):
        raise InvalidError("not a cursor", hint="give `next` of the page before, unchanged") from None
    if cursor.query != digest or cursor.skip < 0:
        raise InvalidError("this cursor belongs to another search", hint="repeat the query and its filters with it")
    return cursor
