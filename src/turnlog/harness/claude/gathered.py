"""What was seen since somebody took it last, in the order it was said."""

from __future__ import annotations

from turnlog.harness import Ask, Batch, ConversationEvent, Note
from turnlog.receipts import Receipt


class Gathered:
    """The growing content of the next batch."""

    def __init__(self) -> None:
        self.receipts: list[Receipt] = []
        self.notes: list[Note] = []
        self.events: list[ConversationEvent] = []
        self.asks: list[Ask] = []
        self.settled: list[tuple[str, str]] = []
        self.stalled: list[str] = []

    def size(self) -> int:
        """How many things are here."""
        return len(self.receipts) + len(self.notes) + len(self.events) + len(self.asks) + len(self.stalled)

    def batch(self) -> Batch:
        """Return all of it."""
        return Batch(
            receipts=tuple(self.receipts),
            notes=tuple(self.notes),
            events=tuple(self.events),
            asks=tuple(self.asks),
            settled=tuple(self.settled),
            stalled=tuple(self.stalled),
        )
