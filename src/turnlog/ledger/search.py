"""Verbs on text: search its words, find its bytes in the archive, follow a conversation's passages."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from operator import itemgetter
from typing import Final

import msgspec

from turnlog.ledger.backend import Backend, Row, Tx
from turnlog.receipts import canonical

RANKED: Final = 20_000
"""Matches that are compared with each other. Ranking costs 1 µs a match: where more match, the newest are taken."""


class Term(msgspec.Struct, frozen=True):
    """Words that stand one after the other; with ``prefix`` the last one may go on."""

    words: tuple[str, ...]
    prefix: bool = False


class Group(msgspec.Struct, frozen=True):
    """A passage matches that has ``every`` term and ``none`` of the others."""

    every: tuple[Term, ...]
    none: tuple[Term, ...] = ()


class Let(msgspec.Struct, frozen=True, kw_only=True):
    """Which passages a search lets through; None = all. ``project``: a repository or folder, or its last name.

    ``roles`` are indexes; ``since`` is unix ms, and what has no time is not since.
    """

    provider: str | None = None
    session: str | None = None
    project: str | None = None
    roles: tuple[int, ...] | None = None
    since: int | None = None


class Span(msgspec.Struct, frozen=True):
    """The passages that the pages of one search rank: ids from ``floor`` to ``ceiling``; ``partial``: not all."""

    floor: int
    ceiling: int
    partial: bool


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a passage is: part ``part`` of the line that begins at byte ``offset`` of a source."""

    id: int
    session_id: str
    provider: str
    turn: str | None
    role: int
    at: int | None
    source_id: int
    offset: int
    part: int
    score: float = 0.0


class Piece(msgspec.Struct, frozen=True):
    """A compressed piece of a source's bytes: ``size`` of them from ``start``."""

    start: int
    size: int
    data: bytes


class TextSource(msgspec.Struct, frozen=True):
    """A source in which a conversation has text; ``native`` is the conversation's number in the passages."""

    native: int
    id: int
    provider: str
    path: str


class Relative(msgspec.Struct, frozen=True):
    """A conversation that came from another; ``turn`` spawned it."""

    session_id: str
    relation: str | None
    turn: str | None
    title: str | None = None
    began_at: int | None = None


class Said(msgspec.Struct, frozen=True):
    """A prompt or an answer that turnlog itself recorded; ``payload`` is canonical text."""

    seq: int
    turn: str | None
    kind: str
    at: int
    payload: str


class Text:
    """Text of one ledger: its words, its places, its bytes."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def ranked(
        self, groups: Sequence[Group], let: Let, span: Span | None, *, skip: int, limit: int, most: int = RANKED
    ) -> tuple[list[Place], Span]:
        """Return passages that match, best first (bm25; of equal ones the newest), and the span they are from.

        Without a span the newest ``most`` that match are ranked, and their span is returned for the pages that follow.
        Costs O(matches read until ``most`` pass the filter), 0.1 µs each, and 1 µs for each that passes.
        """
        with self._backend.read() as tx:
            natives = _natives(tx, let)
            floor, ceiling = (span.floor, span.ceiling) if span is not None else _bounds(tx, natives)
            rows = tx.all(
                "search_newest_plain" if let == Let() else "search_newest",
                match=_match(groups),
                floor=floor,
                ceiling=ceiling,
                limit=most + 1 if span is None else -1,
                roles=None if let.roles is None else canonical(list(let.roles)),
                since=let.since,
                natives=natives,
            )
            if span is None:
                partial = len(rows) > most
                del rows[most:]
                span = Span(rows[-1][0] if partial else floor, ceiling, partial)
            # Scores are negative, the best is the smallest; sorting is stable and the newest come first.
            best = nsmallest(skip + limit, rows, key=itemgetter(1))[skip:]
            found = {row[0]: row for row in tx.all("passages_by_id", ids=canonical([row[0] for row in best]))}
        return [_place(found[id_], score) for id_, score in best if id_ in found], span

    def kept(self, session_id: str | None = None) -> tuple[bool, bool, bool]:
        """Tell, of one conversation or of all: is there text, was it imported, was any of it without its text."""
        with self._backend.read() as tx:
            row = tx.one("kept_text") if session_id is None else tx.one("kept_text_of", session=session_id)
        return (bool(row[0]), bool(row[1]), bool(row[2])) if row else (False, False, False)

    def piece(self, source_id: int, at: int) -> Piece | None:
        """Return the archived piece that holds a byte of a source, or None."""
        with self._backend.read() as tx:
            row = tx.one("piece_at", source=source_id, at=at)
        return Piece(row[0], row[1], row[2]) if row is not None and row[0] <= at < row[0] + row[1] else None

    def sources(self, session_id: str) -> list[TextSource]:
        """Return the sources in which a conversation has text. O(passages of the conversation)."""
        with self._backend.read() as tx:
            return [TextSource(*row) for row in tx.all("text_sources", session=session_id)]

    def passages(self, session_id: str, source: TextSource, after: int, limit: int) -> list[Place]:
        """Return passages of a conversation in one source in the order of reading, behind the one with id ``after``."""
        with self._backend.read() as tx:
            rows = tx.all("passages_of", native=source.native, source=source.id, after=after, limit=limit)
        return [_place((row[0], session_id, source.provider, *row[1:4], source.id, *row[4:])) for row in rows]

    def said(self, session_id: str, after: int, limit: int) -> list[Said]:
        """Return prompts and answers among a conversation's receipts with seq > ``after``, in order."""
        with self._backend.read() as tx:
            return [Said(*row) for row in tx.all("words_spoken", session=session_id, after=after, limit=limit)]

    def children(self, session_id: str) -> list[Relative]:
        """Return the conversations that came from this one, oldest first."""
        with self._backend.read() as tx:
            return [Relative(*row) for row in tx.all("children_of", session=session_id)]

    def origin(self, session_id: str) -> Relative | None:
        """Return the conversation that this one came from, or None."""
        with self._backend.read() as tx:
            row = tx.one("origin_of", session=session_id)
        return None if row is None else Relative(*row)


def _bounds(tx: Tx, natives: str | None) -> tuple[int, int]:
    row = tx.one("word_range", natives=natives)
    return (int(row[0]), int(row[1])) if row is not None else (0, 0)


def _natives(tx: Tx, let: Let) -> str | None:
    """Return the conversations let through as a JSON list; None = all."""
    if let.provider is None and let.session is None and let.project is None:
        return None
    rows = tx.all("natives_where", provider=let.provider, session=let.session)
    return canonical([row[0] for row in rows if let.project is None or _in_project(row[1], let.project)])


def _in_project(folder: str | None, word: str) -> bool:
    word = word.rstrip("/") or word
    return folder is not None and (folder == word or folder.endswith(f"/{word}") or folder.startswith(f"{word}/"))


def _match(groups: Sequence[Group]) -> str:
    """Return the full-text expression. Words hold nothing but letters and digits, so quotes are all they need."""
    return " OR ".join(f"({_group(group)})" for group in groups)


def _group(group: Group) -> str:
    every = " AND ".join(_term(term) for term in group.every)
    return f"({every}) NOT ({' OR '.join(_term(term) for term in group.none)})" if group.none else every


def _term(term: Term) -> str:
    return f'"{" ".join(term.words)}"{" *" if term.prefix else ""}'


def _place(row: Row, score: float = 0.0) -> Place:
    id_, session_id, provider, turn, role, at, source_id, offset, part = row
    return Place(
        id=id_,
        session_id=session_id,
        provider=provider,
        turn=turn,
        role=role,
        at=at,
        source_id=source_id,
        offset=offset,
        part=part,
        score=-score,
    )
