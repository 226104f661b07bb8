"""A conversation with its subagents: each has its own list, memory and receipts (semantics 6.2.3).

A parent's numbers do not contain its children's (providers.md §2).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from turnlog.harness import Child, ConversationEvent, Note
from turnlog.harness._http import HttpClient
from turnlog.harness.opencode.history import ThreadHistory
from turnlog.harness.opencode.observer import Look, Observer
from turnlog.receipts import Receipt


class Member:
    """One conversation of the family."""

    def __init__(self, http: HttpClient, thread: str, params: dict[str, str], own: Collection[str] = ()) -> None:
        self.history = ThreadHistory(http, thread, params)
        self.observer = Observer(thread, own)
        self.fresh = True


class FamilyLook:
    """What one look gave, over all conversations; ``root`` is the look at ours (None when only children changed)."""

    def __init__(self) -> None:
        self.looks: list[Look] = []
        self.root: Look | None = None
        self.children: list[Child] = []

    def receipts(self) -> tuple[Receipt, ...]:
        """Return all receipts in the order of H7; children's before those of the turn that waited for them."""
        inner_first = self.looks[::-1]
        return (
            *(receipt for look in self.looks for receipt in look.starts),
            *(receipt for look in inner_first for receipt in look.content),
            *(receipt for look in inner_first for receipt in look.completions),
        )

    def notes(self) -> tuple[Note, ...]:
        return tuple(note for look in self.looks for note in look.notes)

    def settled(self) -> tuple[tuple[str, str], ...]:
        return tuple(self.root.settled) if self.root else ()

    def events(self, phase: str) -> list[ConversationEvent]:
        """Return the boundary events of our own conversation: ``start`` or ``end``."""
        if self.root is None:
            return []
        return self.root.start_events if phase == "start" else self.root.end_events


class Family:
    """Our conversation and every subagent found in it."""

    def __init__(self, http: HttpClient, thread: str, params: dict[str, str], own: Collection[str] = ()) -> None:
        self._http = http
        self._params = params
        self._unannounced: list[Child] = []
        self.root = Member(http, thread, params, own)
        self.members: dict[str, Member] = {thread: self.root}

    def use(self, http: HttpClient) -> None:
        """Go on with a server that was started again."""
        self._http = http
        for member in self.members.values():
            member.history.use(http)

    async def look(self, touched: Mapping[str, Collection[str]], *, full: bool = False) -> FamilyLook:
        """Read what changed, then say what it means.

        ``touched`` maps conversations to the messages that events named; ``full`` reads every list whole.
        Raises UnavailableError while reading; then nothing is lost, the next look gives it.
        """
        pending = [member for thread, member in self.members.items() if full or thread in touched]
        read: dict[str, Member] = {}
        while pending:
            member = pending.pop(0)
            thread = member.history.thread
            if thread not in read:
                read[thread] = member
                pending += await self._read(member, touched.get(thread, ()), full=full)
        result = FamilyLook()
        result.children, self._unannounced = self._unannounced, []
        for member in read.values():
            history = member.history
            look = member.observer.observe(history.messages, history.take_changed(), history.version)
            result.looks.append(look)
            if member is self.root:
                result.root = look
        return result

    async def _read(self, member: Member, named: Collection[str], *, full: bool) -> list[Member]:
        """Read one conversation; return the members that must be read because of it."""
        history = member.history
        whole = full or member.fresh
        if whole:
            await history.read_info()
            await history.read_all()
        else:
            await history.read_news(named)
        found: list[Member] = []
        for message in history.changed():
            for tool in message.tools:
                if tool.child is None:
                    continue
                if tool.child not in self.members:
                    self._add(Child(tool.child, history.thread, message.parent, tool.title))
                # One that just ended: its last numbers must be here before its parent's turn completes.
                child = self.members[tool.child]
                if child.fresh or not tool.unfinished:
                    found.append(child)
        if whole:
            for listed in await self._listed(history.thread):
                if listed.thread not in self.members:
                    self._add(listed)
                    found.append(self.members[listed.thread])
        member.fresh = False
        return found

    def _add(self, child: Child) -> None:
        self._unannounced.append(child)
        self.members[child.thread] = Member(self._http, child.thread, self._params)

    async def _listed(self, thread: str) -> list[Child]:
        """Return children as the server lists them: also those whose tool call was cut off before it named them."""
        answer = await self._http.read(f"/session/{thread}/children", self._params)
        children = answer.value if isinstance(answer.value, list) else []
        return [Child(child["id"], thread, None, _title(child)) for child in children if _is_session(child)]


def _is_session(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("id"), str)


def _title(session: dict[str, Any]) -> str | None:
    title = session.get("title")
    return title if isinstance(title, str) else None
