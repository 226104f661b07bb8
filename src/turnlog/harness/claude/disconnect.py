"""The last words when Claude is gone: evidence of 6.2.4, and no completion (H4)."""

from __future__ import annotations

from typing import Any, Final

from turnlog.clock import now_ms
from turnlog.harness import Batch, ConversationEvent, HarnessConfig, Note
from turnlog.harness.claude.decode import PROVIDER
from turnlog.harness.claude.engine import Engine
from turnlog.harness.claude.observer import Observer

CODE: Final = "claude_disconnected"


def farewell(engine: Engine, config: HarnessConfig, observer: Observer) -> Batch:
    """Return the batch that ends an observation whose process is gone."""
    ended_at = now_ms()
    turn = observer.turns.shown() or next(iter(observer.turns.open_requests()), None)
    evidence: dict[str, Any] = {
        "provider": PROVIDER,
        "endpoint_class": "harness_stdio",
        "stream_started_at": engine.started_at,
        "stream_ended_at": ended_at,
        "duration_ms": ended_at - engine.started_at,
        "terminal_error_class": "stream_eof",
        "exit_code": engine.exit_code,
    }
    if config.model is not None:
        evidence["model"] = config.model
    if observer.last_line is not None:
        evidence["last_event_type"] = observer.last_line
    if engine.words:
        evidence["terminal_error_message"] = engine.words
    if turn is None:
        message = "Claude is gone; no turn was open"
    elif turn in observer.narrator.spoke:
        message = "Claude is gone, mid-stream after partial output; the turn's outcome is unknown"
    else:
        message = "Claude is gone before any output; the turn's outcome is unknown"
    source = f"disconnect:{observer.thread}:{ended_at}"
    return Batch(
        notes=(Note(source, observer.thread, turn, evidence),),
        events=(ConversationEvent("error", turn_id=turn, code=CODE, message=message, evidence=evidence),),
    )
