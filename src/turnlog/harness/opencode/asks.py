"""Permissions the provider waits for: each told once, stale ones never (providers.md §2)."""

from __future__ import annotations

from typing import Any, Final

from turnlog.errors import RefusedError, UncertainError
from turnlog.harness import Ask, ConversationEvent
from turnlog.harness._http import HttpClient
from turnlog.harness.opencode.decode import member
from turnlog.harness.opencode.family import Family
from turnlog.harness.opencode.permissions import ask_line

REFUSED: Final = "The user's policy does not allow this. Go on without it."


class Asks:
    """Remembers the permissions of a conversation and its subagents that were told.

    Under the policies ``deny`` and ``allow`` nobody is asked: what OpenCode asks all the same (a subagent follows
    its own rules) is answered here.
    """

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._told: dict[str, str | None] = {}

    def settled(self, ask: str, reply: str | None) -> list[ConversationEvent]:
        """Return the event of an answered permission, if it was told."""
        if ask not in self._told:
            return []
        turn = self._told[ask]
        return [ConversationEvent("permission_settled", turn_id=turn, status=reply, evidence={"id": ask})]

    async def read(
        self, http: HttpClient, params: dict[str, str], family: Family
    ) -> tuple[tuple[Ask, ...], list[ConversationEvent]]:
        """Return the asks that are new, with their events. Raises the client's read errors."""
        answer = await http.read("/permission", params)
        asks: list[Ask] = []
        events: list[ConversationEvent] = []
        for entry in answer.value if isinstance(answer.value, list) else ():
            ask = await self._real(entry, family) if isinstance(entry, dict) else None
            if ask is None:
                continue
            self._told[ask.id] = ask.turn
            evidence = {"id": ask.id, "thread": ask.thread, "action": ask.action}
            events.append(
                ConversationEvent("permission_asked", turn_id=ask.turn, message=ask.detail, evidence=evidence)
            )
            if self._policy == "ask":
                asks.append(ask)
            else:
                await self._answer(http, params, ask)
        return tuple(asks), events

    async def _real(self, entry: dict[str, Any], family: Family) -> Ask | None:
        """Return the ask of an entry, or None: told before, of another conversation, or left over after an abort."""
        identifier, session = entry.get("id"), entry.get("sessionID")
        if not isinstance(identifier, str) or identifier in self._told or session not in family.members:
            return None
        history = family.members[session].history
        tool = member(entry, "tool")
        name = tool.get("messageID")
        turn = None
        if isinstance(name, str):
            if name not in history.messages:
                await history.read_news([name])
            message = history.messages.get(name)
            if message is not None:
                turn = message.parent
                waits = any(part.unfinished for part in message.tools if part.call == tool.get("callID"))
                named = any(part.call == tool.get("callID") for part in message.tools)
                if message.completed is not None or (named and not waits):
                    return None
        return Ask(identifier, session, turn, str(entry.get("permission")), ask_line(entry))

    async def _answer(self, http: HttpClient, params: dict[str, str], ask: Ask) -> None:
        body = {"reply": "once"} if self._policy == "allow" else {"reply": "reject", "message": REFUSED}
        try:
            await http.write("POST", f"/permission/{ask.id}/reply", body, params)
        except (RefusedError, UncertainError):
            # Answered by somebody else meanwhile, or it will be listed again.
            self._told.pop(ask.id, None)
