"""The final answer of an input: which turn answered, in whose words, and whether they are exact (3.13, D7, D8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from turnlog.model import FinalAnswer, Gap
from turnlog.receipts import canonical
from turnlog.usage import gaps
from turnlog.usage.envelope import Conversation, Envelope, decode_envelope


class NativeTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that started under the capture, as its native rows tell.

    ``completion_seq`` and ``status`` come from its completed row, ``output_seq`` and ``output`` (the payload) from its
    output row; None where there is no such row.
    """

    thread: str | None
    turn: str | None
    completion_seq: int | None = None
    status: str | None = None
    output_seq: int | None = None
    output: Any = None


class RecordedEvent(msgspec.Struct, frozen=True):
    """One evidence object of ``events.jsonl`` with the ledger seq of its row."""

    seq: int
    evidence: Any


class _Said(msgspec.Struct, frozen=True):
    text: str
    exact: bool
    value: Any = None


def final_answer(
    native: Iterable[NativeTurn], events: Iterable[RecordedEvent], *, unreadable: Iterable[int] = ()
) -> FinalAnswer | None:
    """Answer an input; None when nobody said anything in a completed turn.

    ``native`` are the started turns of the capture, in any order; ``events`` all its recorder evidence in the order of
    R5.7; ``unreadable`` the seqs of rows of either whose payload is not JSON.

    Order (D7): the native output of the turn completed last, exact; then the recorder's words for that turn (R13.4);
    only then older turns, newest first, and last what the recorder has of other turns: all of these not exact. Where no
    native turn has completed, the recorder's last completed turn is the newest. Rows that cannot be used are gaps (D8).
    """
    bad = [Gap(kind="unreadable", seq=seq) for seq in unreadable]
    recorded = _Recorder(events, bad)
    done = [turn for turn in native if turn.status == "completed" and turn.completion_seq is not None]
    done.sort(key=lambda turn: turn.completion_seq or 0, reverse=True)
    for turn in done:
        said = _native(turn, bad) or (recorded.said.get(turn.turn) if turn.turn is not None else None)
        if said is not None:
            return _answer(said, turn.turn, bad, newest=turn is done[0])
    for name in reversed(recorded.said):
        return _answer(recorded.said[name], name, bad, newest=not done and name == recorded.completed[-1])
    return None


def _answer(said: _Said, turn: str | None, bad: Sequence[Gap], *, newest: bool) -> FinalAnswer:
    return FinalAnswer(text=said.text, exact=said.exact and newest, turn=turn, value=said.value, gaps=tuple(bad))


def _native(turn: NativeTurn, bad: list[Gap]) -> _Said | None:
    """Read an output payload: a value is its canonical text, else a text as it is (R13.2)."""
    if turn.output_seq is None:
        return None
    if isinstance(turn.output, dict):
        if "value" in turn.output:
            value = turn.output["value"]
            return _Said(canonical(value), exact=True, value=value)
        if isinstance(text := turn.output.get("text"), str):
            return _Said(text, exact=True)
    bad.append(gaps.schema(turn.output_seq, f"native:{turn.thread or ''}:{turn.turn or ''}"))
    return None


class _Collected:
    """What one turn has said so far: tagged as final, untagged, or streamed (R13.3)."""

    def __init__(self) -> None:
        self.tagged: str | None = None
        self.untagged: str | None = None
        self.streamed: list[str] = []

    def said(self) -> _Said | None:
        whole = self.tagged if self.tagged is not None else self.untagged
        if whole is not None:
            return _Said(whole, exact=True)
        streamed = "".join(self.streamed)
        return _Said(streamed, exact=False) if streamed else None


class _Recorder:
    """Fold of the recorder's conversation events. ``said`` is in the order in which turns completed."""

    def __init__(self, events: Iterable[RecordedEvent], bad: list[Gap]) -> None:
        self.said: dict[str, _Said] = {}
        self.completed: list[str] = []
        self._open: dict[str, _Collected] = {}
        for recorded in events:
            envelope = decode_envelope(recorded.seq, recorded.evidence)
            if envelope is None or not self._envelope(envelope):
                bad.append(gaps.schema(recorded.seq))

    def _envelope(self, envelope: Envelope) -> bool:
        body = envelope.body
        return envelope.schema == 1 and (not isinstance(body, Conversation) or self._event(body.event))

    def _event(self, event: dict[str, Any]) -> bool:
        """Take one conversation event; False when it lacks what its type needs."""
        kind, turn = event.get("type"), event.get("turn_id")
        if kind not in {"item_completed", "text_delta", "turn_completed"}:
            return isinstance(kind, str)
        if not isinstance(turn, str):
            return False
        if kind == "text_delta":
            return self._delta(turn, event.get("content"))
        if kind == "item_completed":
            return self._item(turn, event.get("item"))
        return self._completed(turn, event.get("status"))

    def _delta(self, turn: str, content: Any) -> bool:
        if isinstance(content, str):
            self._open.setdefault(turn, _Collected()).streamed.append(content)
            return True
        return False

    def _item(self, turn: str, item: Any) -> bool:
        if not isinstance(item, dict):
            return False
        if item.get("type") != "message":
            return True
        text, phase = item.get("text"), item.get("phase")
        if not isinstance(text, str):
            return False
        collected = self._open.setdefault(turn, _Collected())
        if phase == "final_answer":
            collected.tagged = text
        elif phase is None:
            collected.untagged = text
        return True

    def _completed(self, turn: str, status: Any) -> bool:
        collected = self._open.pop(turn, None)
        if status == "completed":
            self.completed.append(turn)
            said = collected.said() if collected is not None else None
            if said is not None:
                self.said.pop(turn, None)
                self.said[turn] = said
        return isinstance(status, str)
