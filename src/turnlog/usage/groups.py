"""Native rows grouped by provider turn, each with what its immediate predecessor had counted (4.4, D5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from turnlog.clock import from_rfc3339
from turnlog.model import NATIVE_KINDS, Event, EventKind

Key = tuple[str | None, str | None]


class Group(msgspec.Struct, kw_only=True):
    """The native rows of one (thread, turn), in seq order.

    ``predecessor`` are the usage rows of the turn before it, if that turn had completed when this one started.
    ``follows`` says that an earlier turn of the thread is visible at all.
    """

    thread: str | None
    turn: str | None
    started: Event | None = None
    completed: Event | None = None
    usage: list[Event] = []
    predecessor: tuple[Event, ...] = ()
    follows: bool = False

    @property
    def id(self) -> str:
        """The stream id of the turn; messages and calls add theirs."""
        return f"native:{self.thread or ''}:{self.turn or ''}"

    @property
    def at(self) -> int:
        """Unix milliseconds: the provider's time of the start, else when start or first receipt was recorded."""
        first = self.started or self.usage[0]
        told = instant(first.payload)
        return first.observed_at if told is None else told

    @property
    def provider(self) -> str:
        """The provider class: named by the first usage payload, else Codex (4.4)."""
        for event in self.usage:
            if isinstance(event.payload, dict):
                named = event.payload.get("provider")
                return named if named in {"opencode", "claude"} else "codex"
        return "codex"


def instant(payload: Any) -> int | None:
    """Return the provider's own time of a payload, in unix milliseconds: its member ``at``, a number or RFC 3339."""
    at = payload.get("at") if isinstance(payload, dict) else None
    if isinstance(at, int) and not isinstance(at, bool):
        return at
    return from_rfc3339(at)


def from_file(event: Event) -> bool:
    """Tell whether a usage receipt counts one call read from the provider's files (architecture 4)."""
    return isinstance(event.payload, dict) and event.payload.get("source") == "file"


def group_rows(rows: Sequence[Event], predecessors: Mapping[tuple[str, str], Sequence[Event]]) -> list[Group]:
    """Group native rows given in seq order; the result is in lexicographic order of (thread, turn).

    ``predecessors`` is D5's look-up in the whole thread. A turn it does not name is looked up in ``rows``: the row with
    the highest seq before the start, of the same thread and another turn; usable only if that turn has completed before
    the start. An older turn never stands in for the immediate predecessor.
    """
    found: dict[Key, Group] = {}
    turns: dict[str | None, dict[Key, None]] = {}  # per thread: turns by their newest row so far
    newest: Group | None = None
    for row in rows:
        kind = row.kind
        if newest is not None and kind is EventKind.USAGE and row.turn == newest.turn and row.thread == newest.thread:
            newest.usage.append(row)  # most rows are this: nothing else changes with them
            continue
        if kind not in NATIVE_KINDS:
            continue
        key = (row.thread, row.turn)
        group = found.get(key)
        if group is None:
            group = found[key] = Group(thread=row.thread, turn=row.turn)
        recent = turns.setdefault(row.thread, {})
        if kind is EventKind.STARTED:
            group.started = row
            before = next((found[other] for other in reversed(recent) if other != key), None)
            _look_back(group, before, predecessors)
        elif kind is EventKind.USAGE:
            group.usage.append(row)
        elif kind is EventKind.COMPLETED:
            group.completed = row
        recent.pop(key, None)
        recent[key] = None
        newest = group
    return [found[key] for key in sorted(found, key=lambda each: (each[0] or "", each[1] or ""))]


def _look_back(group: Group, before: Group | None, predecessors: Mapping[tuple[str, str], Sequence[Event]]) -> None:
    given = predecessors.get((group.thread or "", group.turn or ""))
    if given is not None:
        usage = (row for row in given if row.kind is EventKind.USAGE)
        group.predecessor = tuple(sorted(usage, key=lambda row: row.seq))
    elif before is not None and before.completed is not None:
        group.predecessor = tuple(before.usage)
    group.follows = bool(given) or before is not None
