"""A receipt in a few words, for the table of ``turnlog history``; ``--json`` has every payload whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from turnlog.surfaces.cli.output import json_text
from turnlog.surfaces.cli.words import dollars, number, plural

if TYPE_CHECKING:
    from turnlog.model import Event


def phrase(event: Event) -> str:
    """Return what a receipt says; its payload as JSON where this version does not know the shape."""
    return say(event.kind.value, event.payload)


def say(kind: str, payload: Any) -> str:
    """Return what a receipt of a kind says, as ``phrase`` does."""
    if not isinstance(payload, dict):
        return json_text(payload)
    teller = _TELLERS.get(kind)
    told = teller(payload) if teller is not None else None
    return json_text(payload) if told is None else told


def _captured(payload: dict[str, Any]) -> str | None:
    words = [payload.get(name) for name in ("provider", "model", "skill", "cwd")]
    return " · ".join(str(word) for word in words if word)


def _requested(payload: dict[str, Any]) -> str | None:
    text = payload.get("text")
    if not isinstance(text, str):
        return None
    return f"steer: {text}" if payload.get("steer") else text


def _started(payload: dict[str, Any]) -> str | None:
    return "" if not payload else None


def _output(payload: dict[str, Any]) -> str | None:
    if "value" in payload:
        return json_text(payload["value"])
    return payload["text"] if isinstance(payload.get("text"), str) else None


def _completed(payload: dict[str, Any]) -> str | None:
    status = payload.get("status")
    if not isinstance(status, str):
        return None
    error = payload.get("error")
    data = error.get("data") if isinstance(error, dict) else None
    said = (data.get("message") if isinstance(data, dict) else None) or (
        error.get("message") if isinstance(error, dict) else None
    )
    return f"{status}: {said}" if said else status


def _observed(payload: dict[str, Any]) -> str | None:
    if payload.get("type") == "provider_launch":
        return f"engine {str(payload.get('stage')).replace('_', ' ')}"
    if payload.get("type") == "driver_exit":
        return f"driver left: {payload.get('outcome')}"
    source, evidence = payload.get("source"), payload.get("evidence")
    if not isinstance(source, str) or "evidence" not in payload:
        return None
    word, _, rest = source.partition(":")
    teller = _SOURCES.get(word)
    told = teller(rest, evidence) if teller is not None and isinstance(evidence, dict) else None
    return f"{source} {json_text(evidence)}" if told is None else told


def _permission(rest: str, evidence: dict[str, Any]) -> str:
    name, _, stage = rest.rpartition(":")
    if stage == "asked":
        return f"may it? {evidence.get('detail') or evidence.get('action')} ({name})"
    return f"{stage}: {evidence.get('answer')} by {evidence.get('by')} ({name})"


def _prune(_: str, evidence: dict[str, Any]) -> str | None:
    totals = evidence.get("totals")
    if not isinstance(totals, dict) or not isinstance(totals.get("streams"), int):
        return None
    spent, told = totals.get("total_input_tokens"), totals.get("output_tokens")
    return (
        f"receipts were removed; kept: {plural(totals['streams'], 'stream')}, {_plain(spent)} in · {_plain(told)} out"
    )


def _plain(value: Any) -> str:
    return number(value if isinstance(value, int) and not isinstance(value, bool) else None)


def _turn(rest: str) -> str:
    return f"…{rest[-12:]}"


_SOURCES: dict[str, Callable[[str, dict[str, Any]], str | None]] = {
    "partial": lambda _, evidence: f"streamed before it was cut off: {evidence.get('text')}",
    "unknown": lambda rest, evidence: f"this command learned no end of turn {_turn(rest)} ({evidence.get('why')})",
    "lost": lambda rest, _: f"the provider's history tells no end of turn {_turn(rest)}",
    "idle": lambda rest, _: f"the engine is idle; turn {_turn(rest)} has no end",
    "superseded": lambda rest, evidence: f"turn {_turn(rest)} goes on as {_turn(str(evidence.get('by')))}",
    "absorbed": lambda rest, evidence: f"request {_turn(rest)} is answered by {_turn(str(evidence.get('by')))}",
    "refused": lambda rest, evidence: f"request {_turn(rest)} was refused: {evidence.get('reason')}",
    "death": lambda _, evidence: f"the driving process is dead (pid {evidence.get('pid')})",
    "disconnect": lambda _, evidence: f"lost the engine: {evidence.get('terminal_error_class')}",
    "conflict": lambda _, evidence: f"told again, differently: {evidence.get('kind')}",
    "permission": _permission,
    "prune": _prune,
}


def _usage(payload: dict[str, Any]) -> str | None:
    message = payload.get("message")
    if payload.get("provider") == "opencode" and isinstance(message, dict):
        tokens = message.get("tokens")
        return None if not isinstance(tokens, dict) else _line(message.get("modelID"), tokens, message)
    totals = payload.get("total")
    if isinstance(totals, dict):
        return f"thread so far: {_count(totals, 'inputTokens')} in · {_count(totals, 'outputTokens')} out"
    used = payload.get("usage")
    if payload.get("provider") == "claude" and isinstance(used, dict):
        return f"{_count(used, 'input_tokens')} fresh in · {_count(used, 'output_tokens')} out"
    return None


def _line(model: Any, tokens: dict[str, Any], message: dict[str, Any]) -> str:
    cost = message.get("cost")
    parts = [str(model)] if model else []
    parts += [f"{_count(tokens, 'input')} fresh in", f"{_count(tokens, 'output')} out"]
    if isinstance(cost, int | float) and not isinstance(cost, bool):
        parts.append(dollars(float(cost)))
    if message.get("finish"):
        parts.append(str(message["finish"]))
    return " · ".join(parts)


def _count(holder: dict[str, Any], name: str) -> str:
    return _plain(holder.get(name))


_TELLERS = {
    "captured": _captured,
    "requested": _requested,
    "started": _started,
    "usage": _usage,
    "output": _output,
    "completed": _completed,
    "observed": _observed,
}
