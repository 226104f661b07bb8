"""The text of stored messages and parts, for search and transcripts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from turnlog.harness.opencode.decode import member
from turnlog.harness.reading import Passage, Role

_SPEAKERS: Final[dict[str, Role]] = {"user": "user", "assistant": "assistant"}


def part_passages(part: Mapping[str, Any], role: str | None) -> tuple[Passage, ...]:
    """Return the text of one part of a message of this role."""
    match part.get("type"):
        case "text":
            # What a program put into somebody's mouth is not what that person said.
            injected = part.get("synthetic") is True or part.get("ignored") is True
            return _said("note" if injected else _SPEAKERS.get(role or "", "note"), part.get("text"))
        case "reasoning":
            return _said("reasoning", part.get("text"))
        case "tool":
            return _tool(part.get("tool", part.get("name")), member(part, "state"))
        case "tool-invocation":
            call = member(part, "toolInvocation")
            state = {"input": call.get("args"), "output": call.get("result")}
            return _tool(call.get("toolName"), state)
        case "subtask":
            return _said("note", part.get("prompt"))
        case "file":
            return _said("note", part.get("filename"))
        case _:
            return ()


def message_passages(data: Mapping[str, Any], kind: str | None) -> tuple[Passage, ...]:
    """Return the text that a message holds itself: all of it in some shapes, none where its parts are rows."""
    role = data.get("role", data.get("type", kind))
    inside = data.get("content", data.get("parts"))
    if isinstance(inside, list):
        return tuple(passage for part in inside if isinstance(part, dict) for passage in part_passages(part, role))
    match role:
        case "shell":
            return _tool("shell", {"input": data.get("command"), "output": data.get("output")})
        case "compaction":
            return _said("note", data.get("summary"))
        case "user" | "assistant":
            return _said(_SPEAKERS[role], data.get("text"))
        case _:
            return _said("note", data.get("text"))


def _tool(name: Any, state: Mapping[str, Any]) -> tuple[Passage, ...]:
    named = name if isinstance(name, str) else None
    failed = state.get("status") == "error"
    output = next((state[each] for each in ("output", "error", "content", "result") if state.get(each)), None)
    given = state.get("input")
    return (*_said("tool_input", given or None, named), *_said("tool_output", output, named, failed=failed))


def _said(role: Role, value: Any, name: str | None = None, *, failed: bool = False) -> tuple[Passage, ...]:
    text = "\n".join(_texts(value))
    return (Passage(role, text, name, failed),) if text else ()


def _texts(value: Any) -> Iterator[str]:
    """Give the text of a value: itself, the texts of a list of blocks, else its JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and all(isinstance(block, dict) for block in value):
        for block in value:
            if isinstance(text := block.get("text"), str):
                yield text
    elif value is not None:
        yield orjson.dumps(value).decode()
