"""Permission questions of the provider: answered by the person at this terminal, or from another one (D20).

What the policies ``deny`` and ``allow`` decide is answered by the harness; here every question and every answer, by
whomever, becomes an observation: ``permission:<id>:asked`` and ``permission:<id>:answered``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from turnlog.errors import RefusedError, UncertainError
from turnlog.harness import Ask, ConversationEvent

ANSWERS: Final = ("once", "always", "reject")

AskPerson = Callable[[Ask], Awaitable[str | None]]
SendAnswer = Callable[[str, str], Awaitable[None]]
Retain = Callable[[str | None, str, dict[str, Any]], Awaitable[None]]


class Permissions:
    """Questions of one driven conversation. Each is answered once; who was first wins."""

    def __init__(self, policy: str, *, ask: AskPerson, answer: SendAnswer, retain: Retain) -> None:
        self._policy = policy
        self._ask = ask
        self._answer = answer
        self._retain = retain
        self._open: dict[str, anyio.CancelScope] = {}
        self._by: dict[str, str] = {}
        self._tasks: TaskGroup | None = None

    def use(self, tasks: TaskGroup) -> None:
        """Ask persons in this task group, so that the provider is watched meanwhile."""
        self._tasks = tasks

    async def told(self, event: ConversationEvent) -> None:
        """Record a question or its answer as the provider tells it; an answer from elsewhere ends our asking."""
        evidence = event.evidence if isinstance(event.evidence, dict) else {}
        name = str(evidence.get("id"))
        if event.type == "permission_asked":
            about = {"action": evidence.get("action"), "detail": event.message, "turn": event.turn_id}
            await self._retain(event.turn_id, f"permission:{name}:asked", about)
            return
        scope = self._open.pop(name, None)
        by = self._by.get(name) or ("elsewhere" if self._policy == "ask" else f"policy {self._policy}")
        await self._retain(event.turn_id, f"permission:{name}:answered", {"answer": event.status, "by": by})
        if scope is not None:
            scope.cancel()

    def ask(self, asks: Sequence[Ask]) -> None:
        """Put new questions to the person at this terminal."""
        for ask in asks:
            if self._tasks is not None and ask.id not in self._open:
                scope = self._open[ask.id] = anyio.CancelScope()
                self._tasks.start_soon(self._ask_person, ask, scope)

    async def _ask_person(self, ask: Ask, scope: anyio.CancelScope) -> None:
        with scope:
            answer = await self._ask(ask)
            if answer is not None and ask.id in self._open:
                try:
                    await self._send(ask.id, answer, "terminal")
                except (RefusedError, UncertainError) as error:
                    about = {"answer": answer, "error": error.message}
                    await self._retain(ask.turn, f"permission:{ask.id}:unanswered", about)

    async def answer(self, ask_id: str, answer: str, by: str) -> bool:
        """Answer from another terminal; False when no such question is open. Raises RefusedError, UncertainError."""
        if ask_id not in self._open or answer not in ANSWERS:
            return False
        await self._send(ask_id, answer, by)
        return True

    async def _send(self, ask_id: str, answer: str, by: str) -> None:
        self._by[ask_id] = by
        with anyio.CancelScope(shield=True):
            await self._answer(ask_id, answer)
