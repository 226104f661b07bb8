"""Conversation events (semantics 6.1.3): what is said while a turn runs, from messages and from the event stream.

Text reaches us twice: in pieces over the stream, and whole in the list once its part has ended. The pieces are shown
as they come; when the part ends, what was missed is given as a last piece. So the pieces of one item always add up to
its text, whatever the stream lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from turnlog.harness import ConversationEvent
from turnlog.harness.opencode.decode import Message, TextPart, ToolPart

_ITEM_KINDS: Final = {"text": "message", "reasoning": "thought"}
_HELD: Final = 10_000
"""Pieces kept for a message that the list has not shown yet."""


class Delta(msgspec.Struct, frozen=True):
    """A piece of streamed text; OpenCode shows it nowhere else until its part ends."""

    session: str | None
    message: str
    part: str
    text: str


class Narrator:
    """Turns parts and pieces into events, each told once."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        self._streamed: dict[str, str] = {}
        self._told: set[tuple[str, str]] = set()
        self._held: list[Delta] = []
        self.spoke: set[str] = set()
        """Requests of which some content was shown."""

    def part(self, part: str, kind: str) -> None:
        """Note the kind of a part (``text`` or ``reasoning``) before its pieces come."""
        self._kinds[part] = kind

    def hold(self, delta: Delta) -> None:
        """Keep a piece until its message is known."""
        if len(self._held) < _HELD:
            self._held.append(delta)

    def pieces(
        self, find: Callable[[str], Message | None], admitted: Callable[[str], bool]
    ) -> Iterable[ConversationEvent]:
        """Yield the held pieces of messages that are known by now; pieces of turns that are not ours are dropped."""
        held, self._held = self._held, []
        for delta in held:
            message = find(delta.message)
            if message is None:
                self._held.append(delta)
            elif message.parent and admitted(message.parent) and (delta.part, "completed") not in self._told:
                self._streamed[delta.part] = self._streamed.get(delta.part, "") + delta.text
                yield self._piece(message.parent, delta.part, self._kinds.get(delta.part, "text"), delta.text)

    def content(self, request: str, message: Message) -> Iterable[ConversationEvent]:
        """Yield what a changed message says that was not said before."""
        for text in message.texts:
            # An unfinished part says nothing yet: its text is empty until it ends (providers.md §2).
            if text.ended is not None and self._first(text.id, "completed"):
                streamed = self._streamed.pop(text.id, "")
                self._kinds.pop(text.id, None)
                if len(text.text) > len(streamed) and text.text.startswith(streamed):
                    yield self._piece(request, text.id, text.kind, text.text[len(streamed) :])
                yield ConversationEvent("item_completed", turn_id=request, item=_text_item(text))
        for tool in message.tools:
            self.spoke.add(request)
            if self._first(tool.id, "started"):
                begun = tool if tool.unfinished else msgspec.structs.replace(tool, state="running", ended=None)
                yield ConversationEvent("item_started", turn_id=request, item=_tool_item(begun))
            elif tool.state == "running" and self._first(tool.id, "running"):
                yield ConversationEvent("item_updated", turn_id=request, item=_tool_item(tool))
            if not tool.unfinished and self._first(tool.id, "completed"):
                yield ConversationEvent("item_completed", turn_id=request, item=_tool_item(tool))
        if message.completed is not None:
            info = message.info
            usage = {"message": message.id, "model": info.get("modelID")}
            usage |= {"tokens": info.get("tokens"), "cost": info.get("cost")}
            if self._first(message.id, f"usage {usage}"):
                yield ConversationEvent("usage_checkpoint", turn_id=request, usage=usage)

    def _piece(self, request: str, part: str, kind: str, text: str) -> ConversationEvent:
        self.spoke.add(request)
        name = "reasoning_delta" if kind == "reasoning" else "text_delta"
        return ConversationEvent(name, turn_id=request, content=text, item={"kind": _ITEM_KINDS[kind], "id": part})

    def _first(self, part: str, what: str) -> bool:
        if (part, what) in self._told:
            return False
        self._told.add((part, what))
        return True


def _text_item(text: TextPart) -> dict[str, Any]:
    return {"kind": _ITEM_KINDS[text.kind], "id": text.id, "text": text.text}


def _tool_item(tool: ToolPart) -> dict[str, Any]:
    duration = None if tool.started is None or tool.ended is None else tool.ended - tool.started
    return {
        "kind": "tool",
        "id": tool.id,
        "name": tool.name,
        "summary": tool.title,
        "state": tool.state,
        "duration_ms": duration,
    }
