"""From changed messages to receipts, notes and events: one conversation's memory between looks. Pure, no I/O.

Order of one look (H7): starts; content; then errors and completions; requests by their id [S]. Starts and boundary
events only for requests of ours (H1, H8); receipts for all (H2).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from turnlog.harness import ConversationEvent, Note
from turnlog.harness.opencode import decode
from turnlog.harness.opencode.decode import Group, Message
from turnlog.receipts import Receipt


class Look:
    """What one look at a conversation gave."""

    def __init__(self) -> None:
        self.starts: list[Receipt] = []
        self.content: list[Receipt] = []
        self.completions: list[Receipt] = []
        self.notes: list[Note] = []
        self.settled: list[tuple[str, str]] = []
        self.start_events: list[ConversationEvent] = []
        self.narrated: list[tuple[str, Message]] = []
        self.end_events: list[ConversationEvent] = []


class Observer:
    """Remembers what was already said about one conversation.

    ``own``: requests that may get a start. ``narrated``: those of them that this harness object sent; only they get
    boundary and content events (H8). ``aborted``: messages that were open when an abort of ours was accepted.
    """

    def __init__(self, thread: str, own: Collection[str] = ()) -> None:
        self.thread = thread
        self.own = set(own)
        self.narrated: set[str] = set()
        self.aborted: set[str] = set()
        self.started: set[str] = set()
        self.completed: set[str] = set()
        self.settled: dict[str, str] = {}
        self.groups: dict[str, dict[str, Message]] = {}
        self.users: dict[str, Message] = {}
        self._unsettled: set[str] = set()

    def observe(self, messages: Mapping[str, Message], changed: Collection[str], version: str | None) -> Look:
        """Take the changed messages of the list and return what they say."""
        look = Look()
        dirty: dict[str, list[Message]] = {}
        for message in sorted((messages[name] for name in changed), key=lambda message: message.order):
            if message.role == "user":
                self.users[message.id] = message
                if message.id not in self.groups:
                    self._unsettled.add(message.id)
            elif message.role == "assistant" and message.parent is not None:
                self.groups.setdefault(message.parent, {})[message.id] = message
                dirty.setdefault(message.parent, []).append(message)
        for request in sorted(dirty):
            self._observe_group(request, dirty[request], version, look)
        if changed:
            self._settle(look)
        return look

    def group(self, request: str) -> Group | None:
        """Return a request's group as it stands, or None when no assistant message names it."""
        members = self.groups.get(request)
        if not members:
            return None
        return decode.read_group(request, sorted(members.values(), key=lambda message: message.order), self.aborted)

    def open_requests(self) -> list[str]:
        """Return our requests that are neither completed nor settled, in order of their id."""
        return sorted(self.own - self.completed - self.settled.keys())

    def admitted(self, request: str) -> bool:
        """Tell whether content events of a request may be shown: ours, of this object, and started [S]."""
        return request in self.narrated and request in self.started

    def _observe_group(self, request: str, changed: list[Message], version: str | None, look: Look) -> None:
        group = self.group(request)
        assert group is not None  # noqa: S101 - it has at least the changed message
        if request in self.own and request not in self.started:
            self.started.add(request)
            look.starts.append(Receipt(self.thread, request, "started", {}))
            if request in self.narrated:
                look.start_events.append(ConversationEvent("turn_started", turn_id=request))
        for message in changed:
            usage = decode.usage_receipt(self.thread, request, message, version)
            if usage is not None:
                look.content.append(usage)
            if self.admitted(request):
                look.narrated.append((request, message))
        output, completion = decode.answer_receipts(self.thread, group)
        if output is not None:
            look.content.append(output)
        if completion is None:
            self._unsettled.add(request)
            return
        self._unsettled.discard(request)
        look.completions.append(completion)
        if request in self.narrated and request not in self.completed:
            status = completion.payload["status"]
            if status != "completed":
                text = decode.error_text(group.last.error, interrupted=status == "interrupted")
                look.end_events.append(ConversationEvent("error", turn_id=request, code="opencode_error", message=text))
            look.end_events.append(ConversationEvent("turn_completed", turn_id=request, status=status))
        self.completed.add(request)

    def _settle(self, look: Look) -> None:
        """Note requests that another one took over (D19). Only those without completion can be, and few are open."""
        if not self._unsettled:
            return
        later: list[Message] | None = None
        for request in sorted(self._unsettled):
            if later is None:
                members = (message for group in self.groups.values() for message in group.values())
                later = sorted(members, key=lambda message: message.order)
            if not later or later[-1].parent == request:
                continue
            group, user = self.group(request), self.users.get(request)
            if group is not None:
                word, successor = "superseded", decode.superseded_by(group, later)
            elif user is not None:
                word, successor = "absorbed", decode.absorbed_by(user, self.users, later)
            else:
                continue
            if successor is None:
                continue
            self._unsettled.discard(request)
            self.settled[request] = successor
            source = f"{word}:{self.thread}:{request}"
            look.notes.append(Note(source, self.thread, request, {"by": successor}))
            if request in self.own:
                look.settled.append((request, successor))
