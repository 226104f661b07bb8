"""Conversation events (semantics 6.1.3): what is said while a turn runs.

Text comes in pieces and, when its item ends, whole. The pieces are shown as they come, and what they lack is given at
the end as one last piece, so the pieces of an item always add up to its text. A stream that is broken off (a steer, a
retry) never ends its item: what was shown of it stays without an end.
"""

from __future__ import annotations

from typing import Any, Final

from turnlog.harness import ConversationEvent
from turnlog.harness.codex.decode import error_text, member, text_of

_DELTAS: Final = {
    "item/agentMessage/delta": ("text_delta", "message"),
    "item/reasoning/summaryTextDelta": ("reasoning_delta", "thought"),
    "item/reasoning/textDelta": ("reasoning_delta", "thought"),
}
_STATES: Final = {"inProgress": "running"}
_SILENT: Final = ("userMessage", "hookPrompt", "functionCallOutput")


class Narrator:
    """Turns what Codex says about our turns into events, each told once."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        self._retrying: set[str] = set()
        self.spoke: set[str] = set()
        """Turns of which some content was shown."""

    def tell(self, method: str, params: dict[str, Any]) -> list[ConversationEvent]:
        """Return the events of one notification about a turn."""
        turn = text_of(params, "turnId")
        if turn is None:
            return []
        if method == "error":
            return self._error(turn, params)
        if method == "thread/tokenUsage/updated":
            usage = params.get("tokenUsage")
            return [ConversationEvent("usage_checkpoint", turn_id=turn, usage=usage)] if isinstance(usage, dict) else []
        events: list[ConversationEvent] = []
        if method in _DELTAS:
            events = self._delta(method, turn, params)
        elif method in ("item/started", "item/completed"):
            events = self._item(turn, member(params, "item"), ended=method == "item/completed")
        if events:
            self.spoke.add(turn)
            if turn in self._retrying:
                self._retrying.discard(turn)
                events.insert(0, ConversationEvent("status_changed", turn_id=turn, status="busy"))
        return events

    def _error(self, turn: str, params: dict[str, Any]) -> list[ConversationEvent]:
        if params.get("willRetry") is not True:
            return []  # the completion that follows says it
        self._retrying.add(turn)
        message = error_text(params.get("error"))
        return [ConversationEvent("status_changed", turn_id=turn, status="retry", message=message)]

    def _delta(self, method: str, turn: str, params: dict[str, Any]) -> list[ConversationEvent]:
        item, text = text_of(params, "itemId"), text_of(params, "delta")
        if item is None or not text:
            return []
        kind, word = _DELTAS[method]
        self._shown[item] = self._shown.get(item, "") + text
        return [ConversationEvent(kind, turn_id=turn, content=text, item={"kind": word, "id": item})]

    def _item(self, turn: str, item: dict[str, Any], *, ended: bool) -> list[ConversationEvent]:
        kind, name = text_of(item, "type"), text_of(item, "id")
        if kind is None or name is None or kind in _SILENT:
            return []
        if kind in ("agentMessage", "reasoning"):
            return self._text(turn, item, name, thought=kind == "reasoning") if ended else []
        word = "item_completed" if ended else "item_started"
        return [ConversationEvent(word, turn_id=turn, item=_described(kind, name, item))]

    def _text(self, turn: str, item: dict[str, Any], name: str, *, thought: bool) -> list[ConversationEvent]:
        text = _thought(item) if thought else text_of(item, "text") or ""
        described: dict[str, Any] = {"kind": "thought" if thought else "message", "id": name}
        shown = self._shown.pop(name, "")
        events: list[ConversationEvent] = []
        if not thought and len(text) > len(shown) and text.startswith(shown):
            events.append(
                ConversationEvent("text_delta", turn_id=turn, content=text[len(shown) :], item=dict(described))
            )
        if (phase := text_of(item, "phase")) is not None:
            described["phase"] = phase
        return [*events, ConversationEvent("item_completed", turn_id=turn, item={**described, "text": text})]


def _thought(item: dict[str, Any]) -> str:
    parts = item.get("summary") or item.get("content")
    return "\n".join(part for part in parts if isinstance(part, str)) if isinstance(parts, list) else ""


def _described(kind: str, name: str, item: dict[str, Any]) -> dict[str, Any]:
    """Return a command, file change or tool call as an item of an event."""
    state = text_of(item, "status")
    described: dict[str, Any] = {
        "kind": "command" if kind == "commandExecution" else "tool",
        "id": name,
        "name": _name(kind, item),
        "summary": _summary(item),
        "state": _STATES.get(state, state) if state else None,
        "duration_ms": _duration(item),
    }
    if isinstance(item.get("exitCode"), int):
        described["exit_code"] = item["exitCode"]
    return described


def _name(kind: str, item: dict[str, Any]) -> str:
    if kind == "commandExecution":
        return "shell"
    if kind == "fileChange":
        return "apply_patch"
    parts = [text_of(item, name) for name in ("server", "namespace", "tool")]
    return ".".join(part for part in parts if part) or kind


def _summary(item: dict[str, Any]) -> str | None:
    changes = item.get("changes")
    if isinstance(changes, list):
        paths = [str(change.get("path")) for change in changes if isinstance(change, dict)]
        return ", ".join(paths)[:500] or None
    for name in ("command", "query", "prompt", "path"):
        if text := text_of(item, name):
            return " ".join(text.split())[:500]
    return None


def _duration(item: dict[str, Any]) -> int | None:
    if isinstance(item.get("durationMs"), int):
        return int(item["durationMs"])
    begun, ended = item.get("startedAtMs"), item.get("completedAtMs")
    return ended - begun if isinstance(begun, int) and isinstance(ended, int) and ended >= begun else None
