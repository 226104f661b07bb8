"""A driven Codex: its turn ids are not our request ids."""

from __future__ import annotations

from typing import Any

from tests.harness.driving import SECONDS, Driven
from turnlog.harness.codex.live import CodexHarness


class CodexDriven(Driven):
    """As Driven; ``send`` returns the turn that Codex told, and remembers which request began it."""

    harness: CodexHarness

    def __init__(self, harness: CodexHarness, **more: Any) -> None:
        super().__init__(harness, **more)
        self.requests: dict[str, str] = {}

    async def send(self, text: str, **more: Any) -> str:
        request = self.harness.new_request_id()
        turn = await self.harness.send(request, text, **more)
        assert turn is not None
        self.requests[turn] = request
        return turn

    async def turn(self, text: str, seconds: float = SECONDS, **more: Any) -> str:
        turn = await self.send(text, **more)
        await self.until(lambda: self.completion(turn) is not None, seconds)
        return turn

    @property
    def accepted(self) -> list[tuple[str, str]]:
        return [pair for batch in self.batches for pair in batch.accepted]

    async def until_event(self, event_type: str, turn: str | None = None, **members: Any) -> None:
        def found() -> bool:
            return any(
                event.type == event_type
                and (turn is None or event.turn_id == turn)
                and all((event.item or {}).get(name) == value for name, value in members.items())
                for event in self.events
            )

        await self.until(found)
