"""Check a ledger against itself: storage, payloads, keys, grounding, and the lists against a fresh fold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from turnlog.errors import InvalidError
from turnlog.ledger.backend import Backend
from turnlog.model import EventKind, Problem
from turnlog.receipts import canonical, decode, receipt_key

_CHUNK: Final = 5000
_KINDS: Final = frozenset(EventKind)


def verify(backend: Backend) -> list[Problem]:
    """Recompute everything that can be recomputed; return what does not agree. Memory is bounded by a chunk of rows."""
    problems = [Problem(kind="storage", where="database", detail=line) for line in backend.integrity()]
    problems += _grounding(backend)
    problems += _rows(backend)
    problems += _drift(backend)
    return problems


def _grounding(backend: Backend) -> Iterator[Problem]:
    with backend.read() as tx:
        for seq, session, detail in tx.all("ungrounded_rows"):
            yield Problem(kind="ungrounded", where=f"session {session} row {seq}", detail=detail)
        for (session,) in tx.all("sessions_without_input"):
            yield Problem(kind="ungrounded", where=f"session {session}", detail="its current input does not exist")
        for seq, session, key in tx.all("recorded_conflicts"):
            detail = "the provider later told it differently: " + key.partition(":conflict:")[2]
            yield Problem(kind="conflict", where=f"session {session} row {seq}", detail=detail)


def _rows(backend: Backend) -> Iterator[Problem]:
    after = 0
    while True:
        with backend.read() as tx:
            rows = tx.all("rows_to_check", after=after, limit=_CHUNK)
        if not rows:
            return
        for seq, session, kind, key, payload in rows:
            where = f"session {session} row {seq}"
            if kind not in _KINDS:
                yield Problem(kind="unknown_kind", where=where, detail=f"kind {kind!r}")
            try:
                text = canonical(decode(payload))
            except InvalidError as error:
                yield Problem(kind="unreadable", where=where, detail=error.message)
                continue
            if kind == EventKind.USAGE and key != receipt_key(kind, payload):
                yield Problem(kind="wrong_key", where=where, detail="the receipt key is not the hash of its payload")
            elif text != payload:
                yield Problem(kind="not_canonical", where=where, detail="the payload is not in canonical spelling")
        after = rows[-1][0]


def _drift(backend: Backend) -> Iterator[Problem]:
    with backend.read() as tx:
        for session, thread, turn in tx.all("drift_turns"):
            yield Problem(kind="drift", where=f"session {session}", detail=f"turn row {thread}/{turn} is out of date")
        for seq, session in [*tx.all("drift_intents"), *tx.all("drift_captures"), *tx.all("drift_counts")]:
            yield Problem(kind="drift", where=f"session {session} row {seq}", detail="a list row is out of date")
        for session, subject, seq in tx.all("drift_releases"):
            yield Problem(
                kind="drift", where=f"session {session} row {seq}", detail=f"release {subject} is out of date"
            )
