"""What the next look at a conversation is to do, gathered from signals."""

from __future__ import annotations

from collections.abc import Collection

from turnlog.harness import ConversationEvent
from turnlog.harness.opencode.feed import Lost, Wake


class Plan:
    """The next look. ``touched`` maps conversations to the messages that events named; ``full`` reads all whole."""

    def __init__(self) -> None:
        self.full = False
        self.touched: dict[str, set[str]] = {}
        self.asks = False
        self.events: list[ConversationEvent] = []
        self.lost: Lost | None = None

    @property
    def reads(self) -> bool:
        return self.full or self.asks or bool(self.touched)

    @property
    def ready(self) -> bool:
        """Whether there is something to do without waiting for a signal."""
        return self.reads or self.lost is not None

    def touch(self, thread: str, message: str | None = None) -> None:
        """Look at a conversation, and at one of its messages by name."""
        named = self.touched.setdefault(thread, set())
        if message is not None:
            named.add(message)

    def wake(self, wake: Wake, thread: str, members: Collection[str]) -> None:
        """Take a wake-up. ``thread`` is our own conversation, ``members`` those known, with its subagents."""
        if wake.session is None:  # an event we could not read: anything may have changed
            for member in members:
                self.touch(member)
            self.asks = True
            return
        asks = wake.why.startswith("permission.")
        self.asks = self.asks or asks
        if wake.session in members:
            self.touch(wake.session, wake.message)
        elif wake.parent_session in members or asks:
            # A subagent we do not know yet: its parent's tool call names it.
            self.touch(wake.parent_session or thread)
