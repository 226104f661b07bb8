"""The evidence envelope: one line of ``events.jsonl`` and the types its body may have (semantics 2.3.3).

Decoding is strict (an integer is neither a boolean nor 1.0) and never raises. Members this version does not know are
ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from turnlog.clock import from_rfc3339

Count = Annotated[int, msgspec.Meta(ge=0)]
"""A counter as receipts must spell it: an integer that is not negative."""


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Activity(_Body, frozen=True, kw_only=True):
    """Something the program did."""

    observation: Any


class AttemptStarted(_Body, frozen=True, kw_only=True):
    """A provider was tried."""

    provider: str
    attempt_key: str
    model: str | None = None
    account_id: str | None = None


class AttemptFinished(_Body, frozen=True, kw_only=True):
    """A try ended."""

    attempt_key: str
    outcome: str


class AccountSelected(_Body, frozen=True, kw_only=True):
    """A login profile was chosen for a try."""

    attempt_key: str
    account_id: str | None = None


class SessionObserved(_Body, frozen=True, kw_only=True):
    """The provider named its own conversation."""

    attempt_key: str
    provider_session_id: str


class Handoff(_Body, frozen=True, kw_only=True):
    """The conversation moved to another surface."""

    surface: str


class RecordedCounters(_Body, frozen=True, kw_only=True):
    """Counters of one recorder receipt; absent and null are both unknown."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    total_input_tokens: Count | None = None
    peak_input_tokens: Count | None = None
    context_window_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    cache_read_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    model: str | None = None
    cost_usd: float | None = None


class RecordedUsage(_Body, frozen=True, kw_only=True):
    """One receipt of a recorder stream (4.5)."""

    usage_stream_id: str
    provider: str
    attempt_key: str
    turn_key: str
    observation_seq: Count
    counter_kind: str
    start_known: bool
    final_receipt: bool
    usage: RecordedCounters
    model: str | None = None


class UserInput(_Body, frozen=True, kw_only=True):
    """What a person said."""

    op: str
    text: str


class Conversation(_Body, frozen=True, kw_only=True):
    """One conversation event (6.1.3)."""

    event: dict[str, Any]


class Text(_Body, frozen=True, kw_only=True):
    """Plain text of the program."""

    text: str


class ToolUse(_Body, frozen=True, kw_only=True):
    """A tool was used."""

    name: str
    summary: str


class Result(_Body, frozen=True, kw_only=True):
    """The program's own result line."""

    outcome: str
    duration_secs: float | None = None


class ProviderOutput(_Body, frozen=True, kw_only=True):
    """A raw line of the provider."""

    stream: str
    line: str


_TYPES: Final[dict[str, type[_Body]]] = {
    "activity": Activity,
    "provider_attempt_started": AttemptStarted,
    "provider_attempt_finished": AttemptFinished,
    "provider_account_selected": AccountSelected,
    "provider_session_observed": SessionObserved,
    "handoff": Handoff,
    "usage": RecordedUsage,
    "user_input": UserInput,
    "conversation": Conversation,
    "text": Text,
    "tool_use": ToolUse,
    "result": Result,
    "provider_output": ProviderOutput,
}


class _Head(msgspec.Struct, frozen=True):
    schema_version: int
    seq: Count
    observed_at: str
    type: str


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """One decoded line of ``events.jsonl``.

    ``row`` is the ledger seq, ``seq`` the recorder's own number, ``at`` unix milliseconds. ``body`` is None when this
    version does not know the type.
    """

    row: int
    schema: int
    seq: int
    at: int
    body: _Body | None


def decode_envelope(row: int, evidence: Any) -> Envelope | None:
    """Decode the evidence of one line; ``row`` is its ledger seq. None when it is not an envelope."""
    try:
        head = msgspec.convert(evidence, _Head)
        kind = _TYPES.get(head.type)
        body = None if kind is None else msgspec.convert(evidence, kind)
    except msgspec.ValidationError:
        return None
    at = from_rfc3339(head.observed_at)
    if at is None:
        return None
    return Envelope(row=row, schema=head.schema_version, seq=head.seq, at=at, body=body)
