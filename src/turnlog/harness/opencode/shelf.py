"""What a place that holds OpenCode's conversations offers, whether it is a database, a folder or one file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec

from turnlog.errors import UnavailableError

Marks = dict[str, Any]
"""How far a place had been written when it was looked at: JSON, and its members are the place's own, but for three.

``after``: what has a stamp from there on may have changed and still look old. ``recent``: digests of such objects that
were given already. ``open``: [message, conversation, what it looked like] of answers that had no end yet.
"""


class DamagedError(UnavailableError):
    """One conversation cannot be read; the others can."""


class Item(msgspec.Struct):
    """One stored object. ``data`` is its JSON as it lies there, not checked; times are the place's own columns.

    ``stamp`` grows when the object changes. ``kind`` is the type of a message that keeps it in a column. ``gone``
    tells that only the record of past events still has it.
    """

    id: str
    data: bytes
    created: int | None
    stamp: int
    kind: str | None = None
    gone: bool = False


class Conversation(msgspec.Struct):
    """One conversation. ``data`` is None where nothing tells of it but its messages."""

    id: str
    data: bytes | None
    created: int | None
    stamp: int
    version: str | None = None
    worktree: str | None = None


class Dirty(msgspec.Struct):
    """What changed in one conversation: its own object, message ids, and message id → ids of parts."""

    itself: bool = False
    messages: set[str] = set()
    parts: dict[str, set[str]] = {}


class Shelf(Protocol):
    """A place of conversations. Everything raises UnavailableError where it cannot be read now."""

    def marks(self) -> Marks:
        """Return how far the place is written now."""
        ...

    def look(self, message: str) -> list[int]:
        """Return numbers that differ when the message or one of its parts changed."""
        ...

    def changes(self, since: Marks) -> dict[str, Dirty] | None:
        """Return what changed since then by conversation; None when that cannot be told, so all of it must be read."""
        ...

    def names(self) -> list[tuple[int, str]]:
        """Return (created, id) of every conversation, in this order."""
        ...

    def conversation(self, name: str) -> Conversation:
        """Return one conversation."""
        ...

    def messages(self, name: str, events_after: int | None = None) -> Iterator[Item]:
        """Yield its messages, oldest first; then those that were removed, if an event after that one tells of them."""
        ...

    def parts(self, name: str, message: str) -> Iterator[Item]:
        """Yield the parts of a message, in order."""
        ...

    def reading(self) -> AbstractContextManager[None]:
        """Hold one state of the place while a conversation is read."""
        ...

    def close(self) -> None:
        """Let go of the place."""
        ...
