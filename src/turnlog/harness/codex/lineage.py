"""Where a conversation comes from, and which of what its file holds was copied from there.

A fork's file begins with its parent's history: up to 0.80 without any mark but a second ``session_meta``, then with
turn ids, then only named by ``history_base``. Times of copied lines are the moment of the fork and decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from turnlog.harness.codex.dig import inner, made_at, moment, number, text
from turnlog.harness.codex.totals import Totals, counters
from turnlog.harness.reading import Find
from turnlog.harness.salvage import read_line

SLACK: Final = 1500
"""Milliseconds by which a turn's start, told in seconds, may lie before its conversation's and still be its own."""

_DEEPEST: Final = 32
"""Generations looked back: bounds a circle of parents."""

_META: Final = b'"session_meta"'
_TURNS: Final = (b'"task_started"', b'"turn_context"')
_COUNTS: Final = (b'"token_count"', b'"token_usage_record"')


class Kin(msgspec.Struct):
    """What a file says of its conversation's descent. ``began`` is unix ms.

    ``parents`` are those whose history the file may repeat, nearest first; ``spawner`` started it as a subagent.
    ``base`` is the conversation whose totals it goes on from, up to (not including) its record ``base_end``. ``ours``:
    a turn of its own was seen, so nothing behind it is a copy. ``copied``: it holds an ancestor's first lines.
    """

    thread: str
    known: bool = False
    began: int | None = None
    parents: list[str] = []
    spawner: str | None = None
    subagent: bool = False
    base: str | None = None
    base_end: int | None = None
    ours: bool = False
    copied: bool = False
    complete: bool = False

    def introduced(self, payload: Mapping[str, Any], at: int | None) -> None:
        """Take the conversation's own ``session_meta``."""
        self.thread = text(payload, "id") or self.thread
        self.known = True
        self.began = moment(payload.get("timestamp")) or at
        forked = text(payload, "forked_from_id")
        source = payload.get("source")
        spawned = source.get("subagent") if isinstance(source, dict) else None
        spawn = inner(spawned, "thread_spawn") if isinstance(spawned, dict) else {}
        self.subagent = spawned is not None or payload.get("thread_source") == "subagent"
        self.spawner = text(payload, "parent_thread_id") or text(spawn, "parent_thread_id")
        if forked is not None and forked != self.thread:
            self.parents = [forked]
        base = inner(payload, "history_base")
        self.base, self.base_end = text(base, "thread_id"), number(base, "end_ordinal_exclusive")

    def descends(self, payload: Mapping[str, Any]) -> str | None:
        """Take the ``session_meta`` of an ancestor, which is a copied line; returns its id where it is new."""
        ancestor = text(payload, "id")
        self.copied = self.copied or (ancestor in self.parents and not self.ours)
        if ancestor is None or ancestor == self.thread or ancestor in self.parents or self.ours:
            return None
        self.parents.append(ancestor)
        self.copied = True
        return ancestor


class Lineage:
    """Answers what only the parents' own files can, and reads each of those at most once.

    ``missing``: a conversation whose file would tell more and that nobody has.
    """

    def __init__(self, kin: Kin, find: Find) -> None:
        self.kin = kin
        self._find = find
        self.missing: str | None = None
        self._turns: set[str] | None = None
        self._unread = False

    def inherited(self, turn: str, started: int | None) -> bool | None:
        """Tell whether a turn was copied from a parent; None where nobody has the file that could tell.

        ``started`` is when it began, unix ms. O(1) where ids or times tell; else one reading of the parents' files.
        """
        kin = self.kin
        if kin.ours or not kin.parents:
            return False
        told = self.told(turn, started)
        if told is not None:
            return told
        if self._turns is None:
            self._turns, self._unread = set(), False
            for parent in kin.parents:
                lines = self._find(parent)
                self._unread = self._unread or lines is None
                self._turns.update(_turns(lines or ()))
        return True if turn in self._turns else None if self._unread else False

    def told(self, turn: str, started: int | None) -> bool | None:
        """Tell what the file itself says of whether a turn was copied from a parent; None where it does not. O(1)."""
        kin = self.kin
        if not kin.parents:
            return False
        made, own = made_at(turn), made_at(kin.thread)
        if made is not None and own is not None and made != own:
            return made < own
        if started is not None and kin.began is not None and started < kin.began - SLACK:
            return True
        return None

    def ancestors(self) -> list[str]:
        """Return all whose totals the file may repeat, nearest first; the last is the root of them."""
        kin = self.kin
        if not kin.complete:
            kin.complete = True
            while kin.parents and len(kin.parents) < _DEEPEST:
                above = [each for each in _above(self._find(kin.parents[-1]) or ()) if each != kin.thread]
                new = [each for each in above if each not in kin.parents]
                if not new:
                    break
                kin.parents += new
        return kin.parents

    def orphaned(self) -> bool:
        """Tell whether nobody has the file of the parent whose history this one may repeat."""
        if not self.kin.parents or self._find(self.kin.parents[0]) is not None:
            return False
        self.missing = self.kin.parents[0]
        return True

    def base(self) -> Totals | None:
        """Return the totals that the file goes on from; None when they cannot be known."""
        thread, end = self.kin.base, self.kin.base_end
        for _ in range(_DEEPEST):
            if thread is None:
                return None
            found = None
            kin = Kin(thread)
            lines = self._find(thread)
            if lines is None:
                self.missing = thread
                return None
            for place, record in _records(lines, (*_COUNTS, _META)):
                payload = inner(record, "payload")
                if record.get("type") == "session_meta":
                    if place == 0:
                        kin.introduced(payload, None)
                    continue
                ordinal = number(record, "ordinal")
                if end is not None and ordinal is not None and ordinal >= end:
                    break
                told = payload.get("thread_token_usage") or inner(payload, "info").get("total_token_usage")
                found = counters(told) or found
            if found is not None:
                return found
            thread, end = kin.base, kin.base_end
        return None


def _turns(lines: Iterable[bytes]) -> Iterable[str]:
    for _, record in _records(lines, _TURNS):
        turn = text(inner(record, "payload"), "turn_id")
        if turn is not None:
            yield turn


def _above(lines: Iterable[bytes]) -> list[str]:
    """Return the ancestors that a file names, nearest first."""
    kin = Kin("")
    for place, record in _records(lines, (_META, *_TURNS, *_COUNTS)):
        if record.get("type") != "session_meta":
            break
        if place == 0:
            kin.introduced(inner(record, "payload"), None)
        else:
            kin.descends(inner(record, "payload"))
    return kin.parents


def _records(lines: Iterable[bytes], marks: tuple[bytes, ...]) -> Iterable[tuple[int, dict[str, Any]]]:
    """Yield (line number, record) of the lines that hold one of the marks."""
    for place, line in enumerate(lines):
        if any(mark in line for mark in marks):
            for _, record in read_line(line, 0)[0]:
                yield place, record
