"""The last words when the server is gone: evidence of 6.2.4, and no completion (H4)."""

from __future__ import annotations

from typing import Any

from turnlog.harness import Batch, ConversationEvent, HarnessConfig, Note
from turnlog.harness.opencode.decode import PROVIDER
from turnlog.harness.opencode.events import Narrator
from turnlog.harness.opencode.feed import Lost
from turnlog.harness.opencode.observer import Observer

CODE = "opencode_disconnected"


def farewell(lost: Lost, config: HarnessConfig, observer: Observer, narrator: Narrator) -> Batch:
    """Return the batch that ends an observation whose server is gone."""
    turn = max((name for name in observer.open_requests() if name in observer.narrated), default=None)
    evidence: dict[str, Any] = {
        "provider": PROVIDER,
        "endpoint_class": "harness_event_stream",
        "stream_started_at": lost.started_at,
        "stream_ended_at": lost.ended_at,
        "duration_ms": None if lost.started_at is None else lost.ended_at - lost.started_at,
        "terminal_error_class": lost.error_class,
    }
    if config.model is not None:
        evidence["model"] = config.model
    if lost.last_event is not None:
        evidence["last_event_type"] = lost.last_event
    if lost.message is not None:
        evidence["terminal_error_message"] = lost.message
    if turn is None:
        message = "the OpenCode server is gone; no turn was open"
    elif turn in narrator.spoke:
        message = "the OpenCode server is gone, mid-stream after partial output; the turn's outcome is unknown"
    else:
        message = "the OpenCode server is gone before any output; the turn's outcome is unknown"
    source = f"disconnect:{observer.thread}:{lost.ended_at}"
    return Batch(
        notes=(Note(source, observer.thread, turn, evidence),),
        events=(ConversationEvent("error", turn_id=turn, code=CODE, message=message, evidence=evidence),),
    )
