"""Usage around a bind (4.7): what a conversation had used before it, in the turn it fell into, and after it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from turnlog.usage.buckets import Sums

Phase = Literal["before", "during", "after"]
PHASES: Final[tuple[Phase, ...]] = ("before", "during", "after")


class TurnSpan(msgspec.Struct, frozen=True):
    """When a turn was asked for by us, was seen to start, was first heard of, and completed; unix ms, None = unknown.

    ``task_id`` is what its start was attributed to.
    """

    thread: str
    turn: str
    asked_at: int | None
    started_at: int | None
    first_at: int
    ended_at: int | None
    task_id: str | None

    @property
    def began(self) -> int:
        """The earliest that is known of it."""
        return min(at for at in (self.asked_at, self.started_at, self.first_at) if at is not None)


class Piece(msgspec.Struct, frozen=True):
    """The sums of one stream: of which turn (None = of none), when it began (unix ms), and for which task."""

    thread: str | None
    turn: str | None
    at: int
    task_id: str | None
    sums: Sums


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation's usage around its bind.

    ``turns`` and ``sums`` are by phase. ``attributed`` is what the receipts give to the task; ``movable`` what they
    give to no task, and what post-hoc attribution would therefore move to it.
    """

    turns: dict[Phase, int]
    sums: dict[Phase, Sums]
    attributed: Sums
    movable: Sums


def split(pieces: Iterable[Piece], spans: Sequence[TurnSpan], bound_at: int, task_id: str) -> Split:
    """Split usage at a bind to a task: O(turns log turns + streams), in any order.

    A turn that the receipts give to the task came after, whatever the clocks say. Of the others one that was over by
    ``bound_at`` (unix ms) came before, one that began later after; the bind fell into one that had begun and ended
    later, or never told its end and was the newest of its thread.
    """
    phases = _phases(spans, bound_at, task_id)
    turns: dict[Phase, int] = dict.fromkeys(PHASES, 0)
    for phase in phases.values():
        turns[phase] += 1
    sums: dict[Phase, Sums] = {phase: Sums(gaps={}) for phase in PHASES}
    attributed, movable = Sums(gaps={}), Sums(gaps={})
    for piece in pieces:
        late: Phase = "after" if piece.task_id == task_id or piece.at >= bound_at else "before"
        phase = phases.get((piece.thread or "", piece.turn or ""), late)
        sums[phase].add(piece.sums)
        if piece.task_id == task_id:
            attributed.add(piece.sums)
        elif piece.task_id is None:
            movable.add(piece.sums)
    return Split(turns=turns, sums=sums, attributed=attributed, movable=movable)


def _phases(spans: Sequence[TurnSpan], bound_at: int, task_id: str) -> dict[tuple[str, str], Phase]:
    newest: dict[str, int] = {}
    for span in spans:
        if span.began < bound_at:
            newest[span.thread] = max(newest.get(span.thread, span.began), span.began)
    found: dict[tuple[str, str], Phase] = {}
    for span in spans:
        phase: Phase = "before"
        if span.task_id == task_id or span.began >= bound_at:
            phase = "after"
        elif span.ended_at is None:
            phase = "during" if span.began == newest[span.thread] else "before"
        elif span.ended_at > bound_at:
            phase = "during"
        found[span.thread, span.turn] = phase
    return found
