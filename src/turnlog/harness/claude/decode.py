"""Claude's result lines as receipts: pure, no I/O, no clock (semantics 6.4; D1, D12). Checked on 2.1.197 and 2.1.332.

A ``result`` ends one turn. ``subtype`` stays ``success`` for errors of the model server, then ``is_error`` is true;
``error_during_execution`` with a ``terminal_reason`` ``aborted_…`` is an interruption. ``usage`` is the main loop alone
and all zero after an interruption while streaming; ``modelUsage`` and ``total_cost_usd`` are running totals, with
subagents.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from turnlog.receipts import Receipt, canonical
from turnlog.redact import sanitise, sanitise_value, strip_terminal

PROVIDER: Final = "claude"
SYNTHETIC: Final = "<synthetic>"
"""The model that Claude names for messages it wrote itself: errors, and fillers after a cut turn."""

GENERIC_ERROR: Final = "Claude did not complete the request"
LOGIN_HINT: Final = "log in with `claude`, or set ANTHROPIC_API_KEY"

_LOGIN: Final = re.compile(
    r"run /login|not logged in|invalid api key|failed to authenticate|oauth token|authentication_error", re.IGNORECASE
)
_SUMS: Final = (
    *("inputTokens", "outputTokens", "thinkingTokens", "cacheReadInputTokens", "cacheCreationInputTokens"),
    *("cacheCreationEphemeral5mInputTokens", "cacheCreationEphemeral1hInputTokens", "webSearchRequests", "costUSD"),
)


def member(holder: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an object inside an object; empty when it is missing or something else."""
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


def texts(value: Any) -> list[str]:
    """Return the strings of a list; empty when it is none."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def one_line(text: str) -> str:
    """Return foreign words on one line, safe to store and show."""
    return strip_terminal(sanitise(" ".join(text.split())))


def self_turn(name: str) -> str:
    """Return the id of a turn that Claude began by itself (a background task reported).

    ``name`` is the ``message.id`` of the turn's first own model call: the wire and the session's file both tell it.
    A turn without a call has only its result's uuid.
    """
    return f"auto:{name}"


def result_id(line: Mapping[str, Any]) -> str:
    """Return what names a result: its uuid, else a digest of the line."""
    name = line.get("uuid")
    return name if isinstance(name, str) and name else hashlib.sha256(canonical(dict(line)).encode()).hexdigest()[:32]


def answers(line: Mapping[str, Any]) -> tuple[str | None, list[str]]:
    """Return which request a result answers by its own words, and all user lines that went into it.

    Several waiting lines become one turn, and a line may be taken into a running turn; ``user_message_uuid`` is the
    one that the turn belongs to (2.1.332; 2.1.197 tells nothing).
    """
    named = texts(line.get("user_message_uuids"))
    main = line.get("user_message_uuid")
    if isinstance(main, str) and main:
        return main, named
    return (named[-1] if named else None), named


def made_by_itself(line: Mapping[str, Any]) -> bool:
    """Tell whether a result says that no person asked for its turn."""
    return member(line, "origin").get("kind") not in {None, "human"}


def status_of(line: Mapping[str, Any], *, asked: bool = False) -> str:
    """Return ``completed``, ``failed`` or ``interrupted``. ``asked``: Claude accepted an interrupt of ours before."""
    if line.get("subtype") == "success":
        return "failed" if line.get("is_error") else "completed"
    reason = line.get("terminal_reason")
    if line.get("subtype") == "error_during_execution":
        aborted = reason.startswith("aborted_") if isinstance(reason, str) else asked
        return "interrupted" if aborted else "failed"
    return "failed"


def error_words(line: Mapping[str, Any], status: str) -> str | None:
    """Return Claude's own words about why a turn did not complete; None when it did."""
    if status == "completed":
        return None
    if status == "interrupted":
        return "Interrupted"  # its own words are a diagnostic for its developers
    said = line.get("result")
    words = said if isinstance(said, str) and said.strip() else next(iter(texts(line.get("errors"))), GENERIC_ERROR)
    return one_line(words)


def with_hint(words: str) -> str:
    """Return error words with what to do, where they are about a missing login."""
    return f"{words} ({LOGIN_HINT})" if _LOGIN.search(words) else words


def output_payload(line: Mapping[str, Any], status: str) -> dict[str, Any] | None:
    """Return the answer of a turn: its structured value, else its text. The text of an error is no answer."""
    value = line.get("structured_output")
    if value is not None:
        return {"value": value}
    text = line.get("result")
    return {"text": text} if status == "completed" and isinstance(text, str) else None


def completion_payload(line: Mapping[str, Any], status: str) -> dict[str, Any]:
    """Return the payload of a ``completed`` receipt."""
    return {
        "status": status,
        "error": error_words(line, status),
        "result_id": result_id(line),
        "subtype": line.get("subtype"),
        "errors": sanitise_value(texts(line.get("errors"))),
        "terminal_reason": line.get("terminal_reason"),
        "stop_reason": line.get("stop_reason"),
        "api_error_status": line.get("api_error_status"),
        "num_turns": line.get("num_turns"),
        "duration_ms": line.get("duration_ms"),
        "provider": PROVIDER,
    }


def usage_payload(line: Mapping[str, Any], status: str, model_usage: dict[str, Any] | None) -> dict[str, Any]:
    """Return the wire receipt of D1."""
    return {
        "provider": PROVIDER,
        "source": "wire",
        "result_id": result_id(line),
        "model_usage": model_usage,
        "usage": line.get("usage"),
        "total_cost_usd": line.get("total_cost_usd"),
        "interrupted": status == "interrupted",
    }


def call_receipt(thread: str, turn: str, message: Mapping[str, Any], request: str | None, at: Any) -> Receipt:
    """Return the file receipt of one model call (D1). ``at`` is the time of its first line."""
    payload = {
        "provider": PROVIDER,
        "source": "file",
        "call": message.get("id"),
        "model": message.get("model"),
        "usage": message.get("usage"),
        "at": at,
    }
    if request is not None:
        payload["request"] = request
    return Receipt(thread, turn, "usage", payload)


class Totals:
    """What each result of one process added to its running totals, per model.

    2.1.332 tells it (``model_usage_since_last_result``). Before, it is the difference of consecutive totals; the base
    is zero only for a process that began the conversation, else the first result tells no difference.
    """

    def __init__(self, *, fresh: bool) -> None:
        self._before: dict[str, Any] | None = {} if fresh else None

    def take(self, line: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the model usage of this result alone; None when it cannot be known. Every result must be given."""
        totals = line.get("modelUsage")
        before, self._before = self._before, totals if isinstance(totals, dict) else None
        told = line.get("model_usage_since_last_result")
        if isinstance(told, dict):
            return told
        if before is None or self._before is None or not before.keys() <= self._before.keys():
            return None
        steps: dict[str, Any] = {}
        for model, total in self._before.items():
            step = _step(member(before, model), total)
            if step is None:
                return None
            if any(step.get(name) for name in _SUMS):
                steps[model] = step
        return steps


def _step(before: Mapping[str, Any], total: Any) -> dict[str, Any] | None:
    if not isinstance(total, dict):
        return None
    step = dict(total)
    for name in _SUMS:
        value, base = total.get(name), before.get(name, 0)
        if value is None:
            continue
        if not _number(value) or not _number(base) or value < base:
            return None
        # Far below a price's precision, so that 0.30 - 0.10 is 0.20.
        step[name] = round(value - base, 12)
    return step


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
