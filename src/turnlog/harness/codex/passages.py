"""The text of rollout records: what was said, thought and done, once each.

Everything a model saw or made is an item of its own, in every version of the format; events repeat some of it. So text
is taken from items alone, and one line tells what it is without those around it. Events that no item repeats (errors)
are notes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from turnlog.harness.codex.dig import inner, text
from turnlog.harness.codex.prompts import parts, prompt_of
from turnlog.harness.reading import Passage

_EXIT: Final = re.compile(r"(?:exited with code|Exit code:) (-?\d+)")
_ERRORS: Final = ("error", "stream_error")
_GOOD: Final = (None, 0)
_HEAD: Final = 400
"""Characters of an output in which a program's exit code is told."""

_Item = Mapping[str, Any]
_Passages = tuple[Passage, ...]


def passages_of(record: Mapping[str, Any]) -> _Passages:
    """Return the passages of one record. Linear in its text."""
    payload = record.get("payload")
    kind = record.get("type")
    if isinstance(payload, dict):
        if kind == "response_item":
            return _item(payload, inner(record, "metadata"))
        if kind == "event_msg":
            return _event(payload)
        if kind == "compacted":
            return _note(text(payload, "message"))
        return ()
    return _item(record, {}) if kind is not None else ()


def _item(item: _Item, metadata: _Item) -> _Passages:
    kind = item.get("type")
    read = _ITEMS.get(kind) if isinstance(kind, str) else None
    if read is None:
        return ()
    found = read(item)
    if found and metadata.get("compaction_output") is True:
        return tuple(Passage("note", each.text) for each in found)
    return found


def _event(event: _Item) -> _Passages:
    kind = event.get("type")
    if kind == "task_complete":
        return _note(text(inner(event, "error"), "message"), failed=True)
    return _note(text(event, "message"), failed=True) if kind in _ERRORS else ()


def _note(said: str | None, *, failed: bool = False) -> _Passages:
    return () if said is None else (Passage("note", said, failed=failed),)


def _message(item: _Item) -> _Passages:
    role = item.get("role")
    if role == "user":
        prompt = prompt_of(item)
        return () if prompt is None else (Passage("user", prompt),)
    if role == "assistant":
        said = "\n".join(parts(item.get("content")))
        return (Passage("assistant", said),) if said else ()
    return ()


def _reasoning(item: _Item) -> _Passages:
    thought = "\n".join(parts(item.get("summary")) or parts(item.get("content")))
    return (Passage("reasoning", thought),) if thought else ()


def _told(item: _Item) -> _Passages:
    """Return what one agent told another."""
    said = "\n".join(parts(item.get("content")))
    return (Passage("note", said),) if said else ()


def _call(member: str) -> Callable[[_Item], _Passages]:
    def read(item: _Item) -> _Passages:
        given = item.get(member)
        name = text(item, "name") or str(item["type"]).removesuffix("_call")
        if isinstance(given, dict):
            command = given.get("command")
            if isinstance(command, list) and all(isinstance(part, str) for part in command):
                given = " ".join(command)
            else:
                given = text(given, "query") or orjson.dumps(given, default=str).decode()
        return (Passage("tool_input", given, name),) if isinstance(given, str) and given else ()

    return read


def _output(item: _Item) -> _Passages:
    """Return what a tool gave: a text, JSON in a text with the exit code beside it, or a list of contents."""
    value = item.get("output")
    code: object = None
    if isinstance(value, str) and value.startswith('{"output":'):
        with contextlib.suppress(orjson.JSONDecodeError):
            value = orjson.loads(value)
    success = item.get("success")
    if isinstance(value, dict):
        code = inner(value, "metadata").get("exit_code")
        success = value.get("success", success)
        value = value.get("output", value.get("content", value.get("text")))
    given = value if isinstance(value, str) else "\n".join(parts(value))
    if code is None:
        match = _EXIT.search(given, 0, _HEAD)
        code = int(match[1]) if match else None
    return (Passage("tool_output", given, failed=code not in _GOOD or success is False),) if given else ()


_ITEMS: Final[dict[str, Callable[[_Item], _Passages]]] = {
    "message": _message,
    "reasoning": _reasoning,
    "agent_message": _told,
    "function_call": _call("arguments"),
    "custom_tool_call": _call("input"),
    "local_shell_call": _call("action"),
    "web_search_call": _call("action"),
    "tool_search_call": _call("arguments"),
    "function_call_output": _output,
    "custom_tool_call_output": _output,
    "local_shell_call_output": _output,
}
