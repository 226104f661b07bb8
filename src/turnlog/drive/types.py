"""Values that cross the border between driving and the surfaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import anyio
import msgspec

from turnlog.config import LEASE_S
from turnlog.harness import Ask, ConversationEvent
from turnlog.model import FinalAnswer, Usage


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to drive one turn.

    ``permissions``: ``ask`` (a person answers, at this terminal or another), ``deny`` or ``allow``. ``schema`` is a
    JSON Schema the answer must fit. ``timeout_s`` bounds the turn; then it is interrupted, then its engine killed.
    ``state_dir`` is a private folder for engine logs and passwords. ``replace`` takes the conversation from a process
    whose death cannot be proved, at once; else that waits until its lease of ``lease_s`` seconds has run out (all
    machines at one ledger need the same). ``fallback`` is a provider that takes the input over when the first one fails
    without having changed anything, or with ``fallback_after_effects`` in any case. None for provider, model or title
    on resume keeps what the conversation has. ``work_source`` says where the work of a new conversation was found,
    where nobody declared it (``checkout``).
    """

    state_dir: Path
    cwd: Path | None = None
    provider: str | None = None
    model: str | None = None
    title: str | None = None
    task_id: str | None = None
    wave_id: str | None = None
    work_source: str | None = None
    schema: dict[str, Any] | bool | None = None
    endpoint: str | None = None
    permissions: str = "deny"
    timeout_s: float | None = None
    keep_engine: bool = False
    replace: bool = False
    lease_s: float = LEASE_S
    fallback: str | None = None
    fallback_after_effects: bool = False
    caller: str | None = None


class TurnResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one command's turn came to.

    ``status``: ``completed failed interrupted unknown`` as the provider said; unknown when it said nothing.
    ``exit_code`` follows contract §2 (0, 1, 5, 124, 130). ``error`` is the provider's own words, sanitised.
    """

    session_id: str
    artifact_key: str
    provider: str
    thread: str | None
    turn: str | None
    status: str
    answer: FinalAnswer | None
    value: Any
    usage: Usage
    exit_code: int
    error: str | None = None


class RecoverReport(msgspec.Struct, frozen=True, kw_only=True):
    """What recovery of one conversation found. Counts are receipts; turns are ``(turn, status)``.

    ``completed``: turns whose completion became known. ``running``: turns that a living engine still works on.
    ``unknown``: turns that nobody can tell about any more. ``refused``: requests that never reached the provider.
    """

    session_id: str
    new_receipts: int
    completed: tuple[tuple[str, str], ...]
    running: tuple[str, ...]
    unknown: tuple[str, ...]
    refused: tuple[str, ...]


class Listener(Protocol):
    """The person's side of a driven turn. Called on the event loop; must not block."""

    def session(self, session_id: str, artifact_key: str) -> None:
        """Tell which conversation is driven, before anything is sent."""
        ...

    def event(self, event: ConversationEvent) -> None:
        """Take one conversation event (6.1.3)."""
        ...

    def notice(self, text: str) -> None:
        """Take one line about what turnlog itself does (waiting, reconnecting)."""
        ...

    async def permission(self, ask: Ask) -> str | None:
        """Ask the person: ``once always reject``; None when nobody can be asked here. May be cancelled."""
        ...


class Stop:
    """A person's wish to stop: the first call interrupts the turn, the second ends the engine at once."""

    def __init__(self) -> None:
        self.requested = anyio.Event()
        self.forced = anyio.Event()

    def __call__(self) -> None:
        """Ask to stop; called from a signal handler on the loop."""
        if self.requested.is_set():
            self.forced.set()
        self.requested.set()
