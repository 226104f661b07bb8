"""A listener that shows nothing: what a bench measures is not the screen."""

from __future__ import annotations

from turnlog.harness import Ask, ConversationEvent


class Nobody:
    def session(self, session_id: str, artifact_key: str) -> None:
        pass

    def event(self, event: ConversationEvent) -> None:
        pass

    def notice(self, text: str) -> None:
        pass

    async def permission(self, ask: Ask) -> str | None:
        return None
