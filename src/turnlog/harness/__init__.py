"""The harness contract: one provider program, seen as receipts (semantics 6.1).

A harness starts or reaches the program that serves a conversation, sends what it is told to send, and turns what
the program says into receipts, notes and conversation events. It knows no database: the driver above writes the
intent before ``send`` and records every batch through intake. Everything a harness yields may be repeated; intake
is idempotent (H5).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from turnlog.errors import InvalidError
from turnlog.receipts import Receipt

PROVIDERS: Final = ("opencode", "codex", "claude")
"""Providers that can be driven."""


class Delivery(StrEnum):
    """What the provider's own history says about a request whose answer was lost."""

    FOUND = "found"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class SteerOutcome(StrEnum):
    """Answer to a steer (6.1.1): sent into the open turn, or certainly not."""

    SENT = "sent"
    NOT_STEERABLE = "not_steerable"


class Note(msgspec.Struct, frozen=True):
    """An observation the harness wants retained: ``source`` is its key after the artifact key.

    Used for what creates no authority: ``superseded:…``, ``absorbed:…``, ``idle:…``, ``disconnect:…``.
    """

    source: str
    thread: str
    turn: str | None
    evidence: Any


class Child(msgspec.Struct, frozen=True):
    """A conversation the provider opened by itself inside one of ours (a subagent)."""

    thread: str
    parent_thread: str
    parent_turn: str | None
    title: str | None


class Ask(msgspec.Struct, frozen=True):
    """A permission the provider waits for. ``thread`` may be a child's. ``detail`` is one line for a person."""

    id: str
    thread: str
    turn: str | None
    action: str
    detail: str


class ConversationEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of ``--jsonl`` (6.1.3).

    ``type``: turn_started turn_completed usage_checkpoint item_started item_updated item_completed text_delta
    reasoning_delta status_changed permission_asked permission_settled error. ``item`` is ``{kind, id, …}`` with kind
    ``message tool thought command``; a tool has ``name summary state duration_ms``.
    """

    type: str
    turn_id: str | None = None
    status: str | None = None
    content: str | None = None
    item: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    code: str | None = None
    message: str | None = None
    evidence: Any = None


class Batch(msgspec.Struct, frozen=True):
    """What one look at the provider gave, in the order H7 asks for: starts, content, errors and completions.

    ``receipts`` of the same look are ordered; those of ``children`` threads carry the child's thread.
    ``settled`` names own request ids that will get no completion of their own although the conversation went on
    (superseded or absorbed, D19), with the id of the request that took over.
    ``accepted`` names own request ids with the turn that they began, where the provider chooses turn ids and its own
    history tells so (after a crash between its reply and our record of it).
    ``stalled`` names own request ids (and, where the provider chooses turn ids, their turns) that have no end while the
    provider says that it does nothing any more (dropped by an abort, left by a killed engine …). That completes
    nothing (H4): the outcome is unknown, but nothing will come by itself, so nobody should wait for it. A receipt that
    comes after all is still given.
    """

    receipts: tuple[Receipt, ...] = ()
    notes: tuple[Note, ...] = ()
    children: tuple[Child, ...] = ()
    events: tuple[ConversationEvent, ...] = ()
    asks: tuple[Ask, ...] = ()
    settled: tuple[tuple[str, str], ...] = ()
    accepted: tuple[tuple[str, str], ...] = ()
    stalled: tuple[str, ...] = ()


class EngineIdentity(msgspec.Struct, frozen=True):
    """The running provider program: pid and start time (unix ms) when we started it, endpoint when it has one.

    ``permissions`` is the policy that the engine was started with, where an engine is bound to one.
    """

    endpoint: str | None
    pid: int | None
    started_at: int | None
    version: str | None
    permissions: str | None = None


class HarnessConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach and set up one conversation.

    ``endpoint`` names a server that is not ours (it is never stopped). ``thread`` resumes a provider conversation.
    ``model`` is the provider's own spelling (OpenCode: ``provider/model``). ``permissions``: ``ask deny allow``.
    ``state_dir`` is a private folder (0700) for logs and secrets. ``own_requests`` are request ids of ours from
    before (after a crash): they may get starts, but no boundary events (H8). ``adopt_any`` takes over a running engine
    of ours whatever its permission policy: to look after what it still works on, not to send anything.
    """

    cwd: Path
    title: str
    state_dir: Path
    thread: str | None = None
    model: str | None = None
    endpoint: str | None = None
    permissions: str = "ask"
    env: dict[str, str] = {}
    own_requests: frozenset[str] = frozenset()
    adopt_any: bool = False


class Harness(Protocol):
    """One conversation with one provider program. Async; one task drives it, ``observe`` may run beside it.

    Errors: UnavailableError (program missing, too old, never ready, died), RefusedError (the provider certainly did
    not take a request), UncertainError (it may have).
    """

    provider: str
    adoptable: bool
    """Whether an engine outlives the turnlog that started it and can be taken over (it has an endpoint, not a pipe)."""

    structured: bool
    """Whether the provider itself answers to a JSON Schema; else the driver asks in words and checks (emulated)."""

    def __init__(self, config: HarnessConfig) -> None: ...

    async def preflight(self) -> None:
        """Check, before anything is recorded, that the program can be had. Raises UnavailableError, InvalidError."""
        ...

    async def start(self) -> EngineIdentity:
        """Start or reach the engine; idempotent while it runs. Does not create a conversation."""
        ...

    async def open_thread(self) -> str:
        """Return the provider thread: the configured one, or a new one that is made at most once."""
        ...

    def new_request_id(self) -> str:
        """Return a fresh request id of ours (OpenCode: also the turn id)."""
        ...

    def turn_of(self, request_id: str) -> str | None:
        """Return the turn id a request will have, when the provider lets us choose it; else None."""
        ...

    async def send(
        self, request_id: str, text: str, *, system: str | None = None, schema: dict[str, Any] | bool | None = None
    ) -> str | None:
        """Begin a turn; return its id when the provider chose one. Never repeats an uncertain write (H6).

        ``schema`` is given only to a harness that is ``structured``.

        A request that only joined a turn which already ran returns None; the next batch settles it (``settled``).
        """
        ...

    async def steer(self, request_id: str, text: str) -> SteerOutcome:
        """Send text into the open turn."""
        ...

    async def interrupt(self) -> None:
        """Ask the provider to stop the open turn; the outcome is recorded only when the provider reports it."""
        ...

    async def answer(self, ask_id: str, answer: str, message: str | None = None) -> None:
        """Answer a permission: ``once``, ``always`` or ``reject``."""
        ...

    async def lookup(self, request_id: str) -> Delivery:
        """Look a request up in the provider's own history (promise 4)."""
        ...

    def observe(self) -> AsyncGenerator[Batch, None]:
        """Yield batches until the engine is gone or the harness is closed; reconnects by itself, re-reading."""
        ...

    async def recover(self) -> Batch:
        """Read the provider's history once: receipts of all turns, no events, starts only for ``own_requests``."""
        ...

    async def busy(self) -> bool:
        """Tell whether the engine works on this conversation now; False when it is idle or gone."""
        ...

    async def alive(self) -> bool:
        """Tell whether the engine still answers (or, without endpoint, still runs)."""
        ...

    async def stop(self) -> None:
        """End the engine if this harness started it, then detach."""
        ...

    async def detach(self) -> None:
        """Leave the engine running and close our connections."""
        ...


def harness_for(provider: str) -> type[Harness]:
    """Return the harness class of a provider; it is made from a HarnessConfig.

    Raises InvalidError for a provider that has none. The module is imported only now: most commands need no harness.
    """
    if provider == "opencode":
        from turnlog.harness.opencode.live import OpenCodeHarness

        return OpenCodeHarness
    if provider == "codex":
        from turnlog.harness.codex.live import CodexHarness

        return CodexHarness
    if provider == "claude":
        from turnlog.harness.claude.live import ClaudeHarness

        return ClaudeHarness
    raise InvalidError(f"no harness for the provider {provider!r}", hint=f"choose one of {', '.join(PROVIDERS)}")
