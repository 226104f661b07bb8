"""Suite: usage that a recorder wrote, alone and beside native receipts (semantics 4.6 K to N, P, T to W; D11, D18)."""

from __future__ import annotations

import pytest

from turnlog import Ledger, Session
from turnlog.testing.store_suite_base import (
    INPUT,
    StoreTests,
    attempt_finished,
    attempt_started,
    envelope,
    gap_kinds,
    lines,
    recorded_usage,
    retain,
    session_observed,
    terminal,
)
from turnlog.testing.store_suite_usage import A, coverage, sums, turn, two_messages


class TestRecorders(StoreTests):
    """Two witnesses of one turn are never added up."""

    def test_k_attempts_are_streams(self, ledger: Ledger, conversation: Session) -> None:
        """Case K, R16.5."""
        lines(
            ledger,
            attempt_started("attempt-1"),
            recorded_usage("one", attempt="attempt-1", input_tokens=10, output_tokens=4),
            attempt_finished("attempt-1"),
            attempt_started("attempt-2"),
            recorded_usage("two", attempt="attempt-2", input_tokens=12, output_tokens=5),
        )
        record = ledger.input_history(INPUT)
        assert (record.usage.input_tokens, record.usage.output_tokens) == (22, 9)
        assert coverage(record.usage) == (2, 0, 0)
        assert [(each.attempt_key, each.outcome, each.usage.input_tokens) for each in record.providers] == [
            ("attempt-1", "failed", 10),
            ("attempt-2", None, 12),
        ]

    def test_l_a_failed_attempt_then_success(self, ledger: Ledger, conversation: Session) -> None:
        """Case L."""
        lines(
            ledger,
            recorded_usage("one", 1, attempt="attempt-1", input_tokens=10),
            recorded_usage("one", 2, attempt="attempt-1", input_tokens=15, output_tokens=4),
            attempt_finished("attempt-1"),
            recorded_usage("two", 1, attempt="attempt-2", input_tokens=12, output_tokens=3),
            recorded_usage("two", 2, attempt="attempt-2", final=True, cost_usd=0.25),
        )
        retain(ledger, "terminal.json", terminal(9_000))
        record = ledger.input_history(INPUT)
        assert sums(record.usage) == (27, 7, 27)
        assert record.usage.cost_usd == 0.25
        assert coverage(record.usage) == (2, 1, 0)
        assert record.recorded_outcome == "completed"

    def test_m_absent_counters_are_not_inherited(self, ledger: Ledger, conversation: Session) -> None:
        """Case M with D17: the sum lacks an output."""
        lines(
            ledger,
            recorded_usage("one", 1, input_tokens=10),
            recorded_usage("one", 2, output_tokens=4),
            recorded_usage("two", 1, turn="later", input_tokens=3),
        )
        usage = ledger.input_history(INPUT).usage
        assert (usage.input_tokens, usage.output_tokens) == (13, 4)
        assert coverage(usage) == (2, 0, 1)
        assert gap_kinds(usage) == ["missing_counter"]

    def test_n_a_checkpoint_never_becomes_final(self, ledger: Ledger, conversation: Session) -> None:
        """Case N."""
        lines(ledger, recorded_usage(input_tokens=10, output_tokens=4), attempt_finished(outcome="completed"))
        retain(ledger, "terminal.json", terminal(9_000))
        assert coverage(ledger.input_history(INPUT).usage) == (1, 0, 0)

    def test_p_another_schema(self, ledger: Ledger, conversation: Session) -> None:
        """Case P."""
        retain(ledger, "events.jsonl:0", {**envelope(0, **attempt_started()), "schema_version": 999})
        record = ledger.input_history(INPUT)
        assert gap_kinds(record.usage) == ["schema"]
        assert record.first_provider_attempt_at is None

    @pytest.mark.parametrize("member", ["counter_kind", "start_known"])
    def test_receipts_that_say_little(self, ledger: Ledger, conversation: Session, member: str) -> None:
        """4.3 rules 5 and 6."""
        receipt = recorded_usage(input_tokens=10, output_tokens=1)
        receipt[member] = {"counter_kind": "delta", "start_known": False}[member]
        lines(ledger, receipt)
        usage = ledger.input_history(INPUT).usage
        expected = {"counter_kind": (["counter_kind"], 0), "start_known": (["start_unknown"], 1)}[member]
        assert (gap_kinds(usage), usage.streams) == expected

    def test_order_of_arrival_does_not_matter(self, ledger: Ledger, conversation: Session) -> None:
        """Appendix E 1: imported late and shuffled."""
        events = [
            session_observed(),
            recorded_usage(number=1, input_tokens=10, output_tokens=3),
            recorded_usage(number=2, final=True, input_tokens=18, output_tokens=5, cost_usd=0.2),
        ]
        for number in (2, 0, 1):
            lines(ledger, events[number], first=number)
        usage = ledger.input_history(INPUT).usage
        assert (usage.input_tokens, usage.output_tokens, usage.cost_usd) == (18, 5, 0.2)
        assert coverage(usage) == (1, 1, 0)

    # --- beside native receipts

    def test_t_final_messages_beat_a_partial_recorder(self, ledger: Ledger, conversation: Session) -> None:
        """Case T, D11."""
        two_messages(ledger, start=True)
        lines(ledger, session_observed(), recorded_usage(provider="opencode", input_tokens=7, output_tokens=1))
        usage = ledger.input_history(INPUT).usage
        assert (usage.input_tokens, usage.output_tokens) == (30, 10)
        assert coverage(usage) == (2, 2, 0)

    def test_u_a_partial_recorder_of_codex_is_continued(self, ledger: Ledger, conversation: Session) -> None:
        """Case U, D11."""
        turn(ledger, "turn", *A)
        lines(
            ledger,
            session_observed(),
            recorded_usage(number=4, input_tokens=10, output_tokens=3, total_input_tokens=12),
        )
        usage = ledger.input_history(INPUT).usage
        assert sums(usage) == (18, 5, 20)
        assert coverage(usage) == (1, 0, 0)

    def test_v_a_recorder_of_an_unknown_thread(self, ledger: Ledger, conversation: Session) -> None:
        """Case V, D18: the larger of the two, and a gap."""
        turn(ledger, "turn", *A)
        lines(ledger, recorded_usage(final=True, input_tokens=18, output_tokens=5))
        usage = ledger.input_history(INPUT).usage
        assert sums(usage) == (18, 5, 20)
        assert usage.cache_read_tokens == 2
        assert coverage(usage) == (1, 1, 1)

    def test_w_a_recorder_of_another_thread(self, ledger: Ledger, conversation: Session) -> None:
        """Case W: both count."""
        turn(ledger, "turn", *A)
        lines(ledger, session_observed("elsewhere"), recorded_usage(final=True, input_tokens=18, output_tokens=5))
        usage = ledger.input_history(INPUT).usage
        assert sums(usage) == (36, 10, 38)
        assert coverage(usage) == (2, 1, 1)
