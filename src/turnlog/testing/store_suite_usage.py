"""Suite: usage of native receipts through the ledger (semantics 4.6 A to J, R, S, X, Y; architecture 5)."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog import Driver, EventKind, Ledger, Session, Usage
from turnlog.testing.store_suite_base import (
    INPUT,
    REPLACEMENT,
    THREAD,
    TURN,
    StoreSetup,
    StoreTests,
    add_execs,
    attempt_started,
    codex,
    gap_kinds,
    lines,
    opencode,
    recorded_usage,
    retain,
    session_observed,
)

DONE = {"status": "completed"}
A = [codex((12, 3, 2, 1), (12, 3, 2, 1)), codex((20, 5, 2, 1), (8, 2, 2, 1))]


class TestUsage(StoreTests):
    """Totals are lower bounds with their gaps."""

    # --- A to E: the seed test "native usage survives driver and input replacement"

    def test_a_usage_survives_driver_and_input_replacement(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """Case A."""
        case_a(suite, ledger, conversation)
        rows = ledger.input_summary(INPUT)
        assert [(row.exec_id, row.provider_generation) for row in rows] == [("first", 1)] * 4
        assert ledger.input_summary(REPLACEMENT) == []
        record = ledger.input_history(INPUT)
        assert (record.evidence_gaps, record.recorded_outcome) == (1, None)
        usage = record.usage
        assert sums(usage) == (18, 5, 20)
        assert (usage.peak_input_tokens, usage.reasoning_tokens, usage.cache_read_tokens) == (12, 1, 2)
        assert (usage.cost_usd, usage.cache_write_tokens) == (None, None)
        assert coverage(usage) == (1, 0, 0)
        assert ledger.input_history(REPLACEMENT).usage == Usage()

    def test_b_a_final_recorder_stream_stands_for_the_native_one(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """Case B and B'."""
        case_b(suite, ledger, conversation)
        record = ledger.input_history(INPUT)
        assert sums(record.usage) == (18, 5, 20)
        assert record.usage.cost_usd == 0.2
        assert coverage(record.usage) == (1, 1, 0)
        assert record.evidence_gaps == 1
        ledger.record("conversation", THREAD, "unknown", "usage", codex((100, 50, 2, 1), (10, 5, 2, 1)))
        assert ledger.input_summary(REPLACEMENT) == []
        assert ledger.history("conversation")[-1].exec_id is None
        assert ledger.input_history(INPUT) == record

    def test_c_a_turn_with_an_unknown_baseline(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """Case C."""
        case_c(suite, ledger, conversation)
        usage = ledger.input_history(REPLACEMENT).usage
        assert sums(usage) == (8, 5, 10)
        assert usage.cache_read_tokens == 2
        assert coverage(usage) == (1, 0, 1)
        assert gap_kinds(usage) == ["start_unknown"]

    def test_d_a_decrease_inside_a_turn(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """Case D: 40 observed tokens and the separate turn of 10."""
        case_d(suite, ledger, conversation)
        usage = ledger.input_history(REPLACEMENT).usage
        assert (usage.total_input_tokens, usage.input_tokens) == (50, 48)
        assert gap_kinds(usage) == ["decrease", "decrease", "start_unknown"]

    def test_e_the_next_turn_counts_from_the_largest_total(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """Case E."""
        case_d(suite, ledger, conversation)
        ledger.record("conversation", THREAD, "decrease", "completed", DONE)
        ledger.record("conversation", THREAD, "next", "started", {})
        ledger.record("conversation", THREAD, "next", "usage", codex((60, 0, 0, 0), (10, 0, 0, 0)))
        usage = ledger.input_history(REPLACEMENT).usage
        assert usage.total_input_tokens == 70
        assert coverage(usage) == (3, 0, 3)

    # --- F to J

    def test_f_an_orphan_turn(self, ledger: Ledger, conversation: Session) -> None:
        """Case F."""
        ledger.record("conversation", THREAD, TURN, "usage", codex((12, 3, 0, 0), (12, 3, 0, 0)))
        ledger.record("conversation", THREAD, TURN, "completed", DONE)
        orphan = next(row for row in ledger.inputs() if row.captured is None)
        assert sums(orphan.usage) == (12, 3, 12)
        assert coverage(orphan.usage) == (1, 0, 1)

    def test_g_an_older_turn_cannot_stand_in_for_the_predecessor(self, ledger: Ledger, conversation: Session) -> None:
        """Case G: b has no notification, so c's baseline is unknown; X is the same without the recorder."""
        three_turns(ledger)
        usage = ledger.input_history(INPUT).usage
        assert usage.total_input_tokens == 30
        assert coverage(usage) == (2, 0, 1)
        lines(
            ledger,
            session_observed(),
            recorded_usage("recorder-b", turn="b", final=True, input_tokens=30, output_tokens=0, total_input_tokens=30),
        )
        usage = ledger.input_history(INPUT).usage
        assert usage.total_input_tokens == 60
        assert coverage(usage) == (3, 1, 3)
        assert gap_kinds(usage) == ["missing_counter", "missing_counter", "start_unknown"]

    def test_h_steps_recover_once_and_are_not_reassigned(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """Case H: snapshots of message a, replacement, both messages read twice again."""
        driver = first_driver(suite, ledger)
        ledger.record_turn_origin("conversation", THREAD, TURN, 1, "first")
        snapshots = [opencode("a", fresh, finish="tool-calls") for fresh in (20, 40, 30)]
        for each in snapshots:
            ledger.record("conversation", THREAD, TURN, "usage", each)
        replace(suite, ledger, conversation, driver)
        again = [
            (THREAD, TURN, "usage", snapshots[-1]),
            (THREAD, TURN, "usage", opencode("b", 10, finish="stop")),
            (THREAD, TURN, "completed", DONE),
        ]
        assert ledger.record_many("conversation", again) == (2, 1)
        assert ledger.record_many("conversation", again) == (0, 3)
        record = ledger.input_history(INPUT)
        assert (record.usage.input_tokens, record.usage.output_tokens) == (50, 10)
        assert coverage(record.usage) == (2, 2, 2)
        assert gap_kinds(record.usage) == ["decrease", "decrease"]
        assert record.recorded_outcome is None
        assert ledger.input_history(REPLACEMENT).usage.input_tokens is None
        rows = [row for row in ledger.history("conversation") if row.kind not in {"captured", "observed"}]
        assert [row.kind for row in rows].count(EventKind.COMPLETED) == 1
        assert {row.exec_id for row in rows} == {"first"}

    def test_i_attempts_alone_are_no_usage(self, ledger: Ledger, conversation: Session) -> None:
        """Case I."""
        lines(ledger, attempt_started("attempt-0"), attempt_started("attempt-1"))
        assert ledger.input_history(INPUT).usage == Usage()

    def test_j_an_undecodable_event_is_no_stream(self, ledger: Ledger, conversation: Session) -> None:
        """Case J: one gap, and one for the absent manifest."""
        retain(ledger, "events.jsonl:0", {"schema_version": 1, "type": "usage", "usage": {"input_tokens": 12}})
        record = ledger.input_history(INPUT)
        assert record.usage == Usage()
        assert record.evidence_gaps == 2

    # --- R, S, Y

    @pytest.mark.parametrize(("start", "gaps"), [(True, 0), (False, 2)])
    def test_r_s_two_messages(
        self,
        ledger: Ledger,
        conversation: Session,
        start: bool,
        gaps: int,
    ) -> None:
        """Cases R and S: without a start once per stream (D6)."""
        two_messages(ledger, start=start)
        usage = ledger.input_history(INPUT).usage if start else orphan_usage(ledger)
        assert (usage.input_tokens, usage.output_tokens, usage.peak_input_tokens) == (30, 10, 20)
        assert coverage(usage) == (2, 2, gaps)

    def test_y_a_claude_result(self, ledger: Ledger, conversation: Session) -> None:
        """Case Y, D1: one final stream per turn."""
        usage = {
            "input_tokens": 2000,
            "cache_creation_input_tokens": 400,
            "cache_read_input_tokens": 800,
            "output_tokens": 100,
        }
        payload = {
            "provider": "claude",
            "source": "wire",
            "result_id": "result",
            "model_usage": None,
            "usage": usage,
            "total_cost_usd": 0.025,
            "interrupted": False,
        }
        ledger.record("conversation", THREAD, TURN, "started", {})
        ledger.record("conversation", THREAD, TURN, "usage", payload)
        ledger.record("conversation", THREAD, TURN, "completed", DONE)
        found = ledger.input_history(INPUT).usage
        assert sums(found) == (2000, 100, 3200)
        assert (found.cache_read_tokens, found.cache_write_tokens, found.peak_input_tokens) == (800, 400, None)
        assert found.cost_usd == pytest.approx(0.025)
        assert coverage(found) == (1, 1, 0)

    # --- D5, appendix E

    def test_a_predecessor_of_the_old_input_gives_the_baseline(self, ledger: Ledger, conversation: Session) -> None:
        """D5: looked up in the whole thread, completed before the start."""
        turn(ledger, "a", codex((20, 5, 0, 0), (20, 5, 0, 0)))
        ledger.replace_input("conversation", conversation.captured, artifact_key=REPLACEMENT)
        turn(ledger, "b", codex((50, 9, 0, 0), (10, 1, 0, 0)))
        usage = ledger.input_history(REPLACEMENT).usage
        assert (usage.total_input_tokens, usage.output_tokens) == (30, 4)
        assert coverage(usage) == (1, 0, 0)

    def test_a_predecessor_that_did_not_complete_before_is_none(self, ledger: Ledger, conversation: Session) -> None:
        """D5: completed before the start."""
        ledger.record("conversation", THREAD, "a", "started", {})
        ledger.record("conversation", THREAD, "a", "usage", codex((20, 5, 0, 0), (20, 5, 0, 0)))
        ledger.record("conversation", THREAD, "b", "started", {})
        ledger.record("conversation", THREAD, "a", "completed", DONE)
        ledger.record("conversation", THREAD, "b", "usage", codex((50, 9, 0, 0), (10, 1, 0, 0)))
        usage = ledger.input_history(INPUT).usage
        assert usage.total_input_tokens == 30  # 20 and the observed suffix of 10
        assert gap_kinds(usage) == ["start_unknown"]

    def test_an_intent_is_no_predecessor(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """D4."""
        driver = first_driver(suite, ledger)
        turn(ledger, "a", codex((20, 5, 0, 0), (20, 5, 0, 0)))
        ledger.intend_turn("conversation", driver, THREAD, "lost", {}, turn="lost")
        turn(ledger, "b", codex((50, 9, 0, 0), (10, 1, 0, 0)))
        usage = ledger.input_history(INPUT).usage
        assert usage.total_input_tokens == 50
        assert coverage(usage) == (2, 0, 0)

    def test_a_thread_telescopes(self, ledger: Ledger, conversation: Session) -> None:
        """Appendix E 7: total input of a fully observed thread is its last lifetime total."""
        total = 0
        for number, step in enumerate((7, 30, 1, 12)):
            total += step
            turn(ledger, str(number), codex((total, number, 0, 0), (step, 1 if number else 0, 0, 0)))
        usage = ledger.input_history(INPUT).usage
        assert usage.total_input_tokens == total
        assert coverage(usage) == (4, 0, 0)

    def test_reading_again_changes_nothing(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """Appendix E 2, promise 2."""
        case_b(suite, ledger, conversation)
        before = (ledger.input_history(INPUT), ledger.input_history(REPLACEMENT), ledger.history("conversation"))
        for payload in A:
            ledger.record("conversation", THREAD, TURN, "usage", payload)
        recorder(ledger)
        ledger.record_turn_origin("conversation", THREAD, TURN, 1, "first")
        assert (
            ledger.input_history(INPUT),
            ledger.input_history(REPLACEMENT),
            ledger.history("conversation"),
        ) == before

    def test_other_turns_inputs_and_conversations_change_nothing(self, ledger: Ledger, conversation: Session) -> None:
        """Appendix E 4, 5."""
        turn(ledger, TURN, *A)
        before = ledger.input_history(INPUT)
        ledger.create_session(id="other", cwd="/f")
        ledger.record("other", THREAD, TURN, "usage", A[1])
        ledger.record("conversation", "elsewhere", TURN, "usage", A[1])
        ledger.rename_session("conversation", "Renamed")
        ledger.replace_input("conversation", conversation.captured, artifact_key=REPLACEMENT)
        turn(ledger, "next", codex((30, 6, 2, 1), (10, 1, 0, 0)))
        after = ledger.input_history(INPUT)
        assert (after.usage, after.providers) == (before.usage, before.providers)

    def test_a_report_adds_inputs_and_orphans(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """Contract 2: every receipt counts once."""
        case_a(suite, ledger, conversation)
        ledger.record("conversation", THREAD, "orphan", "usage", codex((12, 3, 0, 0), (12, 3, 0, 0)))
        ledger.create_session(id="other", cwd="/f")
        ledger.record("other", "t", "1", "started", {})
        ledger.record("other", "t", "1", "usage", opencode("m", 7))
        report = ledger.usage_report("session", timezone="UTC")
        assert {row.key: row.tokens.total_input for row in report.rows} == {"conversation": 32, "other": 7}
        assert (report.totals.tokens.total_input, report.totals.streams) == (39, 3)
        assert ledger.usage_report("total", session="other", timezone="UTC").totals.tokens.input == 7


def first_driver(suite: StoreSetup, ledger: Ledger) -> Driver:
    """Claim the conversation for the exec ``first``."""
    add_execs(suite, "first")
    return ledger.claim_driver("conversation", None, "first")


def replace(suite: StoreSetup, ledger: Ledger, conversation: Session, driver: Driver) -> None:
    """Replace input and driver."""
    ledger.replace_input("conversation", conversation.captured, artifact_key=REPLACEMENT)
    add_execs(suite, "second")
    ledger.claim_driver("conversation", driver, "second", replace_engine=True)


def case_a(suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
    """Record case A of 4.6."""
    driver = first_driver(suite, ledger)
    ledger.record_turn_origin("conversation", THREAD, TURN, 1, "first")
    ledger.record("conversation", THREAD, TURN, "usage", A[0])
    replace(suite, ledger, conversation, driver)
    ledger.record("conversation", THREAD, TURN, "usage", A[1])
    ledger.record("conversation", THREAD, TURN, "completed", DONE)


def recorder(ledger: Ledger) -> None:
    """Retain the final recorder stream of case B."""
    lines(ledger, session_observed(), recorded_usage(final=True, input_tokens=18, output_tokens=5, cost_usd=0.2))


def case_b(suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
    """Record case B."""
    case_a(suite, ledger, conversation)
    recorder(ledger)


def case_c(suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
    """Record cases B' and C."""
    case_b(suite, ledger, conversation)
    partial = codex((100, 50, 2, 1), (10, 5, 2, 1))
    ledger.record("conversation", THREAD, "unknown", "usage", partial)
    ledger.record("conversation", THREAD, "partial", "started", {})
    ledger.record("conversation", THREAD, "partial", "usage", partial)


def case_d(suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
    """Record case D."""
    case_c(suite, ledger, conversation)
    ledger.record("conversation", THREAD, "decrease", "started", {})
    for total, last in ((20, 20), (40, 20), (30, 10)):
        ledger.record("conversation", THREAD, "decrease", "usage", codex((total, 0, 0, 0), (last, 0, 0, 0)))


def three_turns(ledger: Ledger) -> None:
    """Record the turns of case G; b has no usage."""
    turn(ledger, "a", codex((20, 0, 0, 0, 0), (20, 0, 0, 0, 0)))
    turn(ledger, "b")
    turn(ledger, "c", codex((60, 0, 0, 0, 0), (10, 0, 0, 0, 0)))


def two_messages(ledger: Ledger, *, start: bool) -> None:
    """Record the OpenCode turn of cases R, S and T."""
    if start:
        ledger.record("conversation", THREAD, TURN, "started", {})
    for message, fresh in (("a", 20), ("b", 10)):
        ledger.record("conversation", THREAD, TURN, "usage", opencode(message, fresh))
    ledger.record("conversation", THREAD, TURN, "completed", DONE)


def turn(ledger: Ledger, name: str, *usage: Any) -> None:
    """Record one whole turn."""
    ledger.record("conversation", THREAD, name, "started", {})
    for payload in usage:
        ledger.record("conversation", THREAD, name, "usage", payload)
    ledger.record("conversation", THREAD, name, "completed", DONE)


def orphan_usage(ledger: Ledger) -> Usage:
    """Return the usage of the only orphan turn."""
    [orphan] = [row for row in ledger.inputs() if row.captured is None]
    return orphan.usage


def sums(usage: Usage) -> tuple[int | None, int | None, int | None]:
    """Return input, output and total input."""
    return usage.input_tokens, usage.output_tokens, usage.total_input_tokens


def coverage(usage: Usage) -> tuple[int, int, int]:
    """Return streams, final streams and gaps."""
    assert usage.gaps == len(usage.gap_list)
    return usage.streams, usage.final_streams, usage.gaps
