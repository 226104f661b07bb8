"""Pure readings of one input's rows: its record, answer, provider identity and place in lists (semantics 3)."""

from turnlog.history.answer import NativeTurn, RecordedEvent, final_answer
from turnlog.history.identity import provider_session
from turnlog.history.inputs import (
    CaptureFacts,
    WorkNames,
    build_input_history,
    orphan_history,
    status_label,
    total_tokens,
    work_label,
)
from turnlog.history.window import Candidate, budget, in_window, ordered

__all__ = [
    "Candidate",
    "CaptureFacts",
    "NativeTurn",
    "RecordedEvent",
    "WorkNames",
    "budget",
    "build_input_history",
    "final_answer",
    "in_window",
    "ordered",
    "orphan_history",
    "provider_session",
    "status_label",
    "total_tokens",
    "work_label",
]
