"""The text of a session's lines, for search and transcripts; and which lines have neither text nor usage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import orjson

from turnlog.harness.claude.course import INTERRUPTED, NOTIFICATION, is_injected, kind_of
from turnlog.harness.claude.decode import SYNTHETIC, member
from turnlog.harness.reading import Passage, Role
from turnlog.harness.salvage import read_line

_READ: Final = frozenset(
    (
        *(b"user", b"assistant", b"system", b"progress", b"attachment"),
        *(b"summary", b"ai-title", b"custom-title", b"relocated", b"worktree-state"),
    )
)
"""Types of lines that are read. The others (bookkeeping, requests repeated) have nothing that counts or is shown."""

_ATTACHMENTS: Final = (b"queued_command", b"structured_output")
_TYPE: Final = b'{"type":"'
_HEAD: Final = 700
"""Bytes of a line in which its type stands, when it stands before the content at all."""


def skippable(raw: bytes) -> bool:
    """Tell from a few bytes that a line has nothing to read, without decoding it.

    Only a line that ends like an object, holds no message and is UTF-8 is skipped: what was torn, glued to a record or
    overwritten is not. Constant time for lines that are read; a search for two words in the others.
    """
    head = raw[:_HEAD]
    if head.startswith(_TYPE):
        kind = head[len(_TYPE) : head.find(b'"', len(_TYPE))]
        if kind in _READ and kind not in {b"progress", b"attachment"}:
            return False
    elif b'"type":"assistant"' in head or b'"type":"user"' in head or not _is_aside(head):
        return False
    if b'"attachment":{"type":"' in head and any(name in head for name in _ATTACHMENTS):
        return False
    if not raw.rstrip(b"\r").endswith(b"}") or b'"message":' in raw or b'}{"' in raw:
        return False
    return is_text(raw)


def _is_aside(head: bytes) -> bool:
    return b'"type":"progress"' in head or b'"attachment":{"type":"' in head


def is_text(raw: bytes) -> bool:
    """Tell whether a line is UTF-8. Linear, at some gigabytes a second."""
    if raw.isascii():
        return True
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_progress(raw: bytes) -> bool:
    """Tell from a few bytes that a line is a note of progress."""
    return b'"type":"progress"' in raw[:_HEAD]


def passages(raw: bytes) -> tuple[Passage, ...]:
    """Return the text of one line, in order. Lines that repeat others (progress) have none. Linear in the line."""
    if skippable(raw):
        return ()
    return tuple(each for _, line in read_line(raw, 0)[0] for each in spoken(line))


def spoken(line: Mapping[str, Any]) -> list[Passage]:
    """Return the passages of one record."""
    kind = kind_of(line)
    if kind == "user":
        return _user(line)
    if kind == "assistant":
        message = member(line, "message")
        return _content(message.get("content"), "note" if message.get("model") == SYNTHETIC else "assistant")
    if kind == "attachment":
        attachment = member(line, "attachment")
        if attachment.get("type") == "queued_command":
            prompt = attachment.get("prompt")
            told = isinstance(prompt, str) and prompt.lstrip().startswith(NOTIFICATION)
            return _content(prompt, "note" if told else "user")
    return []


def _user(line: Mapping[str, Any]) -> list[Passage]:
    content = member(line, "message").get("content")
    first = content if isinstance(content, str) else ""
    if isinstance(content, list):
        texts = (text for each in content if isinstance(each, dict) and isinstance(text := each.get("text"), str))
        first = next(texts, "")
    apart = line.get("isMeta") or line.get("isCompactSummary")
    noted = apart or (first != "" and (is_injected(first) or first.startswith(INTERRUPTED)))
    return _content(content, "note" if noted else "user")


def _content(content: Any, role: Role) -> list[Passage]:
    if isinstance(content, str):
        return [Passage(role, content)] if content else []
    found: list[Passage] = []
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        kind = block.get("type")
        if kind == "text":
            text = block.get("text")
            if isinstance(text, str) and text:
                found.append(Passage(role, text))
        elif kind == "thinking":
            text = block.get("thinking")
            if isinstance(text, str) and text:
                found.append(Passage("reasoning", text))
        elif kind in ("tool_use", "server_tool_use"):
            name = block.get("name")
            found.append(Passage("tool_input", _compact(block.get("input")), name if isinstance(name, str) else None))
        elif isinstance(kind, str) and kind.endswith("tool_result"):
            text = _result(block.get("content"))
            if text:
                found.append(Passage("tool_output", text, failed=block.get("is_error") is True))
    return found


def _result(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "\n".join(text for each in parts if isinstance(each, dict) and isinstance(text := each.get("text"), str))


def _compact(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # deeper than it goes
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
