"""Codex's words as receipts: pure, no I/O, no clock (semantics 6.3, 2.3.2; providers.md §3, checked on 0.171.0).

Facts about turns as the history tells them: a turn that was stopped has ``completedAt``; one whose process was killed
is reported ``interrupted`` *without* it, and so is one that another process runs at this very moment. So that word
counts only for a turn whose process is known to be gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from turnlog.errors import InvalidError
from turnlog.harness import Child
from turnlog.receipts import Receipt, decode
from turnlog.redact import sanitise, sanitise_value, strip_terminal

PROVIDER: Final = "codex"
GENERIC_ERROR: Final = "Codex did not complete the request"
ENDED: Final = ("completed", "failed", "interrupted")
TITLE_WIDTH: Final = 80

Schema = dict[str, Any] | bool


class Turn(msgspec.Struct, frozen=True):
    """A turn object. ``items`` may be all, a summary, or none."""

    id: str
    status: str
    root: str | None
    items: tuple[dict[str, Any], ...]
    raw: dict[str, Any]

    @property
    def cut(self) -> bool:
        """Whether the end is only inferred: nobody wrote it down."""
        return self.status == "interrupted" and self.raw.get("completedAt") is None

    @property
    def whole(self) -> bool:
        """Whether it was told with all of its items; old versions do not say, and tell them."""
        return self.raw.get("itemsView") in (None, "full")


def member(holder: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an object inside an object; empty when it is missing or something else."""
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


def text_of(holder: Mapping[str, Any], name: str) -> str | None:
    """Return a string inside an object, or None."""
    value = holder.get(name)
    return value if isinstance(value, str) else None


def turn_named(method: str, params: Mapping[str, Any]) -> str | None:
    """Return the turn that a notification is about."""
    if method in ("turn/started", "turn/completed"):
        return text_of(member(params, "turn"), "id")
    return text_of(params, "turnId")


def read_turn(value: Any) -> Turn | None:
    """Decode a turn object; None when it is none."""
    if not isinstance(value, dict):
        return None
    identifier, status = text_of(value, "id"), text_of(value, "status")
    if identifier is None or status is None:
        return None
    items = value.get("items")
    kept = tuple(item for item in items if isinstance(item, dict)) if isinstance(items, list) else ()
    return Turn(identifier, status, text_of(value, "rootTurnId"), kept, value)


def usage_receipt(thread: str, turn: str, params: Mapping[str, Any]) -> Receipt | None:
    """Return the usage receipt of a ``thread/tokenUsage/updated``: its object, verbatim."""
    usage = params.get("tokenUsage")
    return Receipt(thread, turn, "usage", usage) if isinstance(usage, dict) else None


def completion(turn: Turn, *, dead: bool = False) -> dict[str, Any] | None:
    """Return the payload of a turn's completion; None while it has none.

    ``dead``: the process that ran the turn is known to be gone; then also an end that nobody wrote down counts.
    """
    if turn.status not in ENDED or (turn.cut and not dead):
        return None
    payload = {
        "status": turn.status,
        "error": sanitise_value(turn.raw.get("error")),
        "started_at": turn.raw.get("startedAt"),
        "completed_at": turn.raw.get("completedAt"),
        "duration_ms": turn.raw.get("durationMs"),
    }
    if turn.cut:
        payload["basis"] = "process_ended"
    return payload


def answer_of(item: Mapping[str, Any]) -> str | None:
    """Return the text of an item that can be an answer; None for others, commentary too."""
    if item.get("type") != "agentMessage" or item.get("phase") not in (None, "final_answer"):
        return None
    return text_of(item, "text")


def last_answer(turn: Turn) -> str | None:
    """Return the last text of a turn object that can be its answer."""
    answers = [text for item in turn.items if (text := answer_of(item)) is not None]
    return answers[-1] if answers else None


def output(text: str, schema: Schema | None) -> dict[str, Any]:
    """Return the payload of an answer: its value where a schema was given and the text fits it."""
    if schema is not None:
        import jsonschema

        try:
            value = decode(text)
            validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
            if not isinstance(schema, bool):
                validator.check_schema(schema)
            if validator(schema).is_valid(value):
                return {"value": value}
        except (InvalidError, jsonschema.SchemaError):
            pass
    return {"text": text}


def client_of(item: Mapping[str, Any]) -> str | None:
    """Return the request id that an item of the user carries."""
    return text_of(item, "clientId") if item.get("type") == "userMessage" else None


def user_messages(turn: Turn) -> list[str | None]:
    """Return the request ids of a turn's user messages in order; None for one that has none."""
    return [client_of(item) for item in turn.items if item.get("type") == "userMessage"]


def children_of(thread: str, turn: str, item: Mapping[str, Any]) -> list[Child]:
    """Return the conversations that an item opened: subagents, in both shapes Codex has for them."""
    if item.get("type") == "subAgentActivity":
        found = text_of(item, "agentThreadId")
        return [Child(found, thread, turn, text_of(item, "agentPath"))] if found and found != thread else []
    if item.get("type") != "collabAgentToolCall" or item.get("tool") != "spawnAgent":
        return []
    receivers = item.get("receiverThreadIds")
    prompt = " ".join((text_of(item, "prompt") or "").split())[:TITLE_WIDTH]
    sender = text_of(item, "senderThreadId") or thread
    return [
        Child(receiver, sender, turn, strip_terminal(prompt) or None)
        for receiver in (receivers if isinstance(receivers, list) else ())
        if isinstance(receiver, str) and receiver != thread
    ]


def error_text(error: Any, *, interrupted: bool = False) -> str:
    """Return the program's own words about an error, one line, safe to store and show."""
    if isinstance(error, dict):
        parts = [part for name in ("message", "additionalDetails") if (part := text_of(error, name))]
        if parts:
            return strip_terminal(sanitise(" ".join(": ".join(parts).split())))
    return "Interrupted" if interrupted else GENERIC_ERROR


def each(value: Any, read: Callable[[Any], Turn | None]) -> list[Turn]:
    """Return the turns of a list, leaving out what is none."""
    return [turn for entry in (value if isinstance(value, list) else ()) if (turn := read(entry)) is not None]
