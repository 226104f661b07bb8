"""What a line of a session means for its turn, and what a turn's lines say about its end: pure, for every reader.

The end of a turn is taken only from Claude's own words: its last message has ``stop_reason`` ``end_turn`` or
``stop_sequence`` (or a structured answer ended it), every tool call has its result and nothing waits for the model; or
its error message; or its mark of an interruption. Before it wrote stop reasons, the note that its stop hooks ran or how
long the turn took says the same. A turn cut by a kill has none of these: its outcome is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from turnlog.harness.claude.decode import PROVIDER, member, one_line

INTERRUPTED: Final = "[Request interrupted by user"
NOTIFICATION: Final = "<task-notification>"

FINAL: Final = {"end_turn", "stop_sequence"}
"""Stop reasons of a message that ends its turn. ``tool_use`` was told now and then before they were."""

_INJECTED: Final = re.compile(r"\s*<(?:task-notification|command-name|local-command-|bash-|system-reminder)")


class Course(msgspec.Struct, kw_only=True):
    """How far a turn of the main loop has come.

    ``last`` is the newest call of the main loop, ``reason`` why it stopped, ``text`` its newest text block. ``waits``:
    the model was still to answer something. ``finished``: a structured answer ended the turn. ``closed``: Claude noted
    that the turn is over.
    """

    last: str | None = None
    reason: str | None = None
    text: str | None = None
    value: Any = None
    finished: bool = False
    closed: bool = False
    ended_at: Any = None
    open_tools: set[str] = set()
    waits: bool = True
    interrupted: bool = False
    aborted: bool = False
    error: str | None = None

    def answered(self, results: Sequence[Mapping[str, Any]], line: Mapping[str, Any]) -> None:
        """Take the results of tool calls."""
        self.open_tools -= {str(block.get("tool_use_id")) for block in results}
        self.waits = not line.get("toolEndsTurn")

    def failed(self, line: Mapping[str, Any], content: Sequence[Mapping[str, Any]]) -> None:
        """Take a message that Claude wrote itself. Without the error mark it is a filler from after a cut turn."""
        if line.get("isApiErrorMessage"):
            self.error = one_line(" ".join(str(block.get("text", "")) for block in content))
            self.ended_at = line.get("timestamp")

    def said(
        self,
        name: str | None,
        line: Mapping[str, Any],
        message: Mapping[str, Any],
        content: Sequence[Mapping[str, Any]],
    ) -> None:
        """Take a line of one of the model's messages."""
        self.error, self.waits, self.closed = None, False, False
        if name != self.last or name is None:
            self.last, self.text, self.reason = name, None, None
        reason = message.get("stop_reason")
        self.reason = reason if isinstance(reason, str) else self.reason
        self.aborted = bool(line.get("isAbortedMidStream"))
        self.ended_at = line.get("timestamp")
        for block in content:
            if block.get("type") == "text" and isinstance(block.get("text"), str):
                self.text = block["text"]
            elif block.get("type") == "tool_use":
                self.open_tools.add(str(block.get("id")))

    def structured(self, attachment: Mapping[str, Any]) -> None:
        """Take a structured answer."""
        self.value, self.finished = attachment.get("data"), True


def kind_of(line: Mapping[str, Any]) -> str | None:
    """Return the type of a record; one without a type (early logs, gateways) is of its message's role."""
    kind = line.get("type")
    if kind is None and "role" not in line:
        role = member(line, "message").get("role")
        return role if role in ("user", "assistant") else None
    return kind if isinstance(kind, str) else None


def blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the content blocks of a message; empty when its content is a string or nothing."""
    content = message.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def words(message: Mapping[str, Any], content: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a user message whose blocks are ``content``."""
    text = message.get("content")
    return text if isinstance(text, str) else "".join(str(block.get("text", "")) for block in content)


def is_prompt(line: Mapping[str, Any], text: str, content: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether a user line without tool results was sent by somebody or something, and so begins a turn."""
    if line.get("isMeta") or line.get("isCompactSummary"):
        return False
    if line.get("promptSource") is not None or text.lstrip().startswith(NOTIFICATION):
        return True
    if not text.strip():
        return any(block.get("type") in ("image", "document") for block in content)
    return not _INJECTED.match(text)


def is_injected(text: str) -> bool:
    """Tell whether the text of a user line is Claude's own: commands and their output, notices, reminders."""
    return _INJECTED.match(text) is not None


def made_itself(line: Mapping[str, Any], text: str) -> bool:
    """Tell whether no person asked for the turn that a prompt begins."""
    origin = member(line, "origin").get("kind")
    itself = origin not in (None, "human") or line.get("promptSource") == "system"
    return itself or text.lstrip().startswith(NOTIFICATION)


def verdict(
    turn: Course, *, followed: bool = False, reasons: bool = True
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return the output and the completion that the lines tell of a turn, as far as they tell them.

    ``followed``: the next prompt came, so that nothing more will be said: a message that was cut ended its turn. Where
    the file tells no ``reasons`` why messages stopped, a text that only the next prompt follows was an answer.
    """
    shown = turn.closed or (followed and not reasons and turn.text is not None)
    told = turn.reason in FINAL or (turn.reason is None and shown)
    output: dict[str, Any] | None = None
    if turn.interrupted or (turn.aborted and followed):
        status = "interrupted"
    elif turn.error is not None:
        status = "failed"
    elif (told or turn.finished) and turn.last is not None and not turn.open_tools and not turn.waits:
        status = "completed"
        output = {"value": turn.value} if turn.finished else None if turn.text is None else {"text": turn.text}
    else:
        return None, None
    completion = {
        "status": status,
        "error": turn.error if status == "failed" else "Interrupted" if status == "interrupted" else None,
        "message_id": turn.last,
        "stop_reason": turn.reason,
        "completed_at": turn.ended_at,
        "provider": PROVIDER,
        "source": "file",
    }
    return output, completion
