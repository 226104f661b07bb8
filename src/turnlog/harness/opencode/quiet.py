"""Turns about which nothing more will come although they never ended.

OpenCode leaves such turns in several ways (seen on 1.18.33): an abort also drops prompts that were queued or had not
begun; an unknown model is told by an event only; an abort during a retry leaves a message without outcome; a rejection
without a message ends the turn after its tool call; after a killed server nothing is resumed. Each looks like a turn
in progress, for ever. Idleness does not complete a turn (H4), but whoever waits for it must be told: the request is
*stalled*, its outcome stays unknown.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any, Final

import msgspec

from turnlog.harness import ConversationEvent, Note
from turnlog.harness._http import HttpClient
from turnlog.harness.opencode.decode import error_text
from turnlog.harness.opencode.observer import Observer
from turnlog.redact import sanitise_value

GRACE: Final = 0.5
"""Seconds of idleness before it counts: OpenCode reports idle *before* it writes the end of an aborted message."""

ABORT_POLL: Final = 0.1
UNREAD: Final = 60.0
"""Seconds after which a prompt that an idle OpenCode has in its list but never began counts as left behind; the first
turn in a folder may take long to begin."""


class Stalled(msgspec.Struct, frozen=True):
    """Requests that nobody should wait for any more, with what is to be noted and shown about them."""

    requests: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    events: tuple[ConversationEvent, ...] = ()


class Quiet:
    """Watches for idleness on behalf of one conversation's own requests."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._since: float | None = None
        self._asking = False
        self._aborted: set[str] = set()
        self._stalled: set[str] = set()
        self._asked: set[str] = set()
        self._sent: dict[str, float] = {}
        self._failed: dict[str, Any] = {}

    def expect(self, request: str) -> None:
        """A request is about to leave: the conversation may report that it failed before anybody says it was taken."""
        self._asked.add(request)

    def forget(self, request: str) -> None:
        """A request was certainly not taken."""
        self._asked.discard(request)
        self._failed.pop(request, None)

    def asked(self, request: str) -> bool:
        """Tell whether a request left for the server that runs now and was not refused."""
        return request in self._asked

    def restarted(self) -> None:
        """Another server runs now: what the one before had not stored is lost with it."""
        self._asked.clear()

    def sent(self, request: str) -> None:
        """A request was taken: the conversation will work, though it may not have begun."""
        self._sent[request] = time.monotonic()
        self.busy()
        if request in self._failed:
            self.ask()  # the idle report may have come before, too

    def failed(self, error: Any) -> None:
        """The conversation reported an error.

        An error before the first model call (an unknown model …) stands in no message: the prompt just stays without
        an answer. It can be told of a request only when no other one of ours was at work.
        """
        waiting = self.waiting()
        if not any(name in self._observer.started for name in waiting):
            for name in waiting:
                if name in self._asked:
                    self._failed.setdefault(name, error)

    def busy(self) -> None:
        """The conversation works."""
        self._since = None

    def idle(self) -> None:
        """The conversation was reported idle."""
        if self._since is None:
            self._since = time.monotonic()

    def ask(self) -> None:
        """At the next look, ask the server: an idle report may have been missed."""
        self._asking = True

    def aborted(self, requests: Collection[str]) -> None:
        """An abort was accepted while these were open."""
        self._aborted.update(requests)

    def waiting(self) -> list[str]:
        """Return our requests that somebody may wait for: sent, without end, and not stalled."""
        observer = self._observer
        known = observer.narrated | observer.started | observer.users.keys()
        return [name for name in observer.open_requests() if name in known and name not in self._stalled]

    def due(self) -> float | None:
        """Return the seconds until idleness should be checked, or None."""
        if not self._candidates():
            return None
        if self._since is not None:
            return max(0.0, self._since + GRACE - time.monotonic())
        return ABORT_POLL if self._aborted.intersection(self.waiting()) else None

    async def check(self, http: HttpClient, params: dict[str, str]) -> Stalled:
        """Right after a look: return the requests that stalled. Raises the client's read errors."""
        candidates = self._candidates()
        due = self._since is not None and time.monotonic() >= self._since + GRACE
        if not candidates or not (due or self._asking or self._aborted.intersection(candidates)):
            return Stalled()
        self._asking = False
        if not await self.is_idle(http, params):
            self.busy()
            return Stalled()
        self.idle()
        return self.give_up() if due else Stalled()

    async def is_idle(self, http: HttpClient, params: dict[str, str]) -> bool:
        """Ask the server: only sessions that do something are listed."""
        answer = await http.read("/session/status", params)
        status = answer.value.get(self._observer.thread) if isinstance(answer.value, dict) else None
        return not isinstance(status, dict) or status.get("type") == "idle"

    def give_up(self) -> Stalled:
        """Declare all candidates stalled."""
        thread = self._observer.thread
        names = tuple(self._candidates())
        self._stalled.update(names)
        notes: list[Note] = []
        events: list[ConversationEvent] = []
        for name in names:
            group = self._observer.group(name)
            # Only the provider's words: the same state noted by another process must give the same observation.
            evidence = {
                "status": "idle",
                "message_id": group.last.id if group else None,
                "finish": group.last.finish or None if group else None,
                "completed_at": group.last.completed if group else None,
            }
            notes.append(Note(f"idle:{thread}:{name}", thread, name, evidence))
            if group is None and name in self._failed:
                error = self._failed[name]
                notes.append(Note(f"session_error:{thread}:{name}", thread, name, {"error": sanitise_value(error)}))
                events.append(
                    ConversationEvent("error", turn_id=name, code="opencode_error", message=error_text(error))
                )
        return Stalled(names, tuple(notes), tuple(events))

    def _candidates(self) -> list[str]:
        """Return waiting requests for which idleness means something.

        A prompt just sent may still be unread by OpenCode: it counts only once it began, was aborted, failed or lay
        unread for long, or was sent by somebody before us.
        """
        observer = self._observer
        meaningful = observer.started | self._aborted | self._failed.keys()
        return [
            name
            for name in self.waiting()
            if name in meaningful or name not in observer.narrated or self._lies_unread(name)
        ]

    def _lies_unread(self, name: str) -> bool:
        sent = self._sent.get(name)
        return sent is not None and name in self._observer.users and time.monotonic() - sent > UNREAD
