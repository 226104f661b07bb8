"""Rows of one input, built as a ledger would hold them: helpers for the tests of usage/ and history/."""

from __future__ import annotations

from typing import Any

from turnlog.clock import to_rfc3339
from turnlog.model import Event, EventKind, Usage

THREAD, TURN = "thread", "turn"
ARTIFACT = "0" * 32


def counters(values: tuple[int, ...]) -> dict[str, int]:
    """Codex counters (input, output, cached, reasoning[, cache write])."""
    names = (
        "inputTokens",
        "outputTokens",
        "cachedInputTokens",
        "reasoningOutputTokens",
        "cacheWriteInputTokens",
    )
    return dict(zip(names, values, strict=False))


def codex(total: tuple[int, ...], last: tuple[int, ...], **members: Any) -> dict[str, Any]:
    return {"total": counters(total), "last": counters(last), **members}


def tokens(fresh: int, output: int, **members: Any) -> dict[str, Any]:
    return {"input": fresh, "output": output, "reasoning": 0, "cache": {"read": 0, "write": 0}, **members}


def opencode(identity: str | None, counts: dict[str, Any], version: str | None = None, **info: Any) -> dict[str, Any]:
    message = {"tokens": counts, **info}
    if identity is not None:
        message["id"] = identity
    payload: dict[str, Any] = {"provider": "opencode", "message": message}
    return payload if version is None else {**payload, "session_version": version}


def claude_usage(fresh: int, write: int, read: int, output: int, hour: int | None = None) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "input_tokens": fresh,
        "cache_creation_input_tokens": write,
        "cache_read_input_tokens": read,
        "output_tokens": output,
    }
    return usage if hour is None else {**usage, "cache_creation": {"ephemeral_1h_input_tokens": hour}}


def claude_wire(usage: dict[str, Any] | None, cost: float | None, **members: Any) -> dict[str, Any]:
    return {
        "provider": "claude",
        "source": "wire",
        "result_id": "result",
        "model_usage": None,
        "usage": usage,
        "total_cost_usd": cost,
        "interrupted": False,
        **members,
    }


def file_call(provider: str, call: str | None, usage: Any, **members: Any) -> dict[str, Any]:
    return {"provider": provider, "source": "file", "call": call, "model": "m", "usage": usage, **members}


def recorded(
    stream: str = "recorder",
    number: int = 1,
    *,
    provider: str = "codex",
    turn: str = TURN,
    attempt: str = "attempt",
    final: bool = False,
    **usage: Any,
) -> dict[str, Any]:
    """A recorder usage event; keyword arguments are its counters."""
    return {
        "type": "usage",
        "provider": provider,
        "model": None,
        "attempt_key": attempt,
        "turn_key": turn,
        "usage_stream_id": stream,
        "observation_seq": number,
        "counter_kind": "cumulative",
        "start_known": True,
        "final_receipt": final,
        "usage": usage,
    }


def observed_session(thread: str = THREAD, attempt: str = "attempt") -> dict[str, Any]:
    return {"type": "provider_session_observed", "attempt_key": attempt, "provider_session_id": thread}


def attempt_started(attempt: str = "attempt", provider: str = "codex") -> dict[str, Any]:
    return {"type": "provider_attempt_started", "attempt_key": attempt, "provider": provider, "model": None}


def attempt_finished(attempt: str = "attempt", outcome: str = "failed") -> dict[str, Any]:
    return {"type": "provider_attempt_finished", "attempt_key": attempt, "outcome": outcome}


class Rows(list[Event]):
    """The rows of one input; every method appends one with the next seq."""

    def __init__(self, first: int = 1) -> None:
        super().__init__()
        self._seq = first
        self._ordinal = 0

    def add(self, kind: EventKind, payload: Any, thread: str | None, turn: str | None, **members: Any) -> Event:
        at = members.pop("observed_at", self._seq)
        event = Event(
            seq=self._seq,
            session_id="conversation",
            thread=thread,
            turn=turn,
            kind=kind,
            provider_generation=None,
            exec_id=members.pop("exec_id", None),
            task_id=members.pop("task_id", None),
            wave_id=members.pop("wave_id", None),
            observed_at=at,
            payload=payload,
        )
        self._seq += 1
        self.append(event)
        return event

    def start(self, turn: str = TURN, thread: str = THREAD, **members: Any) -> Event:
        return self.add(EventKind.STARTED, members.pop("payload", {}), thread, turn, **members)

    def usage(self, payload: Any, turn: str = TURN, thread: str = THREAD) -> Event:
        return self.add(EventKind.USAGE, payload, thread, turn)

    def done(self, turn: str = TURN, thread: str = THREAD, status: str = "completed") -> Event:
        return self.add(EventKind.COMPLETED, {"status": status}, thread, turn)

    def observe(self, source: str, evidence: Any, **members: Any) -> Event:
        payload = {"input_id": ARTIFACT, "source": source, "evidence": evidence}
        return self.add(EventKind.OBSERVED, payload, None, None, **members)

    def line(self, event: dict[str, Any], *, ordinal: int | None = None, at: int = 5000, schema: int = 1) -> Event:
        """One line of events.jsonl; ordinals and envelope numbers count up unless an ordinal is given."""
        number = self._ordinal if ordinal is None else ordinal
        self._ordinal = number + 1
        evidence = {"schema_version": schema, "seq": number, "observed_at": to_rfc3339(at), **event}
        return self.observe(f"events.jsonl:{number}", evidence)

    def seen(self, *events: dict[str, Any]) -> None:
        for event in events:
            self.line(event)


def kinds(usage: Usage) -> list[str]:
    assert usage.gaps == len(usage.gap_list)
    return sorted(gap.kind for gap in usage.gap_list)


def case_a(rows: Rows | None = None) -> Rows:
    """Seed case A: one complete Codex turn in two receipts."""
    made = Rows() if rows is None else rows
    made.start()
    made.usage(codex((12, 3, 2, 1), (12, 3, 2, 1)))
    made.usage(codex((20, 5, 2, 1), (8, 2, 2, 1)))
    made.add(EventKind.OUTPUT, {"text": "done"}, THREAD, TURN)
    made.done()
    return made
