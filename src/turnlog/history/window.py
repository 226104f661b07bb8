"""Which inputs a list shows, and in which order (R15.4 to R15.6, D13), from facts that need no payload (R15.7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from turnlog.errors import InvalidError


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An input, or an orphan group, that a list may show (3.15). Instants are unix milliseconds.

    ``capture`` and ``key`` (the artifact key) are None for an orphan group, which ``thread`` and ``turn`` name.
    ``held`` says that unfinished work keeps it in the recent list (D13).
    """

    session_id: str
    started_at: int
    capture: int | None = None
    key: str | None = None
    thread: str | None = None
    turn: str | None = None
    ended_at: int | None = None
    held: bool = False


def in_window(candidate: Candidate, since: int, *, include_finished: bool) -> bool:
    """Tell whether it started, or with ``include_finished`` ended, at or after ``since`` (R15.4)."""
    ended = candidate.ended_at
    return candidate.started_at >= since or (include_finished and ended is not None and ended >= since)


def ordered(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Sort: started descending, key descending with nulls last, then session, thread, turn ascending (R15.5).

    Text is compared by code points, which is the byte order of UTF-8; a null thread or turn comes first.
    """
    rows = sorted(candidates, key=lambda each: (each.session_id, _nulls_first(each.thread), _nulls_first(each.turn)))
    # Sorting is stable also when reversed, so each pass keeps the order of the one before among equals.
    rows.sort(key=lambda each: _nulls_first(each.key), reverse=True)
    rows.sort(key=lambda each: each.started_at, reverse=True)
    return rows


def budget(candidates: Sequence[Candidate], limit: int | None) -> tuple[list[Candidate], bool]:
    """Keep what is held and fill up to ``limit`` with the newest of the rest; tell whether some were left out (R15.6).

    ``candidates`` are those in the window. None keeps all. Raises InvalidError when ``limit`` is not positive.
    """
    rows = ordered(candidates)
    if limit is None:
        return rows, False
    if limit <= 0:
        raise InvalidError("limit must be positive", hint="leave the limit out to get everything")
    held = sum(each.held for each in rows)
    room = max(limit - held, 0)
    kept = []
    for each in rows:
        if each.held:
            kept.append(each)
        elif room:
            kept.append(each)
            room -= 1
    return kept, len(rows) > max(limit, held)


def _nulls_first(text: str | None) -> tuple[bool, str]:
    return text is not None, text or ""
