"""Lines we do not know: kept as counted notes, bounded, never fatal (promise 7)."""

from __future__ import annotations

from typing import Any, Final

from turnlog.harness import Note
from turnlog.harness.claude.decode import PROVIDER, one_line
from turnlog.receipts import canonical
from turnlog.wire.jsonl import JsonlProblem

KINDS: Final = 20
SAMPLE: Final = 300
OTHER: Final = "other"


class Strange:
    """Counts unknown lines by kind; notes the 1st, 10th, 100th … of each. ``process`` tells one run from another."""

    def __init__(self, thread: str, process: str) -> None:
        self._thread = thread
        self._process = process
        self._counts: dict[str, int] = {}

    def value(self, value: Any, turn: str | None) -> Note | None:
        """Count a line that is JSON."""
        kind = "not_an_object"
        if isinstance(value, dict):
            words = [word for name in ("type", "subtype") if isinstance(word := value.get(name), str)]
            kind = "/".join(words)[:60] or "untyped"
        return self._count(kind, turn, canonical(value)[:SAMPLE])

    def problem(self, problem: JsonlProblem, turn: str | None) -> Note | None:
        """Count a line that could not be read."""
        return self._count(problem.kind, turn, problem.head[:SAMPLE], size=problem.size, sha256=problem.sha256)

    def _count(self, kind: str, turn: str | None, sample: str, **more: Any) -> Note | None:
        if kind not in self._counts and len(self._counts) >= KINDS:
            kind = OTHER
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if str(count).strip("0") != "1":
            return None
        evidence = {"provider": PROVIDER, "kind": kind, "count": count, "sample": one_line(sample), **more}
        return Note(f"unknown:{self._thread}:{self._process}:{kind}:{count}", self._thread, turn, evidence)
