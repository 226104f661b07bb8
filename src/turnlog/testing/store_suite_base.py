"""What the suite needs from a backend's author, and the words its tests share."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from turnlog import Driver, Ledger, Observation, Session, Usage, open_ledger
from turnlog.clock import to_rfc3339
from turnlog.testing.clock import FakeClock

INPUT = "run_00000000000000000000000000000001"
"""Artifact key of the fixture conversation's first input."""
REPLACEMENT = "00000000000000000000000000000002"
THREAD = "thread"
TURN = "turn"


class StoreSetup(abc.ABC):
    """One fresh, empty ledger. Subclass it for a backend; see ``turnlog.testing.store_suite``."""

    def __init__(self) -> None:
        self.clock = FakeClock()

    @abc.abstractmethod
    def url(self) -> str:
        """Return the URL of the ledger; always the same for one setup."""

    @abc.abstractmethod
    def raw_sql(self, statement: str, params: Mapping[str, Any] = {}) -> Sequence[tuple[Any, ...]]:
        """Run one statement beside the ledger (another connection), commit it and return its rows.

        Parameters are named ``:like_this`` in the statement. May raise what the backend's client raises.
        """

    @abc.abstractmethod
    def impatient(self) -> Ledger:
        """Open the ledger with waits for locks of some ten milliseconds instead of seconds."""

    def open(self, *, read_only: bool = False) -> Ledger:
        """Open another handle on the ledger."""
        return open_ledger(self.url(), read_only=read_only, now=self.clock)


class StoreTests:
    """Base of the suite's classes."""

    @pytest.fixture
    def ledger(self, suite: StoreSetup) -> Iterator[Ledger]:
        """One open ledger."""
        with suite.open() as ledger:
            yield ledger

    @pytest.fixture
    def conversation(self, ledger: Ledger) -> Session:
        """The conversation of semantics 2.7."""
        return fixture_session(ledger)


def fixture_session(ledger: Ledger, id: str = "conversation", artifact_key: str | None = INPUT) -> Session:
    """Create a conversation as semantics 2.7 does."""
    return ledger.create_session(
        id=id,
        artifact_key=artifact_key,
        title="Retained",
        title_source="human",
        cwd="/fixture",
        created_at=1,
    )


def add_execs(suite: StoreSetup, *ids: str) -> None:
    """Insert processes with the fewest columns (freedom 1)."""
    for each in ids:
        suite.raw_sql("INSERT INTO execs (id, trace_id, started_at) VALUES (:id, 'fixture', 1)", {"id": each})


def driven(suite: StoreSetup, ledger: Ledger, exec_id: str = "first", session_id: str = "conversation") -> Driver:
    """Claim a never-claimed conversation for a new exec."""
    add_execs(suite, exec_id)
    return ledger.claim_driver(session_id, None, exec_id, replace_engine=True)


def retain(
    ledger: Ledger,
    source: str,
    evidence: Any,
    *,
    at: int = 1,
    key: str = INPUT,
    session_id: str = "conversation",
    task_id: str | None = None,
    wave_id: str | None = None,
) -> int:
    """Keep an observation on an input."""
    return ledger.retain(
        session_id,
        Observation(
            artifact_key=key, source=source, observed_at=at, payload=evidence, task_id=task_id, wave_id=wave_id
        ),
    )


def envelope(number: int, at: int = 5_000, **members: Any) -> dict[str, Any]:
    """One line of ``events.jsonl``; ``at`` is unix milliseconds."""
    return {"schema_version": 1, "seq": number, "observed_at": to_rfc3339(at), **members}


def lines(ledger: Ledger, *events: dict[str, Any], first: int = 0, key: str = INPUT) -> None:
    """Retain recorder events with rising ordinals."""
    for number, event in enumerate(events, start=first):
        retain(ledger, f"events.jsonl:{number}", envelope(number, **event), key=key)


def manifest(key: str = INPUT, **members: Any) -> dict[str, Any]:
    """The smallest manifest of semantics 2.3.4."""
    return {
        "schema_version": 1,
        "artifact_key": key,
        "created_at": "1970-01-01T00:00:01Z",
        "harness": "codex",
        "surface": "headless",
        "cwd": "/fixture",
        "subjects": [],
        "host": "fixture",
        **members,
    }


def terminal(at: int, outcome: str = "completed") -> dict[str, Any]:
    """How a launched command ended; ``at`` is unix milliseconds."""
    return {"schema_version": 1, "outcome": outcome, "ended_at": to_rfc3339(at)}


def counters(*values: int) -> dict[str, int]:
    """Codex counters: input, output, cached, reasoning[, cache write]."""
    names = (
        "inputTokens",
        "outputTokens",
        "cachedInputTokens",
        "reasoningOutputTokens",
        "cacheWriteInputTokens",
    )
    return dict(zip(names, values, strict=False))


def codex(total: tuple[int, ...], last: tuple[int, ...], **members: Any) -> dict[str, Any]:
    """A Codex usage payload."""
    return {"total": counters(*total), "last": counters(*last), **members}


def opencode(message: str, fresh: int, output: int = 5, **info: Any) -> dict[str, Any]:
    """An OpenCode usage payload."""
    tokens = {"input": fresh, "output": output, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    return {"provider": "opencode", "message": {"id": message, "tokens": tokens, **info}}


def session_observed(thread: str = THREAD, attempt: str = "attempt") -> dict[str, Any]:
    """The provider named its conversation."""
    return {"type": "provider_session_observed", "attempt_key": attempt, "provider_session_id": thread}


def attempt_started(attempt: str = "attempt", provider: str = "codex") -> dict[str, Any]:
    """A provider was tried."""
    return {"type": "provider_attempt_started", "attempt_key": attempt, "provider": provider, "model": None}


def attempt_finished(attempt: str = "attempt", outcome: str = "failed") -> dict[str, Any]:
    """A try ended."""
    return {"type": "provider_attempt_finished", "attempt_key": attempt, "outcome": outcome}


def recorded_usage(
    stream: str = "recorder",
    number: int = 1,
    *,
    provider: str = "codex",
    turn: str = TURN,
    attempt: str = "attempt",
    final: bool = False,
    **usage: Any,
) -> dict[str, Any]:
    """A receipt of a recorder stream; the keyword arguments are its counters."""
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


def gap_kinds(usage: Usage) -> list[str]:
    """Return the kinds of the gaps, sorted; their number must be the gap count (D6)."""
    assert usage.gaps == len(usage.gap_list)
    return sorted(gap.kind for gap in usage.gap_list)


def turn_rows() -> list[tuple[str, str, str, Any]]:
    """Return one whole turn."""
    return [
        (THREAD, TURN, "started", {}),
        (THREAD, TURN, "usage", {"n": 1}),
        (THREAD, TURN, "completed", {"status": "completed"}),
        (THREAD, TURN, "output", {"text": "done"}),
    ]


def work(ledger: Ledger) -> tuple[str, str]:
    """Create the wave, project and task of the seeds; return (task id, wave id)."""
    wave = ledger.create_wave("proof", repo="/repo")
    project = ledger.create_project(wave.id, external_id="project-proof", slug="slug", id="project")
    task = ledger.create_task(project.id, external_id="issue-proof", identifier="PROOF-1")
    return task.id, wave.id


def insert_observed(suite: StoreSetup, session: Session, key: str, text: str) -> None:
    """Insert an observation as freedom 5 does."""
    suite.raw_sql(
        "INSERT INTO session_events (session_id, kind, receipt_key, observed_at, payload, captured_event)"
        " VALUES (:session, 'observed', :key, 10, :payload, :capture)",
        {"session": session.id, "key": key, "payload": text, "capture": session.captured},
    )
