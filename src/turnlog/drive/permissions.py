"""Permission questions of the provider: answered by policy, by the person at this terminal, or from another one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
from anyio.abc import TaskGroup

from turnlog.errors import RefusedError, UncertainError
from turnlog.harness import Ask

ANSWERS: Final = ("once", "always", "reject")
DENIED: Final = "Nobody is here to allow this. Go on without it, or say what you would need."

AskPerson = Callable[[Ask], Awaitable[str | None]]
SendAnswer = Callable[[Ask, str, str | None], Awaitable[None]]
Retain = Callable[[Ask, str, dict[str, str | None]], Awaitable[None]]


class Permissions:
    """Open questions of one driven conversation. Each is answered once; who was first wins."""

    def __init__(self, policy: str, *, ask: AskPerson, answer: SendAnswer, retain: Retain) -> None:
        self._policy = policy
        self._ask = ask
        self._answer = answer
        self._retain = retain
        self._open: dict[str, tuple[Ask, anyio.CancelScope]] = {}
        self._known: set[str] = set()
        self._tasks: TaskGroup | None = None

    def use(self, tasks: TaskGroup) -> None:
        """Ask persons in this task group, so that the provider is watched meanwhile."""
        self._tasks = tasks

    async def asked(self, asks: Sequence[Ask]) -> None:
        """Take the questions that are open now; those answered elsewhere are dropped."""
        gone = self._open.keys() - {ask.id for ask in asks}
        for ask_id in gone:
            self._open.pop(ask_id)[1].cancel()
        for ask in asks:
            if ask.id in self._known:
                continue
            self._known.add(ask.id)
            await self._retain(ask, "asked", {"action": ask.action, "detail": ask.detail, "turn": ask.turn})
            if self._tasks is None:
                continue
            scope = anyio.CancelScope()
            self._open[ask.id] = (ask, scope)
            self._tasks.start_soon(self._decide, ask, scope)

    async def _decide(self, ask: Ask, scope: anyio.CancelScope) -> None:
        answer: str | None
        with scope:
            if self._policy == "allow":
                answer = "once"
            elif self._policy == "deny":
                answer = "reject"
            else:
                answer = await self._ask(ask)
            if answer is not None and ask.id in self._open:
                by = "terminal" if self._policy == "ask" else f"policy {self._policy}"
                await self._settle(ask, answer, by, DENIED if self._policy == "deny" else None)

    async def answer(self, ask_id: str, answer: str, by: str) -> bool:
        """Answer a question from elsewhere; False when no such one is open. Raises RefusedError, UncertainError."""
        found = self._open.get(ask_id)
        if found is None or answer not in ANSWERS:
            return False
        ask, scope = found
        await self._settle(ask, answer, by, None)
        scope.cancel()
        return True

    async def _settle(self, ask: Ask, answer: str, by: str, message: str | None) -> None:
        self._open.pop(ask.id, None)
        with anyio.CancelScope(shield=True):
            try:
                await self._answer(ask, answer, message)
            except (RefusedError, UncertainError) as error:
                await self._retain(ask, "unanswered", {"answer": answer, "by": by, "error": error.message})
                raise
            await self._retain(ask, "answered", {"answer": answer, "by": by})
