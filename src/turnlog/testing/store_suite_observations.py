"""Suite: observations of an input and their times (semantics 3.4, 3.6, 3.8, 3.14, D21)."""

from __future__ import annotations

import itertools

import pytest

from turnlog import ConflictError, InvalidError, Ledger, MissingError, Observation, Session
from turnlog.testing.store_suite_base import (
    INPUT,
    REPLACEMENT,
    THREAD,
    TURN,
    StoreSetup,
    StoreTests,
    attempt_started,
    envelope,
    fixture_session,
    manifest,
    retain,
    terminal,
)


class TestObservations(StoreTests):
    """They never settle anything."""

    # --- 3.4

    def test_an_observation_belongs_to_its_input(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """R4.1."""
        seq = retain(ledger, "events.jsonl:0", {"x": 1}, at=77)
        rows = suite.raw_sql(
            "SELECT seq, kind, receipt_key, observed_at, captured_event, provider_thread, provider_turn"
            " FROM session_events WHERE kind = 'observed'"
        )
        assert list(rows) == [(seq, "observed", f"{INPUT}:events.jsonl:0", 77, conversation.captured, None, None)]
        event = ledger.history("conversation")[-1]
        assert event.payload == {"input_id": INPUT, "source": "events.jsonl:0", "evidence": {"x": 1}}
        assert event.observed_at == 77

    def test_unknown_inputs_and_wrong_owners(self, ledger: Ledger, conversation: Session) -> None:
        """R4.2."""
        fixture_session(ledger, "other", REPLACEMENT)
        with pytest.raises(MissingError):
            retain(ledger, "note", {}, key="00000000000000000000000000000009")
        with pytest.raises(ConflictError):
            retain(ledger, "note", {}, key=REPLACEMENT)
        with pytest.raises(MissingError):
            retain(ledger, "note", {}, session_id="nobody")
        assert len(ledger.history("conversation")) == 1

    def test_the_same_again_changes_nothing(self, ledger: Ledger, conversation: Session) -> None:
        """R4.3: also when time, task and wave differ."""
        seq = retain(ledger, "note", {"x": 1})
        before = ledger.history("conversation")
        assert retain(ledger, "note", {"x": 1}, at=99, task_id="t", wave_id="w") == seq
        assert ledger.history("conversation") == before
        with pytest.raises(ConflictError) as caught:
            retain(ledger, "note", {"x": 2})
        assert INPUT in caught.value.message
        assert "note" in caught.value.message
        assert ledger.history("conversation") == before

    def test_late_observations_stay_with_the_old_input(self, ledger: Ledger, conversation: Session) -> None:
        """R4.5, R4.6, D21: stored as given, no foreign keys."""
        ledger.replace_input("conversation", conversation.captured, artifact_key=REPLACEMENT)
        retain(ledger, "note", {"x": 1}, task_id="no such task", wave_id="no such wave")
        [row] = ledger.input_summary(INPUT)
        assert (row.task_id, row.wave_id) == ("no such task", "no such wave")
        assert ledger.input_summary(REPLACEMENT) == []

    def test_an_observation_needs_a_source_and_json(self, ledger: Ledger, conversation: Session) -> None:
        """Nothing is written."""
        with pytest.raises(InvalidError):
            retain(ledger, "", {})
        with pytest.raises(InvalidError):
            retain(ledger, "note", float("nan"))
        assert len(ledger.history("conversation")) == 1

    def test_observations_settle_nothing(self, ledger: Ledger, conversation: Session) -> None:
        """A recorded end of the command is no native completion."""
        ledger.record("conversation", THREAD, TURN, "started", {})
        retain(ledger, "terminal.json", terminal(9_000))
        summary = ledger.session_summary("conversation")
        assert summary is not None
        assert summary.latest_turn == "running"
        assert summary.session.completed_at is None

    @pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
    def test_order_is_by_ordinal_then_seq(self, ledger: Ledger, conversation: Session, order: tuple[int, ...]) -> None:
        """R4.4: 10 sorts after 9."""
        ordinals = (2, 9, 10)
        for each in order:
            retain(ledger, f"events.jsonl:{ordinals[each]}", {"n": ordinals[each]})
        assert [event["n"] for event in ledger.input_events(INPUT)] == list(ordinals)

    # --- 3.6

    def test_times_follow_the_input_order_and_skip_the_untimed(self, ledger: Ledger, conversation: Session) -> None:
        """R6.1, the seed case in milliseconds: the fraction is kept."""
        for number, evidence in (
            (2, {"observed_at": "2026-10-01T00:20:00.5Z", "type": "usage"}),
            (0, {"observed_at": "2026-10-01T00:00:00Z", "type": "user_input"}),
            (1, {"unparsed": "partial historical event"}),
        ):
            retain(ledger, f"events.jsonl:{number}", evidence)
        assert ledger.input_event_times(INPUT) == [1_790_812_800_000, 1_790_814_000_500]
        assert ledger.input_event_times(REPLACEMENT) == []

    @pytest.mark.parametrize("at", [None, 5, "yesterday", "2026-10-01", "2026-10-01T00:00:00", "2026-13-01T00:00:00Z"])
    def test_what_is_no_time_is_skipped(self, ledger: Ledger, conversation: Session, at: object) -> None:
        """R6.1: a time without zone is none."""
        retain(ledger, "events.jsonl:0", {"observed_at": at})
        retain(ledger, "events.jsonl:1", {"observed_at": "1970-01-01T01:00:00.001+01:00"})
        assert ledger.input_event_times(INPUT) == [1]

    # --- 3.8

    def test_first_attempt_follows_the_input_order_after_import(self, ledger: Ledger, conversation: Session) -> None:
        """The seed case: attempts imported in order 1, 0."""
        assert ledger.input_history(INPUT).first_provider_attempt_at is None
        step = {"kind": "step", "task_pr_id": "pr", "invocation_id": "retained", "flow": "feature", "step": "review"}
        retain(ledger, "manifest.json", manifest(flow=step))
        for number in (1, 0):
            event = envelope(number, 10_000 + number * 10_000, **attempt_started(f"attempt-{number}"))
            retain(ledger, f"events.jsonl:{number}", event, at=100_000 + number * 1000)
        record = ledger.input_history(INPUT)
        assert (record.task_pr_id, record.observed_at, record.first_provider_attempt_at) == ("pr", 1, 10_000)
        assert (record.usage.gaps, record.usage.streams, record.usage.input_tokens) == (0, 0, None)

    def test_first_attempt_is_the_earlier_of_start_and_event(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """3.8."""
        suite.clock.now = 8_000
        ledger.record("conversation", THREAD, "later", "started", {})
        suite.clock.now = 7_000
        ledger.record("conversation", THREAD, TURN, "started", {})
        retain(ledger, "events.jsonl:0", envelope(0, 7_500, **attempt_started()))
        assert ledger.input_history(INPUT).first_provider_attempt_at == 7_000
        other = fixture_session(ledger, "other", REPLACEMENT)
        ledger.retain(
            "other", Observation(other.artifact_key, "events.jsonl:0", 1, envelope(0, 7_500, **attempt_started()))
        )
        ledger.record("other", THREAD, TURN, "started", {})
        assert ledger.input_history(REPLACEMENT).first_provider_attempt_at == 7_000

    def test_an_attempt_with_another_schema_is_no_first_attempt(self, ledger: Ledger, conversation: Session) -> None:
        """3.14, case P."""
        retain(ledger, "events.jsonl:0", {**envelope(0, **attempt_started()), "schema_version": 999})
        record = ledger.input_history(INPUT)
        assert record.first_provider_attempt_at is None
        assert [gap.kind for gap in record.usage.gap_list] == ["schema"]

    # --- 3.16, 3.14

    def test_recorded_outcome_comes_from_the_terminal_only(self, ledger: Ledger, conversation: Session) -> None:
        """R16.2."""
        ledger.record("conversation", THREAD, TURN, "started", {})
        ledger.record("conversation", THREAD, TURN, "completed", {"status": "failed"})
        record = ledger.input_history(INPUT)
        assert (record.recorded_outcome, record.recorded_at) == (None, None)
        retain(ledger, "terminal.json", terminal(9_000))
        record = ledger.input_history(INPUT)
        assert (record.recorded_outcome, record.recorded_at) == ("completed", 9_000)
        assert [each.outcome for each in record.providers] == ["failed"]

    def test_facts_come_from_the_manifest_else_from_what_was_captured(
        self, ledger: Ledger, conversation: Session
    ) -> None:
        """R16.1, R16.8: a later input's facts are never an earlier one's."""
        record = ledger.input_history(INPUT)
        assert (record.harness, record.surface, record.worktree) == ("unknown", "interactive", "/fixture")
        assert record.evidence_gaps == 1
        replaced = ledger.replace_input("conversation", conversation.captured, artifact_key=REPLACEMENT, model="m")
        old = ledger.input_history(INPUT)
        assert (old.harness, old.surface, old.worktree, old.model) == ("unknown", "unknown", "/fixture", None)
        assert ledger.input_history("conversation").captured == replaced.captured
        assert ledger.input_history("conversation").model == "m"
        retain(ledger, "manifest.json", manifest(cwd="/elsewhere", skill="s", repo="/r"), at=5)
        record = ledger.input_history(INPUT)
        assert (record.harness, record.surface, record.worktree, record.skill, record.repo, record.observed_at) == (
            "codex",
            "headless",
            "/elsewhere",
            "s",
            "/r",
            5,
        )
        assert record.evidence_gaps == 0

    def test_an_undecodable_manifest_is_a_gap(self, ledger: Ledger, conversation: Session) -> None:
        """3.14."""
        retain(ledger, "manifest.json", {**manifest(), "schema_version": 2}, at=5)
        record = ledger.input_history(INPUT)
        assert (record.harness, record.observed_at) == ("unknown", 5)
        assert record.evidence_gaps == 2  # undecodable, and absent

    def test_providers_are_turns_and_attempts_by_time(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """R16.3 to R16.7."""
        suite.clock.now = 6_000
        start = ledger.record("conversation", THREAD, TURN, "started", {})
        end = ledger.record("conversation", THREAD, TURN, "completed", {"status": "interrupted"})
        retain(ledger, "events.jsonl:0", envelope(0, 5_000, **attempt_started("attempt-1")))
        finished = {"type": "provider_attempt_finished", "attempt_key": "attempt-1", "outcome": "failed"}
        retain(ledger, "events.jsonl:1", envelope(1, 5_500, **finished))
        attempt, turn = ledger.input_history(INPUT).providers
        assert (attempt.kind, attempt.attempt_key, attempt.started_at, attempt.completed_at, attempt.outcome) == (
            "recorded_attempt",
            "attempt-1",
            5_000,
            5_500,
            "failed",
        )
        assert (turn.kind, turn.thread, turn.turn, turn.start_seq, turn.completion_seq, turn.outcome) == (
            "native_turn",
            THREAD,
            TURN,
            start,
            end,
            "interrupted",
        )

    def test_selecting_an_input(self, ledger: Ledger, conversation: Session) -> None:
        """R15.11: session id, key, unique prefix with or without ``run_``; ambiguous is an error."""
        fixture_session(ledger, "other", "run_00000000000000000000000000000002")
        fixture_session(ledger, "plain", "abcdef00000000000000000000000000")
        for selector, key in (
            ("conversation", INPUT),
            (INPUT, INPUT),
            (INPUT.removeprefix("run_"), INPUT),
            ("abc", "abcdef00000000000000000000000000"),
        ):
            assert ledger.input_history(selector).artifact_key == key
        for selector in ("run_", "0000", "run_0000"):
            with pytest.raises(InvalidError):
                ledger.input_history(selector)
        for selector in ("", "nobody", "abd", "%", "run_0000000000000000000000000000000_"):
            with pytest.raises(MissingError):
                ledger.input_history(selector)
