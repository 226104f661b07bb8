"""Turns and permission questions of a conversation, folded from its receipts. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from turnlog.model import Event, EventKind


class Turn(NamedTuple):
    """One provider turn, or a request of ours whose turn nobody has seen (no ``started_at``).

    ``status`` is the provider's word, ``superseded``, ``absorbed`` or ``refused``; None while nobody said anything.
    """

    thread: str | None
    turn: str
    started_at: int | None
    completed_at: int | None
    status: str | None
    error: str | None


class Question(NamedTuple):
    """A permission the provider asked for; ``answer`` is None while nobody answered."""

    id: str
    action: str
    detail: str
    turn: str | None
    asked_at: int
    answer: str | None


class Folded(NamedTuple):
    """What the receipts say, in the order in which it began."""

    turns: list[Turn]
    questions: list[Question]

    @property
    def waiting(self) -> list[Question]:
        """Questions without an answer."""
        return [question for question in self.questions if question.answer is None]


_SETTLED = ("refused", "superseded", "absorbed")
"""What turnlog itself observes about a request, when the provider will never complete it."""


def fold(events: Iterable[Event]) -> Folded:
    """Fold receipts in order of seq."""
    turns: dict[tuple[str | None, str], Turn] = {}
    questions: dict[str, Question] = {}
    for event in events:
        if event.kind is EventKind.REQUESTED:
            if event.turn is not None and not _member(event.payload, "steer"):
                key = (event.thread, event.turn)
                turns.setdefault(key, Turn(*key, None, None, None, None))
        elif event.kind is EventKind.OBSERVED:
            _observed(event, turns, questions)
        elif event.turn is not None and event.kind is not EventKind.CAPTURED:
            key = (event.thread, event.turn)
            turns[key] = _native(event, turns.get(key) or Turn(*key, None, None, None, None))
    return Folded(list(turns.values()), list(questions.values()))


def _native(event: Event, turn: Turn) -> Turn:
    if event.kind is EventKind.STARTED:
        return turn._replace(started_at=event.observed_at)
    if event.kind is EventKind.COMPLETED:
        return turn._replace(
            completed_at=event.observed_at, status=_text(event.payload, "status"), error=_error(event.payload)
        )
    return turn


def _observed(event: Event, turns: dict[tuple[str | None, str], Turn], questions: dict[str, Question]) -> None:
    source, evidence = _text(event.payload, "source") or "", _member(event.payload, "evidence")
    kind, _, rest = source.partition(":")
    if kind == "permission":
        name, _, what = rest.rpartition(":")
        if what == "asked":
            action, detail = _text(evidence, "action") or "?", _text(evidence, "detail") or ""
            asked = Question(name, action, detail, _text(evidence, "turn"), event.observed_at, None)
            questions.setdefault(name, asked)
        elif name in questions:
            questions[name] = questions[name]._replace(answer=_text(evidence, "answer") or what)
    elif kind in _SETTLED:
        for key, turn in turns.items():
            names = (turn.turn,) if kind == "refused" else (f"{turn.thread}:{turn.turn}",)
            if turn.status is None and rest in names:
                turns[key] = turn._replace(status=kind, error=turn.error or _text(evidence, "reason"))


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _text(value: Any, name: str) -> str | None:
    found = _member(value, name)
    return found if isinstance(found, str) and found else None


def _error(payload: Any) -> str | None:
    """Return the provider's words on a turn that did not complete, wherever it puts them."""
    error = _member(payload, "error")
    if isinstance(error, str):
        return error or None
    for place in (_member(error, "data"), error):
        if message := _text(place, "message"):
            return message
    return _text(error, "name")
