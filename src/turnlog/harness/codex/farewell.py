"""The last words when the engine is gone: evidence of 6.2.4, and no completion (H4)."""

from __future__ import annotations

from typing import Any, Final

from turnlog.harness import Batch, ConversationEvent, Note
from turnlog.harness.codex.connection import Ended
from turnlog.harness.codex.decode import PROVIDER
from turnlog.harness.codex.events import Narrator
from turnlog.harness.codex.strange import Strangers

CODE: Final = "codex_disconnected"


def farewell(
    ended: Ended,
    strangers: Strangers,
    narrator: Narrator,
    *,
    waiting: list[str],
    exit_code: int | None,
    last_words: str,
    model: str | None,
) -> Batch:
    """Return the batch that ends an observation. ``waiting`` are turns of ours without an end."""
    turn = waiting[-1] if waiting else None
    evidence: dict[str, Any] = {
        "provider": PROVIDER,
        "endpoint_class": "app_server_pipe",
        "stream_started_at": ended.started_at,
        "stream_ended_at": ended.ended_at,
        "duration_ms": ended.duration_ms,
        "last_event_seq": ended.last_seq,
        "terminal_error_class": ended.error_class,
    }
    optional = {
        "model": model,
        "last_event_type": ended.last_event,
        "terminal_error_message": ended.message or last_words or None,
        "exit_code": exit_code,
        "not_understood": dict(sorted(strangers.counts.items())) or None,
    }
    evidence |= {name: value for name, value in optional.items() if value is not None}
    if turn is None:
        message = "the Codex app-server is gone; no turn was open"
    elif turn in narrator.spoke:
        message = "the Codex app-server is gone, mid-stream after partial output; the turn's outcome is unknown"
    else:
        message = "the Codex app-server is gone before any output; the turn's outcome is unknown"
    source = f"disconnect:{strangers.thread}:{ended.ended_at}"
    return Batch(
        notes=(Note(source, strangers.thread, turn, evidence),),
        events=(ConversationEvent("error", turn_id=turn, code=CODE, message=message, evidence=evidence),),
    )
