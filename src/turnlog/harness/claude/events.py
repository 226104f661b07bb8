"""Conversation events (semantics 6.1.3): what is said while a turn runs, from stdout alone.

Text comes twice: in pieces (``stream_event``), and whole when its block ends (``assistant``, one line per block). The
pieces are shown as they come; what was missed follows as a last piece, so the pieces of an item add up to its text. A
retried stream leaves pieces of an item that never ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from turnlog.clock import from_rfc3339
from turnlog.harness import ConversationEvent
from turnlog.harness.claude.decode import SYNTHETIC, member, one_line

SUMMARY: Final = 300
_PIECES: Final = {"text_delta": "text", "thinking_delta": "thinking"}
_KINDS: Final = {"text": "message", "thinking": "thought"}
_SUMMARY_NAMES: Final = ("command", "file_path", "notebook_path", "url", "pattern", "query", "description", "prompt")


class _Tool(msgspec.Struct):
    turn: str
    name: str
    summary: str | None
    began: Any


class Narrator:
    """Turns lines of one process into events, for turns that may be narrated."""

    def __init__(self) -> None:
        self._message = ""
        self._model: str | None = None
        self._blocks: dict[str, int] = {}
        self._streamed: dict[str, str] = {}
        self._tools: dict[str, _Tool] = {}
        self.spoke: set[str] = set()
        """Turns of which some content was shown."""

    def piece(self, turn: str, event: Mapping[str, Any]) -> Iterable[ConversationEvent]:
        """Yield what one raw event of the model's stream shows."""
        kind = event.get("type")
        if kind == "message_start":
            message = member(event, "message")
            self._message, self._model = str(message.get("id")), message.get("model")
        elif kind == "content_block_delta":
            delta = member(event, "delta")
            name = _PIECES.get(str(delta.get("type")))
            text = delta.get(name) if name else None
            if name and isinstance(text, str) and text:
                item = f"{self._message}:{event.get('index')}"
                self._streamed[item] = self._streamed.get(item, "") + text
                yield self._piece(turn, item, name, text)
        elif kind == "message_delta" and isinstance(event.get("usage"), dict):
            usage = {"message": self._message, "model": self._model, "tokens": event["usage"]}
            yield ConversationEvent("usage_checkpoint", turn_id=turn, usage=usage)

    def blocks(self, turn: str, line: Mapping[str, Any]) -> Iterable[ConversationEvent]:
        """Yield the events of one ``assistant`` line."""
        message = member(line, "message")
        name = str(message.get("id"))
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            index = self._blocks.get(name, 0)
            self._blocks = {name: index + 1}
            if message.get("model") == SYNTHETIC or not isinstance(block, dict):
                continue
            if block.get("type") == "tool_use":
                yield self._tool(turn, block, line.get("timestamp"))
            elif block.get("type") in _KINDS:
                yield from self._whole(turn, f"{name}:{index}", block)

    def results(self, line: Mapping[str, Any]) -> Iterable[ConversationEvent]:
        """Yield the ends of tools that a ``user`` line tells."""
        content = member(line, "message").get("content")
        for block in content if isinstance(content, list) else ():
            if not isinstance(block, dict) or block.get("type") != "tool_result":
                continue
            call = str(block.get("tool_use_id"))
            tool = self._tools.pop(call, None)
            if tool is not None:
                began, ended = from_rfc3339(tool.began), from_rfc3339(line.get("timestamp"))
                duration = None if began is None or ended is None else max(0, ended - began)
                item = _tool_item(call, tool, "error" if block.get("is_error") else "completed", duration)
                yield ConversationEvent("item_completed", turn_id=tool.turn, item=item)

    def forget(self, turn: str) -> None:
        """Drop what a turn that ended has left open."""
        self._tools = {call: tool for call, tool in self._tools.items() if tool.turn != turn}
        self._streamed.clear()

    def _whole(self, turn: str, item: str, block: Mapping[str, Any]) -> Iterable[ConversationEvent]:
        kind = str(block["type"])
        text = block.get(kind)
        streamed = self._streamed.pop(item, "")
        if not isinstance(text, str) or not (text or streamed):
            return
        if len(text) > len(streamed) and text.startswith(streamed):
            yield self._piece(turn, item, kind, text[len(streamed) :])
        yield ConversationEvent("item_completed", turn_id=turn, item={"kind": _KINDS[kind], "id": item, "text": text})

    def _piece(self, turn: str, item: str, kind: str, text: str) -> ConversationEvent:
        self.spoke.add(turn)
        name = "text_delta" if kind == "text" else "reasoning_delta"
        return ConversationEvent(name, turn_id=turn, content=text, item={"kind": _KINDS[kind], "id": item})

    def _tool(self, turn: str, block: Mapping[str, Any], at: Any) -> ConversationEvent:
        self.spoke.add(turn)
        call = str(block.get("id"))
        tool = _Tool(turn, str(block.get("name")), tool_summary(block.get("input")), at)
        self._tools[call] = tool
        return ConversationEvent("item_started", turn_id=turn, item=_tool_item(call, tool, "running", None))


def tool_summary(given: Any) -> str | None:
    """Return one line about what a tool is to do, from its input."""
    if isinstance(given, dict):
        for name in _SUMMARY_NAMES:
            value = given.get(name)
            if isinstance(value, str) and value.strip():
                return one_line(value[: 4 * SUMMARY])[:SUMMARY]
    return None


def _tool_item(call: str, tool: _Tool, state: str, duration: int | None) -> dict[str, Any]:
    return {
        "kind": "tool",
        "id": call,
        "name": tool.name,
        "summary": tool.summary,
        "state": state,
        "duration_ms": duration,
    }
