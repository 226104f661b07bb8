"""Recorder evidence: streams from usage envelopes, and the attempts they belong to (4.3, 4.5, 3.8)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from turnlog.model import Gap
from turnlog.usage import gaps
from turnlog.usage.envelope import (
    AttemptFinished,
    AttemptStarted,
    Envelope,
    RecordedCounters,
    RecordedUsage,
    SessionObserved,
)
from turnlog.usage.streams import Stream, Tally


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One try at running a provider inside an input. Instants are unix milliseconds; ``thread`` is the provider's."""

    key: str
    provider: str | None = None
    model: str | None = None
    started_at: int | None = None
    completed_at: int | None = None
    outcome: str | None = None
    thread: str | None = None


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """What the recorder says: streams and attempts in order of first mention, and gaps that belong to no stream.

    ``mentions`` maps (provider, turn key) to the (stream id, attempt key) of its usage; ``threads`` maps an attempt to
    its provider thread.
    """

    streams: dict[str, Stream]
    attempts: tuple[Attempt, ...]
    mentions: dict[tuple[str, str], list[tuple[str, str]]]
    threads: dict[str, str]
    first_attempt_at: int | None
    gaps: tuple[Gap, ...]


def reduce_envelopes(envelopes: Iterable[Envelope]) -> Recorded:
    """Fold envelopes given in ordinal order (4.3). Never raises: what is out of order or unknown is a gap."""
    fold = _Fold()
    for envelope in envelopes:
        fold.envelope(envelope)
    streams = {}
    for key, tally in fold.tallies.items():
        thread = fold.threads.get(fold.attempt_of[key])
        streams[key] = msgspec.structs.replace(tally.stream(), thread=thread)
    return Recorded(
        streams=streams,
        attempts=tuple(
            msgspec.structs.replace(attempt, thread=fold.threads.get(key)) for key, attempt in fold.attempts.items()
        ),
        mentions=fold.mentions,
        threads=fold.threads,
        first_attempt_at=fold.first_attempt_at,
        gaps=tuple(fold.gaps),
    )


class _Fold:
    def __init__(self) -> None:
        self.tallies: dict[str, Tally] = {}
        self.attempt_of: dict[str, str] = {}
        self.highest: dict[str, int] = {}
        self.attempts: dict[str, Attempt] = {}
        self.threads: dict[str, str] = {}
        self.mentions: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self.first_attempt_at: int | None = None
        self.gaps: list[Gap] = []
        self._line: int | None = None

    def envelope(self, envelope: Envelope) -> None:
        if envelope.schema != 1:
            self.gaps.append(gaps.schema(envelope.row))
        if self._line is not None and envelope.seq <= self._line:
            self.gaps.append(gaps.order(envelope.row, before=self._line, after=envelope.seq))
        self._line = max(envelope.seq, self._line or 0)
        match envelope.body:
            case None:
                self.gaps.append(gaps.unknown_type(envelope.row))
            case AttemptStarted() as body:
                if self.first_attempt_at is None and envelope.schema == 1:
                    self.first_attempt_at = envelope.at
                self._attempt(body.attempt_key, provider=body.provider, model=body.model, started_at=envelope.at)
            case AttemptFinished() as body:
                self._attempt(body.attempt_key, completed_at=envelope.at, outcome=body.outcome)
            case SessionObserved() as body:
                self.threads[body.attempt_key] = body.provider_session_id
            case RecordedUsage() as body:
                self._usage(body, envelope)
            case _:
                pass

    def _attempt(self, key: str, **facts: str | int | None) -> None:
        if key:
            held = self.attempts.get(key) or Attempt(key=key)
            self.attempts[key] = msgspec.structs.replace(held, **facts)

    def _usage(self, body: RecordedUsage, envelope: Envelope) -> None:
        self._attempt(body.attempt_key)
        stream, row = body.usage_stream_id, envelope.row
        if body.counter_kind != "cumulative":
            self.gaps.append(gaps.counter_kind(row, stream))
            return
        tally = self.tallies.get(stream)
        if tally is None:
            tally = self.tallies[stream] = Tally(
                Stream(
                    id=stream,
                    provider=body.provider,
                    at=envelope.at,
                    turn=body.turn_key,
                    attempt_key=body.attempt_key,
                    source="recorder",
                )
            )
            self.attempt_of[stream] = body.attempt_key
        mention = (stream, body.attempt_key)
        mentions = self.mentions.setdefault((body.provider, body.turn_key), [])
        if mention not in mentions:
            mentions.append(mention)
        if not body.start_known:
            tally.start_unknown(row)
        highest = self.highest.get(stream)
        if highest is not None and body.observation_seq <= highest:
            tally.gaps.append(gaps.order(row, stream, before=highest, after=body.observation_seq))
        self.highest[stream] = max(body.observation_seq, highest or 0)
        tally.final = tally.final or body.final_receipt
        tally.model = body.usage.model or body.model or tally.model
        tally.observe(_counters(body.usage), row)
        tally.observe_cost(body.usage.cost_usd, row)


def _counters(usage: RecordedCounters) -> dict[str, int | None]:
    return {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "total_input": usage.total_input_tokens,
        "peak": usage.peak_input_tokens,
        "window": usage.context_window_tokens,
        "reasoning": usage.reasoning_tokens,
        "cache_read": usage.cache_read_tokens,
        "cache_write": usage.cache_write_tokens,
    }
