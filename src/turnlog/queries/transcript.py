"""What was said in a conversation, in order: from the archive where it was imported, from receipts where turnlog drove.

Nothing is held: a transcript begins at once and may be longer than memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from turnlog.errors import CorruptError, InvalidError
from turnlog.harness.reading import ROLES, Role
from turnlog.ledger import Store
from turnlog.ledger.search import Said, TextSource
from turnlog.queries.text import Read, Texts
from turnlog.receipts import canonical, decode

__all__ = ["Entry", "Kin", "kin", "transcript"]

_FIRST: Final = 50
_BATCH: Final = 1_000


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing said, thought, called or returned. ``at`` is unix ms; None = unknown.

    ``text`` is None where it cannot be read, and ``problem`` tells why. ``name`` is the tool's, ``failed`` tells of its
    result. It stands at byte ``offset`` of the file ``path``, or is receipt ``seq``.
    """

    role: Role
    turn: str | None
    at: int | None
    text: str | None
    name: str | None = None
    failed: bool = False
    path: str | None = None
    offset: int | None = None
    seq: int | None = None
    problem: str | None = None


class Kin(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that this one came from, or that came from it: ``subagent fork continuation``; None = untold."""

    session: str
    relation: str | None
    turn: str | None
    title: str | None = None
    began_at: int | None = None


def transcript(store: Store, session_id: str, read: Read) -> Iterator[Entry]:
    """Yield what was said in a conversation, in the order of its files; of several files by time.

    What turnlog recorded itself comes where no file tells of it: everything of a conversation that was never imported,
    of others the turns behind the last import. The first entry costs O(passages) ids, no text; memory is a few MiB.
    """
    texts = Texts(store, read)
    latest, turns = -1, set[str]()
    streams = [_stream(store, session_id, source, texts) for source in store.text.sources(session_id)]
    for at, _, _, entry in heapq.merge(*streams, key=lambda each: each[:3]):
        latest = max(latest, at)
        if entry.turn is not None:
            turns.add(entry.turn)
        yield entry
    after = 0
    while rows := store.text.said(session_id, after, _BATCH):
        for row in rows:
            if row.at > latest and row.turn not in turns:
                yield _said(row)
        after = rows[-1].seq


def kin(store: Store, session_id: str) -> tuple[Kin | None, tuple[Kin, ...]]:
    """Return the conversation that this one came from, and those that came from it, oldest first."""
    origin = store.text.origin(session_id)
    children = store.text.children(session_id)
    found = [
        Kin(session=each.session_id, relation=each.relation, turn=each.turn, title=each.title, began_at=each.began_at)
        for each in children
    ]
    parent = None
    if origin is not None:
        parent = Kin(session=origin.session_id, relation=origin.relation, turn=origin.turn)
    return parent, tuple(found)


def _stream(store: Store, session_id: str, source: TextSource, texts: Texts) -> Iterator[tuple[int, int, int, Entry]]:
    """Yield (time, source, passage, entry). What has no time stands at the time of what is before it."""
    after, limit, latest = 0, _FIRST, -1
    while places := store.text.passages(session_id, source, after, limit):
        for place in places:
            if place.at is not None:
                latest = max(latest, place.at)
            text, name, failed, problem = None, None, False, None
            try:
                passage = texts.passage(place)
            except CorruptError as error:
                problem = error.message
            else:
                if passage is None:
                    problem = "not in the archive"
                else:
                    text, name, failed = passage.text, passage.name, passage.failed
            yield (
                latest,
                source.id,
                place.id,
                Entry(
                    role=ROLES[place.role],
                    turn=place.turn,
                    at=place.at,
                    text=text,
                    name=name,
                    failed=failed,
                    path=source.path,
                    offset=place.offset,
                    problem=problem,
                ),
            )
        after, limit = places[-1].id, _BATCH


def _said(row: Said) -> Entry:
    role: Role = "user" if row.kind == "requested" else "assistant"
    try:
        text, problem = _words(decode(row.payload)), None
    except InvalidError as error:
        text, problem = None, error.message
    if text is None and problem is None:
        problem = "its words were not recorded"
    return Entry(role=role, turn=row.turn, at=row.at, text=text, seq=row.seq, problem=problem)


def _words(payload: Any) -> str | None:
    if not isinstance(payload, dict):
        return None
    text = payload.get("text")
    if isinstance(text, str) and (text or payload.get("value") is None):
        return text
    return canonical(payload["value"]) if payload.get("value") is not None else None
