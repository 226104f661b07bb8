"""What the dialects share: an event of a stream, and reading of message content and tool lists."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import orjson


class Event(msgspec.Struct, frozen=True):
    """One server-sent event; ``data`` is JSON, or a bare word."""

    name: str | None
    data: Any

    def encode(self) -> bytes:
        body = self.data.encode() if isinstance(self.data, str) else orjson.dumps(self.data)
        head = f"event: {self.name}\n".encode() if self.name else b""
        return head + b"data: " + body + b"\n\n"


DONE: Final = Event(None, "[DONE]")


def block_text(content: Any) -> str:
    """Return the text of a message's content, which is a string or a list of blocks."""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for block in content if isinstance(content, list) else ():
        if isinstance(block, str):
            texts.append(block)
        elif isinstance(block, dict) and block.get("type") in {"text", "input_text", "output_text"}:
            texts.append(str(block.get("text", "")))
    return "\n".join(texts)


def tool_table(tools: Any) -> dict[str, Any]:
    """Return the offered tools by name; those in a group also as ``group/name``."""
    table: dict[str, Any] = {}
    for tool in tools if isinstance(tools, list) else ():
        function = tool.get("function") or tool
        name = function.get("name") or tool.get("type")
        table[str(name)] = tool
        if tool.get("type") == "namespace":
            for inner in tool.get("tools") or []:
                table.setdefault(f"{name}/{inner.get('name')}", inner)
    return table
