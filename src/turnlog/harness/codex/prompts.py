"""What somebody typed, told apart from what Codex puts into a user's mouth."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_MADE: Final = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|turn_aborted|user_action|user_shell_command|subagent_notification"
    r"|INSTRUCTIONS|skill|permissions instructions|collaboration_mode|personality_spec|model_switch|apps_instructions"
    r"|skills_instructions|hook_prompt|recommended_plugins)\b"
    r"|# AGENTS\.md instructions for )"
)
"""How texts begin that nobody typed."""

_REQUEST: Final = re.compile(r"^## My request for Codex:?[ \t]*$", re.MULTILINE)
"""Editors put their context in front of what was typed."""

_IMAGE: Final = re.compile(r"\s*</?image\b[^>]*>\s*")
_METADATA: Final = "internal_chat_message_metadata_passthrough"


def parts(content: Any) -> list[str]:
    """Return the texts of a content list; a string is one text."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    return [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]


def prompt_of(message: Mapping[str, Any]) -> str | None:
    """Return what was typed in a message item of role user; None where nobody typed it.

    Newer files say of each part what it is; in older ones the known frames are left out.
    """
    content = message.get("content")
    metadata = message.get(_METADATA)
    kinds = metadata.get("content_item_kinds") if isinstance(metadata, dict) else None
    if isinstance(kinds, list) and isinstance(content, list) and len(kinds) == len(content):
        content = [
            part for part, kind in zip(content, kinds, strict=True) if isinstance(kind, str) and kind.startswith("user")
        ]
        texts = parts(content)
    else:
        texts = [each for each in parts(content) if not _MADE.match(each)]
    typed = "\n".join(each for each in texts if each.strip() and not _IMAGE.fullmatch(each))
    return typed or None


def typed(message: str) -> str | None:
    """Return the text of a prompt's event; None where nobody typed it."""
    return message if message.strip() and not _MADE.match(message) else None


def request(prompt: str) -> str:
    """Return a prompt without the context that an editor put in front of it."""
    found = list(_REQUEST.finditer(prompt))
    return prompt[found[-1].end() :].strip() if found else prompt.strip()
