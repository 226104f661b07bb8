"""Frozen values: what the ledger holds and what it answers. Instants are unix milliseconds (UTC); None = unknown.

Values compare by value and hold tuples; those that carry parsed JSON are not hashable.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from turnlog.receipts import Observation

__all__ = [
    "NATIVE_KINDS",
    "Driver",
    "Event",
    "EventKind",
    "Exec",
    "FinalAnswer",
    "Gap",
    "InputHistory",
    "Observation",
    "Problem",
    "Project",
    "ProviderRecord",
    "ProviderSession",
    "Request",
    "Session",
    "SessionSummary",
    "Task",
    "Usage",
    "Wave",
]


class EventKind(StrEnum):
    """Kinds of ledger rows (semantics 2.3; ``requested`` is D3)."""

    STARTED = "started"
    USAGE = "usage"
    COMPLETED = "completed"
    OUTPUT = "output"
    OBSERVED = "observed"
    CAPTURED = "captured"
    REQUESTED = "requested"


NATIVE_KINDS = frozenset({EventKind.STARTED, EventKind.USAGE, EventKind.COMPLETED, EventKind.OUTPUT})
"""Receipts that a provider's own words ground."""


class _Value(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Session(_Value, frozen=True, kw_only=True):
    """One continuable conversation with an agent (2.2). ``captured`` is the seq of the current capture.

    ``home_id``: where it was begun; None = unknown.
    """

    id: str
    title: str
    title_source: str
    kind: str
    interactive: bool
    created_at: int
    completed_at: int | None
    ready_summary: str | None
    cwd: str
    repo: str | None
    skill: str | None
    provider: str | None
    model: str | None
    task_id: str | None
    wave_id: str | None
    flow_session_id: str | None
    work_source: str | None
    bound_at: int | None
    primary_scope: str | None
    artifact_key: str
    captured: int
    home_id: str | None = None


class Driver(_Value, frozen=True, kw_only=True):
    """The fencing token of a conversation: who may write now (3.9). Compared as a whole."""

    exec_id: str | None
    generation: int
    provider_generation: int
    provider_exec_id: str | None


class Exec(_Value, frozen=True, kw_only=True):
    """One operating-system process of turnlog (2.1). ``command`` is the argv as recorded, ``home_id`` where it ran."""

    id: str
    trace_id: str
    parent_id: str | None
    via_agent: bool | None
    command: str | None
    repo: str | None
    cwd: str | None
    started_at: int
    completed_at: int | None
    outcome: str | None
    exit_code: int | None
    signal: str | None
    error: str | None
    boot_id: str | None = None
    pid: int | None = None
    pid_started_at: int | None = None
    caller_session_id: str | None = None
    caller_provider_generation: int | None = None
    home_id: str | None = None


class Event(_Value, frozen=True, kw_only=True):
    """One ledger row as read (R5.2); ``payload`` is the parsed JSON value."""

    seq: int
    session_id: str
    thread: str | None
    turn: str | None
    kind: EventKind
    provider_generation: int | None
    exec_id: str | None
    task_id: str | None
    wave_id: str | None
    observed_at: int
    payload: Any


class Gap(_Value, frozen=True, kw_only=True):
    """One named reason why a total is only a lower bound (D6). ``seq`` is the ledger row, when one is to blame."""

    kind: str
    stream: str | None = None
    seq: int | None = None
    counter: str | None = None
    before: int | float | None = None
    after: int | float | None = None


class Usage(_Value, frozen=True, kw_only=True):
    """Totals over streams with their coverage (4.1, D15). None = nobody reported it; tokens are counts."""

    streams: int = 0
    final_streams: int = 0
    gaps: int = 0
    gap_list: tuple[Gap, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_input_tokens: int | None = None
    peak_input_tokens: int | None = None
    context_window_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    cost_usd: float | None = None


class ProviderRecord(_Value, frozen=True, kw_only=True):
    """What one provider turn or recorded attempt says about an input (R16.3)."""

    kind: str
    thread: str | None = None
    turn: str | None = None
    attempt_key: str | None = None
    start_seq: int | None = None
    completion_seq: int | None = None
    exec_id: str | None = None
    task_id: str | None = None
    wave_id: str | None = None
    started_at: int | None = None
    completed_at: int | None = None
    outcome: str | None = None
    usage: Usage


class InputHistory(_Value, frozen=True, kw_only=True):
    """The history record of one input or orphan group (3.16)."""

    session_id: str
    captured: int | None
    artifact_key: str | None
    caller_artifact_key: str | None
    task_pr_id: str | None
    repo: str | None
    worktree: str | None
    task_id: str | None
    wave_id: str | None
    task_identifier: str | None
    work_source: str | None
    wave_name: str | None
    skill: str | None
    observed_at: int
    first_provider_attempt_at: int | None
    recorded_outcome: str | None
    recorded_at: int | None
    providers: tuple[ProviderRecord, ...]
    usage: Usage
    evidence_gaps: int
    harness: str
    model: str | None
    surface: str


class ProviderSession(_Value, frozen=True, kw_only=True):
    """The provider's own id of the conversation, and which evidence says so (3.7).

    ``source`` is ``publication``, ``events`` or ``legacy``; ``gaps`` lists rows that could not be used (D8).
    """

    provider_session_id: str
    account_id: str | None
    source: str
    gaps: tuple[Gap, ...] = ()


class FinalAnswer(_Value, frozen=True, kw_only=True):
    """The final answer of an input (3.13, D7). ``turn`` names who answered; ``value`` is structured output."""

    text: str
    exact: bool
    turn: str | None
    value: Any = None
    gaps: tuple[Gap, ...] = ()


class SessionSummary(_Value, frozen=True, kw_only=True):
    """State of a conversation for lists (3.17)."""

    session: Session
    latest_turn: str | None
    driver_outcome: str | None
    membership: dict[str, Any] | None


class Problem(_Value, frozen=True, kw_only=True):
    """Something located that is wrong with stored or read data: data, not an exception."""

    kind: str
    where: str
    detail: str


class Request(_Value, frozen=True, kw_only=True):
    """A request to a running driver (D20).

    ``kind``: ``steer interrupt permission``; ``state``: ``queued sent accepted not_steerable uncertain refused``.
    """

    id: str
    session_id: str
    kind: str
    text: str | None
    by_exec: str | None
    state: str
    created_at: int
    settled_at: int | None = None
    detail: str | None = None


class Wave(_Value, frozen=True, kw_only=True):
    """A standing area of work (2.4); ``slug`` is its address, the names from the root joined by ``/``."""

    id: str
    name: str
    repo: str
    created_at: int
    parent_id: str | None
    retired_at: int | None
    slug: str


class Project(_Value, frozen=True, kw_only=True):
    """One planning project under a Wave (2.4)."""

    id: str
    wave_id: str
    external_id: str
    created_at: int
    slug: str | None
    name: str | None
    retired_at: int | None = None


class Task(_Value, frozen=True, kw_only=True):
    """One planning issue under a Project (2.4). ``worktree`` is the folder that it is worked on in."""

    id: str
    project_id: str
    external_id: str
    identifier: str
    title: str | None
    created_at: int
    started_at: int | None
    wave_id: str | None = None
    worktree: str | None = None
    retired_at: int | None = None
