"""Check a ledger against itself: storage, payloads, keys, grounding, and the lists against a fresh fold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from turnlog.errors import CorruptError, InvalidError
from turnlog.ledger.backend import Backend
from turnlog.model import EventKind, Problem
from turnlog.receipts import canonical, decode, receipt_key

_CHUNK: Final = 5000
_KINDS: Final = frozenset(EventKind)
_PLAIN: Final = frozenset({EventKind.STARTED, EventKind.COMPLETED, EventKind.OUTPUT})


def verify(backend: Backend) -> list[Problem]:
    """Recompute everything that can be recomputed; return what does not agree. Memory is bounded by a chunk of rows."""
    problems = [_storage(line) for line in backend.integrity()]
    checks: tuple[Callable[[Backend], Iterator[Problem]], ...] = (_grounding, _rows, _drift)
    for check in checks:
        found = check(backend)
        try:
            problems.extend(found)
        except CorruptError as error:  # storage so broken that it cannot be read through: say so, check the rest
            problems.append(_storage(error.message))
    return problems


def _storage(detail: str) -> Problem:
    return Problem(kind="storage", where="database", detail=detail)


def _grounding(backend: Backend) -> Iterator[Problem]:
    with backend.read() as tx:
        for seq, session, detail in tx.all("ungrounded_rows"):
            yield Problem(kind="ungrounded", where=f"session {session} row {seq}", detail=detail)
        for (session,) in tx.all("sessions_without_input"):
            yield Problem(kind="ungrounded", where=f"session {session}", detail="its current input does not exist")
        for seq, session, what in tx.all("recorded_conflicts"):
            detail = f"the provider later told it differently: {what}"
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
                value = decode(payload)
                text = canonical(value)
            except InvalidError as error:
                yield Problem(kind="unreadable", where=where, detail=error.message)
                continue
            expected = _key(kind, value, text)
            if text.encode() != payload:
                yield Problem(kind="not_canonical", where=where, detail="the payload is not in canonical spelling")
            elif expected is not None and key != expected:
                yield Problem(kind="wrong_key", where=where, detail=f"the receipt key is {key!r}, not {expected!r}")
        after = rows[-1][0]


def _key(kind: str, value: Any, text: str) -> str | None:
    """Return the key that a row with this payload has (2.3.1); None when the payload does not decide."""
    if kind == EventKind.USAGE or kind in _PLAIN:
        return receipt_key(kind, text)
    if isinstance(value, dict):
        if kind == EventKind.CAPTURED and "artifact_key" in value:
            return str(value["artifact_key"])
        if kind == EventKind.OBSERVED and "input_id" in value and "source" in value:
            return f"{value['input_id']}:{value['source']}"
    return None


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
