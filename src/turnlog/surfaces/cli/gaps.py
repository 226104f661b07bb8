"""What each kind of gap means, in words (D6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from turnlog.surfaces.cli.words import one_line

if TYPE_CHECKING:
    from turnlog.model import Gap

MEANING: Final = {
    "start_unknown": "counting began after the work had: what came before is not in the sum",
    "decrease": "a counter that can only grow was reported smaller; the larger value was kept",
    "order": "receipts came out of order",
    "schema": "a value had a shape that is not understood; nothing was made up for it",
    "unknown_type": "a record is of a type that this version does not know",
    "counter_kind": "a recorder counted in another way; its count was left out",
    "ambiguous_recorder": "two records of one turn could not be matched; the larger was counted",
    "message_id": "a receipt does not say which message it counts; it was left out",
    "missing_counter": "a counter was not reported for a part of the work",
    "counter_reset": "a counter began again at zero",
    "witness_mismatch": "two witnesses of one turn disagree",
    "unfinished": "a turn began whose end nobody told",
    "interrupted": "an interrupted turn did not report what it used",
    "reasoning_unknown": "nothing tells whether the output includes its reasoning",
    "unreadable": "a record or bytes of a file cannot be read; they may have held usage",
    "usage_unknown": "a conversation's files do not tell what was used",
    "compaction_unrecorded": "a conversation was summarised; what that used is not told",
    "pruned": "receipts were removed; what they said is kept in the sum and cannot be checked any more",
    "overflow": "a sum is too large to be given",
}


def explain(gaps: Iterable[Gap]) -> list[str]:
    """Return one line per kind of gap, with its count and the counters concerned."""
    found = list(gaps)
    counts = Counter(gap.kind for gap in found)
    lines = []
    for kind, count in counts.items():
        counters = sorted({gap.counter for gap in found if gap.kind == kind and gap.counter})
        about = f" ({', '.join(one_line(name) for name in counters)})" if counters else ""
        lines.append(f"{count} × {one_line(kind)}{about}: {MEANING.get(kind, 'a gap of a kind not known here')}")
    return lines
