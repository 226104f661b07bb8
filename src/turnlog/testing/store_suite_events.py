"""Suite: receipts, their keys and conflicts, and their attribution (semantics 3.1, 3.2)."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from turnlog import ConflictError, EventKind, InvalidError, Ledger, MissingError, Session
from turnlog.receipts import canonical
from turnlog.testing.store_suite_base import (
    INPUT,
    REPLACEMENT,
    THREAD,
    TURN,
    StoreSetup,
    StoreTests,
    add_execs,
    driven,
    fixture_session,
    retain,
    turn_rows,
    work,
)

DONE = {"status": "completed"}


class TestEvents(StoreTests):
    """One row per key, whatever happens twice."""

    # --- 3.1

    def test_the_same_receipt_is_one_row_with_one_seq(self, ledger: Ledger, conversation: Session) -> None:
        """R1.1, R1.2, R1.5: identity is the canonical text; the time plays no part."""
        first = ledger.record("conversation", THREAD, TURN, "completed", {"status": "completed", "at": 1})
        again = ledger.record("conversation", THREAD, TURN, EventKind.COMPLETED, {"at": 1, "status": "completed"})
        assert again == first
        assert [event.seq for event in ledger.history("conversation")] == [conversation.captured, first]

    def test_recording_later_does_not_change_the_row(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """R1.5."""
        ledger.record("conversation", THREAD, TURN, "output", {"text": "done"})
        before = ledger.history("conversation")
        suite.clock.advance(60_000)
        ledger.record("conversation", THREAD, TURN, "output", {"text": "done"})
        assert ledger.history("conversation") == before
        assert before[-1].observed_at == 1_000

    @pytest.mark.parametrize("kind", ["started", "completed", "output"])
    def test_another_payload_for_the_same_key_is_a_conflict(
        self, ledger: Ledger, conversation: Session, kind: str
    ) -> None:
        """R1.3: the message names kind, conversation and turn; the first stays."""
        seq = ledger.record("conversation", THREAD, TURN, kind, {"text": "first", "status": "completed"})
        with pytest.raises(ConflictError) as caught:
            ledger.record("conversation", THREAD, TURN, kind, {"text": "second", "status": "failed"})
        for word in (kind, "conversation", TURN):
            assert word in caught.value.message
        [event] = ledger.history("conversation", after=conversation.captured)
        assert (event.seq, event.payload["text"]) == (seq, "first")

    def test_one_and_one_point_zero_are_different_receipts(self, ledger: Ledger, conversation: Session) -> None:
        """R1.2: equal are equal texts."""
        ledger.record("conversation", THREAD, TURN, "completed", {"cost": 1})
        with pytest.raises(ConflictError):
            ledger.record("conversation", THREAD, TURN, "completed", {"cost": 1.0})

    def test_usage_never_conflicts_and_is_keyed_by_its_text(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """R1.4."""
        snapshots = [{"total": {"inputTokens": n}} for n in (20, 40, 30)]
        seqs = [ledger.record("conversation", THREAD, TURN, "usage", each) for each in snapshots]
        assert seqs == sorted(set(seqs))
        assert [ledger.record("conversation", THREAD, TURN, "usage", each) for each in snapshots] == seqs
        keys = suite.raw_sql("SELECT receipt_key FROM session_events WHERE kind = 'usage' ORDER BY seq")
        assert [key for (key,) in keys] == [hashlib.sha256(canonical(each).encode()).hexdigest() for each in snapshots]

    def test_the_same_usage_of_two_turns_is_two_rows(self, ledger: Ledger, conversation: Session) -> None:
        """R1.1: the key counts inside one (session, thread, turn, kind)."""
        seqs = {
            ledger.record("conversation", thread, turn, "usage", {"n": 1})
            for thread in ("a", "b")
            for turn in ("1", "2")
        }
        assert len(seqs) == 4

    def test_a_completion_creates_nothing_else(self, ledger: Ledger, conversation: Session) -> None:
        """R1.7."""
        ledger.record("conversation", THREAD, TURN, "completed", DONE)
        [event] = ledger.history("conversation", after=conversation.captured)
        assert (event.kind, event.exec_id, event.provider_generation) == (EventKind.COMPLETED, None, None)
        assert (event.task_id, event.wave_id) == (None, None)

    @pytest.mark.parametrize("kind", ["observed", "captured", "requested", "", "Started", "unheard"])
    def test_only_native_kinds_are_recorded(self, ledger: Ledger, conversation: Session, kind: str) -> None:
        """R1.8."""
        with pytest.raises(InvalidError):
            ledger.record("conversation", THREAD, TURN, kind, {})
        assert len(ledger.history("conversation")) == 1

    @pytest.mark.parametrize("kind", ["started", "usage", "completed", "output"])
    def test_an_unknown_session_is_missing(self, ledger: Ledger, kind: str) -> None:
        """R1.9."""
        with pytest.raises(MissingError):
            ledger.record("nobody", THREAD, TURN, kind, {})

    @pytest.mark.parametrize(
        "payload",
        [float("nan"), {"n": float("inf")}, {"n": 2**64}, {"n": -(2**63) - 1}, {1: 2}, b"raw", {"s": "\ud800"}],
    )
    def test_what_is_not_json_is_refused_whole(self, ledger: Ledger, conversation: Session, payload: Any) -> None:
        """Architecture 4."""
        with pytest.raises(InvalidError):
            ledger.record("conversation", THREAD, TURN, "usage", payload)
        assert len(ledger.history("conversation")) == 1

    @pytest.mark.parametrize(
        "payload",
        [None, 0, True, "", [], {"nul": "a\u0000b"}, {"big": 2**64 - 1, "small": -(2**63)}, {"x": 1e16}, {"ü": "🙂"}],
    )
    def test_any_json_value_comes_back_as_it_was(self, ledger: Ledger, conversation: Session, payload: Any) -> None:
        """Payloads are parsed JSON values."""
        ledger.record("conversation", THREAD, TURN, "output", payload)
        assert ledger.history("conversation")[-1].payload == payload

    def test_record_many_counts_new_and_known(self, ledger: Ledger, conversation: Session) -> None:
        """Promise 2: reading again changes nothing."""
        rows = [
            (THREAD, TURN, "started", {}),
            (THREAD, TURN, "usage", {"n": 1}),
            (THREAD, TURN, "usage", {"n": 1}),
            (THREAD, TURN, "completed", DONE),
        ]
        assert ledger.record_many("conversation", rows) == (3, 1)
        before = ledger.history("conversation")
        assert ledger.record_many("conversation", rows) == (0, 4)
        assert ledger.history("conversation") == before
        assert [event.kind for event in before] == ["captured", "started", "usage", "completed"]

    def test_record_many_is_all_or_nothing(self, ledger: Ledger, conversation: Session) -> None:
        """Nothing is half-written."""
        ledger.record("conversation", THREAD, TURN, "completed", DONE)
        before = ledger.history("conversation")
        rows = [(THREAD, "other", "started", {}), (THREAD, TURN, "completed", {"status": "failed"})]
        with pytest.raises(ConflictError):
            ledger.record_many("conversation", rows)
        with pytest.raises(InvalidError):
            ledger.record_many("conversation", [(THREAD, "other", "started", {}), (THREAD, TURN, "observed", {})])
        with pytest.raises(MissingError):
            ledger.record_many("nobody", [(THREAD, "other", "started", {})])
        assert ledger.history("conversation") == before

    def test_record_many_of_nothing(self, ledger: Ledger, conversation: Session) -> None:
        """An empty batch is no error."""
        assert ledger.record_many("conversation", []) == (0, 0)

    # --- 3.2

    def test_only_a_start_copies_the_attribution(self, suite: StoreSetup, ledger: Ledger) -> None:
        """R2.1, R2.2: the others are read with that of their origin."""
        task, wave = work(ledger)
        conversation = fixture_session(ledger)
        conversation = ledger.bind_session("conversation", conversation.captured, task)
        ledger.record_many("conversation", turn_rows())
        rows = suite.raw_sql(
            "SELECT kind, task_id, wave_id, captured_event FROM session_events"
            " WHERE provider_turn = :turn ORDER BY seq",
            {"turn": TURN},
        )
        assert rows[0] == ("started", task, wave, conversation.captured)
        assert {row[1:] for row in rows[1:]} == {(None, None, None)}
        for event in ledger.history("conversation", after=conversation.captured):
            assert (event.task_id, event.wave_id) == (task, wave)

    def test_captured_and_observed_rows_show_their_own(self, suite: StoreSetup, ledger: Ledger) -> None:
        """R2.3: an observation shows no exec, an input its own."""
        task, wave = work(ledger)
        add_execs(suite, "first")
        ledger.create_session(id="conversation", artifact_key=INPUT, cwd="/f", task_id=task, exec_id="first")
        retain(ledger, "note", {"x": 1}, task_id="another", wave_id="elsewhere")
        captured, observed = ledger.history("conversation")
        assert (captured.exec_id, captured.task_id, captured.wave_id) == ("first", task, wave)
        assert (observed.exec_id, observed.task_id, observed.wave_id) == (None, "another", "elsewhere")
        assert observed.provider_generation is captured.provider_generation is None

    def test_later_changes_never_touch_a_turn_that_began(self, suite: StoreSetup, ledger: Ledger) -> None:
        """R2.4, R12.4: input, binding, driver and engine are replaced; the turn stays what it was."""
        task, _ = work(ledger)
        conversation = fixture_session(ledger)
        driver = driven(suite, ledger)
        ledger.record_turn_origin("conversation", THREAD, TURN, 1, "first")
        replaced = ledger.replace_input("conversation", conversation.captured, artifact_key=REPLACEMENT)
        ledger.bind_session("conversation", replaced.captured, task)
        add_execs(suite, "second")
        ledger.claim_driver("conversation", driver, "second", replace_engine=True)
        ledger.record("conversation", THREAD, TURN, "usage", {"n": 1})
        ledger.record("conversation", THREAD, TURN, "completed", DONE)
        rows = ledger.input_summary(INPUT)
        assert [row.kind for row in rows] == ["started", "usage", "completed"]
        assert {(row.exec_id, row.provider_generation, row.task_id, row.wave_id) for row in rows} == {
            ("first", 1, None, None)
        }
        assert ledger.input_summary(REPLACEMENT) == []

    def test_attribution_is_not_inferred(self, ledger: Ledger, conversation: Session) -> None:
        """R2.5."""
        ledger.record("conversation", THREAD, "seen", "started", {})
        ledger.record("conversation", THREAD, "unseen", "usage", {"n": 1})
        assert {row.turn for row in ledger.input_summary(INPUT)} == {"seen"}
        [orphan] = ledger.orphaned_history("conversation", THREAD, "unseen")
        assert (orphan.exec_id, orphan.task_id, orphan.wave_id, orphan.provider_generation) == (None,) * 4

    def test_a_start_that_comes_late_gives_the_turn_its_origin(self, ledger: Ledger, conversation: Session) -> None:
        """R2.2: the join is by turn, not by order."""
        ledger.record("conversation", THREAD, TURN, "usage", {"n": 1})
        assert ledger.input_summary(INPUT) == []
        ledger.record("conversation", THREAD, TURN, "started", {})
        assert [row.kind for row in ledger.input_summary(INPUT)] == ["usage", "started"]
        assert ledger.orphaned_history("conversation", THREAD, TURN) == []
