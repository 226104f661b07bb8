"""The history record of one input and of an orphan group (3.16, 3.15, R16.9 to R16.11)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.test_usage_cases import case_b
from tests.unit.test_usage_recorder import MANIFEST, TERMINAL
from tests.unit.usage_cases import (
    ARTIFACT,
    Rows,
    attempt_finished,
    attempt_started,
    case_a,
    codex,
    observed_session,
    recorded,
)
from turnlog.history import (
    CaptureFacts,
    WorkNames,
    build_input_history,
    orphan_history,
    status_label,
    total_tokens,
    work_label,
)
from turnlog.model import InputHistory, ProviderRecord, Session, Usage
from turnlog.usage import reduce_usage

SESSION = Session(
    id="conversation",
    title="Retained",
    title_source="human",
    kind="conversation",
    interactive=True,
    created_at=1,
    completed_at=None,
    ready_summary=None,
    cwd="/fixture",
    repo="/repo",
    skill="build",
    provider="codex",
    model="model",
    task_id=None,
    wave_id=None,
    flow_session_id=None,
    work_source=None,
    bound_at=None,
    primary_scope=None,
    artifact_key=ARTIFACT,
    captured=1,
)
CAPTURE = CaptureFacts(
    seq=1,
    artifact_key=ARTIFACT,
    observed_at=1,
    current=True,
    caller_artifact_key="caller",
    task_id="task",
    wave_id="wave",
    work_source="declared",
)
NAMES = WorkNames(task_identifier="PROOF-1", wave_name="proof")


def built(rows: Rows, capture: CaptureFacts = CAPTURE) -> InputHistory:
    return build_input_history(SESSION, capture, rows, reduce_usage(rows), NAMES)


def test_input_without_evidence() -> None:
    assert built(Rows()) == InputHistory(
        session_id="conversation",
        captured=1,
        artifact_key=ARTIFACT,
        caller_artifact_key="caller",
        task_pr_id=None,
        repo="/repo",
        worktree="/fixture",
        task_id="task",
        wave_id="wave",
        task_identifier="PROOF-1",
        work_source="declared",
        wave_name="proof",
        skill="build",
        observed_at=1,
        first_provider_attempt_at=None,
        recorded_outcome=None,
        recorded_at=None,
        providers=(),
        usage=Usage(),
        evidence_gaps=1,
        harness="codex",
        model="model",
        surface="interactive",
    )


def test_replaced_input_says_nothing_of_the_present() -> None:
    history = built(Rows(), msgspec.structs.replace(CAPTURE, current=False))
    assert (history.harness, history.surface) == ("unknown", "unknown")
    assert (history.repo, history.worktree, history.skill, history.model) == ("/repo", None, None, None)
    told = msgspec.structs.replace(CAPTURE, current=False, provider="codex", cwd="/old", model="m", skill="s")
    history = built(Rows(), told)
    assert (history.harness, history.worktree, history.model, history.skill) == ("codex", "/old", "m", "s")


def test_headless_session_without_provider() -> None:
    session = msgspec.structs.replace(SESSION, interactive=False, provider=None)
    history = build_input_history(session, CAPTURE, [], reduce_usage([]))
    assert (history.surface, history.harness, history.task_identifier) == ("headless", "unknown", None)


def test_seed_manifest_and_first_attempt() -> None:
    rows = Rows(99)
    rows.observe("manifest.json", MANIFEST, observed_at=1)
    for number in (1, 0):
        rows.line(attempt_started(f"attempt-{number}"), ordinal=number, at=10_000 + number * 10_000)
    history = built(rows, msgspec.structs.replace(CAPTURE, current=False))
    assert (history.task_pr_id, history.observed_at, history.first_provider_attempt_at) == ("pr", 1, 10_000)
    assert (history.harness, history.surface, history.worktree, history.repo) == ("codex", "headless", "/fixture", None)
    assert (history.usage.gaps, history.evidence_gaps) == (0, 0)


def test_earlier_start_is_the_first_attempt() -> None:
    rows = Rows(500)
    rows.seen(attempt_started())
    rows.start()
    assert built(rows).first_provider_attempt_at == 501


def test_attribution_is_the_manifest_rows() -> None:
    rows = Rows()
    rows.observe("manifest.json", {"broken": True}, task_id="other", observed_at=42)
    history = built(rows)
    assert (history.task_id, history.wave_id, history.observed_at) == ("other", None, 42)
    assert (history.harness, history.evidence_gaps) == ("codex", 2)
    rows = Rows()
    rows.observe("manifest.json", MANIFEST)
    assert (built(rows).task_id, built(rows).wave_id) == ("task", "wave")


def test_recorded_outcome_is_the_terminals_alone() -> None:
    rows = case_a()
    assert built(rows).recorded_outcome is None
    rows.observe("terminal.json", TERMINAL)
    history = built(rows)
    assert (history.recorded_outcome, history.recorded_at) == ("failed", 2000)
    assert history.providers[0].outcome == "completed"


def test_native_turn_record() -> None:
    rows = Rows(10)
    rows.start("turn", exec_id="exec", task_id="t", wave_id="w")
    rows.usage(codex((12, 3, 2, 1), (12, 3, 2, 1)))
    rows.usage({"total": None})
    rows.done(status="failed")
    rows.start("running")
    first, second = built(rows).providers
    assert first == ProviderRecord(
        kind="native_turn",
        thread="thread",
        turn="turn",
        start_seq=10,
        completion_seq=13,
        exec_id="exec",
        task_id="t",
        wave_id="w",
        started_at=10,
        completed_at=13,
        outcome="failed",
        usage=first.usage,
    )
    assert (first.usage.input_tokens, first.usage.gaps) == (10, 1)
    assert (second.turn, second.completion_seq, second.outcome, second.usage) == ("running", None, None, Usage())


def test_attempt_does_not_repeat_a_matched_turn() -> None:
    rows = case_b()
    rows.line(attempt_started(), at=9000)
    rows.line(attempt_finished(outcome="completed"), at=9500)
    turn, attempt = built(rows).providers
    assert (turn.kind, turn.usage.input_tokens, turn.usage.cost_usd) == ("native_turn", 18, 0.2)
    assert attempt == ProviderRecord(
        kind="recorded_attempt",
        attempt_key="attempt",
        task_id="task",
        wave_id="wave",
        started_at=9000,
        completed_at=9500,
        outcome="completed",
        usage=Usage(),
    )


def test_attempt_shows_streams_of_no_native_turn() -> None:
    rows = Rows()
    rows.seen(observed_session(), recorded(input_tokens=10), recorded("nameless", attempt="", input_tokens=1))
    history = built(rows)
    (attempt,) = history.providers
    assert (attempt.attempt_key, attempt.usage.input_tokens, history.usage.input_tokens) == ("attempt", 10, 11)


def test_records_are_sorted_by_time_with_unknown_first() -> None:
    rows = Rows()
    rows.start("late", observed_at=300)
    rows.done("only-completed")
    rows.usage(codex((1, 1, 0, 0), (1, 1, 0, 0)), "neither")
    rows.start("early", observed_at=200)
    rows[1] = msgspec.structs.replace(rows[1], observed_at=250)
    assert [record.turn for record in built(rows).providers] == ["neither", "early", "only-completed", "late"]


def test_completion_without_a_readable_status() -> None:
    rows = Rows()
    rows.start()
    rows.done(status=5)  # type: ignore[arg-type]
    (record,) = built(rows).providers
    assert (record.completion_seq, record.outcome) == (2, None)


def orphans() -> Rows:
    rows = Rows(7)
    rows.usage(codex((12, 3, 0, 0), (12, 3, 0, 0)), "recent")
    rows.done("recent")
    return rows


def test_orphan_group() -> None:
    rows = orphans()
    history = orphan_history(SESSION, rows, reduce_usage(rows))
    assert (history.captured, history.artifact_key, history.task_id, history.wave_id) == (None, None, None, None)
    assert (history.recorded_outcome, history.observed_at, history.first_provider_attempt_at) == (None, 7, None)
    (record,) = history.providers
    assert (record.kind, record.turn, record.start_seq, record.completion_seq) == ("native_turn", "recent", None, 8)
    assert (record.exec_id, record.task_id, record.started_at, record.outcome) == (None, None, None, "completed")
    assert (history.usage.input_tokens, history.usage.streams, history.usage.final_streams) == (12, 1, 0)
    assert (history.harness, history.surface) == ("unknown", "unknown")


def test_orphan_start_with_a_wave() -> None:
    rows = Rows()
    rows.start("owned", wave_id="wave", observed_at=110)
    history = orphan_history(SESSION, rows, reduce_usage(rows), NAMES)
    assert (history.wave_id, history.wave_name, history.first_provider_attempt_at) == ("wave", "proof", 110)
    assert len(history.providers) == 1
    assert work_label(history) == "wave/proof"


def record(kind: str, outcome: str | None, **work: Any) -> ProviderRecord:
    return ProviderRecord(kind=kind, outcome=outcome, usage=Usage(), **work)


def labelled(*records: ProviderRecord, **members: Any) -> InputHistory:
    return msgspec.structs.replace(built(Rows()), providers=records, **members)


def test_status_label() -> None:
    assert status_label(labelled()) == "unknown"
    assert status_label(labelled(recorded_outcome="failed")) == "failed (recorded)"
    history = labelled(
        record("recorded_attempt", "failed"), record("native_turn", None), record("native_turn", "completed")
    )
    assert status_label(history) == "failed (recorded) → unknown → completed"


def test_work_label() -> None:
    own = {"task_id": "task", "wave_id": "wave"}
    assert work_label(labelled(record("native_turn", None, **own))) == "task/PROOF-1"
    assert work_label(labelled(record("native_turn", None))) == "mixed (see providers)"
    assert work_label(labelled(task_identifier=None)) == "task/task"
    assert work_label(labelled(task_id=None)) == "wave/proof"
    assert work_label(labelled(task_id=None, wave_name=None)) == "wave/wave"
    assert work_label(labelled(task_id=None, wave_id=None)) == "-"


@pytest.mark.parametrize(
    ("fresh", "output", "expected"),
    [(18, 5, 23), (None, 5, None), (18, None, None), (0, 0, 0), (2**63 - 1, 1, None)],
)
def test_total_tokens(fresh: int | None, output: int | None, expected: int | None) -> None:
    assert total_tokens(Usage(input_tokens=fresh, output_tokens=output)) == expected
