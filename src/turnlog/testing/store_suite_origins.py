"""Suite: who began a turn, and what we intended before we asked (semantics 3.3, D3, D4, H9)."""

from __future__ import annotations

import pytest

from turnlog import ConflictError, EventKind, InvalidError, Ledger, MissingError, Session, StaleError
from turnlog.testing.store_suite_base import (
    INPUT,
    REPLACEMENT,
    THREAD,
    TURN,
    StoreSetup,
    StoreTests,
    add_execs,
    driven,
    work,
)


class TestOrigins(StoreTests):
    """Attribution is frozen before the request leaves."""

    # --- 3.3

    def test_origin_is_a_start_with_exec_and_generation(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """R3.1, R3.2: repeating it identically is a no-op."""
        driven(suite, ledger)
        seq = ledger.record_turn_origin("conversation", THREAD, TURN, 1, "first")
        assert ledger.record_turn_origin("conversation", THREAD, TURN, 1, "first") == seq
        assert ledger.record("conversation", THREAD, TURN, "started", {}) == seq
        [event] = ledger.history("conversation", after=conversation.captured)
        assert (event.seq, event.kind, event.exec_id, event.provider_generation, event.payload) == (
            seq,
            EventKind.STARTED,
            "first",
            1,
            {},
        )

    def test_origin_fills_a_start_that_came_first(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """R3.2: null to value."""
        driven(suite, ledger)
        seq = ledger.record("conversation", THREAD, TURN, "started", {})
        assert ledger.history("conversation")[-1].exec_id is None
        assert ledger.record_turn_origin("conversation", THREAD, TURN, 1, "first") == seq
        assert ledger.history("conversation")[-1].exec_id == "first"

    @pytest.mark.parametrize(("generation", "exec_id"), [(1, "second"), (2, "first"), (2, "second")])
    def test_another_origin_is_a_conflict(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session, generation: int, exec_id: str
    ) -> None:
        """R3.2."""
        add_execs(suite, "first", "second")
        ledger.record_turn_origin("conversation", THREAD, TURN, 1, "first")
        before = ledger.history("conversation")
        with pytest.raises(ConflictError):
            ledger.record_turn_origin("conversation", THREAD, TURN, generation, exec_id)
        assert ledger.history("conversation") == before

    def test_origin_is_evidence_so_unfenced(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """D3: a driver that was replaced may still say which turn it began."""
        driver = driven(suite, ledger)
        add_execs(suite, "second")
        ledger.claim_driver("conversation", driver, "second", replace_engine=True)
        ledger.record_turn_origin("conversation", THREAD, TURN, 1, "first")
        assert ledger.history("conversation")[-1].exec_id == "first"

    def test_origin_of_an_unknown_exec_or_session_leaves_no_start(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """R3.3: start and origin are one transaction."""
        add_execs(suite, "first")
        with pytest.raises(MissingError):
            ledger.record_turn_origin("conversation", THREAD, TURN, 1, "nobody")
        with pytest.raises(MissingError):
            ledger.record_turn_origin("nobody", THREAD, TURN, 1, "first")
        assert len(ledger.history("conversation")) == 1

    # --- intents

    def test_a_start_takes_its_attribution_from_the_intent(self, suite: StoreSetup, ledger: Ledger) -> None:
        """D3, H9: input, binding and driver are replaced before the start is seen."""
        task, wave = work(ledger)
        conversation = ledger.create_session(id="conversation", artifact_key=INPUT, cwd="/fixture")
        driver = driven(suite, ledger)
        ledger.intend_turn("conversation", driver, THREAD, "request", {"text": "hello"}, turn=TURN)
        replaced = ledger.replace_input("conversation", conversation.captured, artifact_key=REPLACEMENT)
        ledger.bind_session("conversation", replaced.captured, task)
        add_execs(suite, "second")
        ledger.claim_driver("conversation", driver, "second", replace_engine=True)
        ledger.record("conversation", THREAD, TURN, "started", {})
        [start] = ledger.input_summary(INPUT)
        assert (start.exec_id, start.provider_generation, start.task_id, start.wave_id) == ("first", 1, None, None)
        assert ledger.input_summary(REPLACEMENT) == []
        ledger.record("conversation", THREAD, "next", "started", {})
        [other] = ledger.input_summary(REPLACEMENT)
        assert (other.exec_id, other.provider_generation, other.task_id, other.wave_id) == (None, None, task, wave)

    def test_an_intent_keeps_its_work_when_bound_before(self, suite: StoreSetup, ledger: Ledger) -> None:
        """D3: capture, task and wave of the intent."""
        task, wave = work(ledger)
        ledger.create_session(id="conversation", artifact_key=INPUT, cwd="/fixture", task_id=task)
        driver = driven(suite, ledger)
        seq = ledger.intend_turn("conversation", driver, THREAD, "request", {}, turn=TURN)
        [intent] = ledger.history("conversation", after=seq - 1)
        assert (intent.kind, intent.exec_id, intent.provider_generation) == (EventKind.REQUESTED, "first", 1)
        assert (intent.task_id, intent.wave_id, intent.thread, intent.turn) == (task, wave, THREAD, TURN)

    def test_an_intent_is_no_part_of_summary_or_orphans(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """D4."""
        driver = driven(suite, ledger)
        ledger.intend_turn("conversation", driver, THREAD, "request", {}, turn=TURN)
        assert ledger.input_summary(INPUT) == []
        assert ledger.orphaned_history("conversation", THREAD, TURN) == []
        assert [event.kind for event in ledger.history("conversation")] == ["captured", "requested"]

    def test_an_intent_is_unique_by_request_id(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """D3: the same again is the same row; anything else is a conflict."""
        driver = driven(suite, ledger)
        seq = ledger.intend_turn("conversation", driver, THREAD, "request", {"text": "a"})
        assert ledger.intend_turn("conversation", driver, THREAD, "request", {"text": "a"}) == seq
        with pytest.raises(ConflictError):
            ledger.intend_turn("conversation", driver, THREAD, "request", {"text": "b"})
        with pytest.raises(ConflictError):
            ledger.intend_turn("conversation", driver, "other", "request", {"text": "a"})
        with pytest.raises(ConflictError):
            ledger.intend_turn("conversation", driver, THREAD, "request", {"text": "a"}, turn="other")
        assert ledger.intend_turn("conversation", driver, THREAD, "another", {"text": "a"}) > seq
        with pytest.raises(InvalidError):
            ledger.intend_turn("conversation", driver, THREAD, "", {})

    def test_a_stale_driver_intends_nothing(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """Promise 3."""
        driver = driven(suite, ledger)
        add_execs(suite, "second")
        second = ledger.claim_driver("conversation", driver, "second", replace_engine=True)
        released = ledger.release_driver("conversation", second)
        for stale in (driver, second, released):
            with pytest.raises(StaleError):
                ledger.intend_turn("conversation", stale, THREAD, "request", {})
        assert len(ledger.history("conversation")) == 1
        with pytest.raises(MissingError):
            ledger.intend_turn("nobody", driver, THREAD, "request", {})

    # --- accept

    def test_accept_before_the_start(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """D3: the provider names the turn in its reply."""
        driver = driven(suite, ledger)
        seq = ledger.intend_turn("conversation", driver, THREAD, "request", {})
        assert ledger.history("conversation")[-1].turn is None
        ledger.accept_turn("conversation", driver, "request", TURN)
        ledger.accept_turn("conversation", driver, "request", TURN)
        [intent] = ledger.history("conversation", after=seq - 1)
        assert (intent.seq, intent.turn) == (seq, TURN)
        assert ledger.outstanding_intents("conversation") != []
        ledger.record("conversation", THREAD, TURN, "started", {})
        [start] = ledger.input_summary(INPUT)
        assert (start.exec_id, start.provider_generation) == ("first", 1)
        assert ledger.outstanding_intents("conversation") == []

    def test_accept_after_the_start(self, suite: StoreSetup, ledger: Ledger) -> None:
        """D3: exec and generation are filled where null; task, wave and capture stay."""
        task, _ = work(ledger)
        conversation = ledger.create_session(id="conversation", artifact_key=INPUT, cwd="/fixture")
        driver = driven(suite, ledger)
        ledger.intend_turn("conversation", driver, THREAD, "request", {})
        replaced = ledger.replace_input("conversation", conversation.captured, artifact_key=REPLACEMENT)
        ledger.bind_session("conversation", replaced.captured, task)
        ledger.record("conversation", THREAD, TURN, "started", {})
        ledger.accept_turn("conversation", driver, "request", TURN)
        [start] = ledger.input_summary(REPLACEMENT)
        assert (start.exec_id, start.provider_generation, start.task_id) == ("first", 1, task)
        assert ledger.input_summary(INPUT) == []
        assert ledger.outstanding_intents("conversation") == []

    @pytest.mark.parametrize("first", ["accept", "start"])
    def test_accept_when_the_thread_was_unknown_too(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session, first: str
    ) -> None:
        """D3: thread and turn may be unknown yet."""
        driver = driven(suite, ledger)
        ledger.intend_turn("conversation", driver, None, "request", {})
        if first == "start":
            ledger.record("conversation", THREAD, TURN, "started", {})
        ledger.accept_turn("conversation", driver, "request", TURN)
        ledger.record("conversation", THREAD, TURN, "started", {})
        [start] = ledger.input_summary(INPUT)
        assert (start.exec_id, start.provider_generation) == ("first", 1)
        assert ledger.outstanding_intents("conversation") == []
        assert ledger.verify() == []

    def test_accept_does_not_touch_a_turn_of_another_thread(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """R3.5: the same turn id on another thread is another turn."""
        driver = driven(suite, ledger)
        ledger.record("conversation", "other", TURN, "started", {})
        ledger.intend_turn("conversation", driver, THREAD, "request", {})
        ledger.accept_turn("conversation", driver, "request", TURN)
        foreign = next(event for event in ledger.history("conversation") if event.thread == "other")
        assert foreign.exec_id is None

    def test_accept_is_not_fenced_against_later_claims(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """D3."""
        driver = driven(suite, ledger)
        ledger.intend_turn("conversation", driver, THREAD, "request", {})
        add_execs(suite, "second")
        second = ledger.claim_driver("conversation", driver, "second", replace_engine=True)
        with pytest.raises(ConflictError):
            ledger.accept_turn("conversation", second, "request", TURN)
        ledger.accept_turn("conversation", driver, "request", TURN)
        assert ledger.own_request_ids("conversation", THREAD) == [("request", TURN)]

    def test_accept_names_one_turn_for_good(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """D3: null to value once."""
        driver = driven(suite, ledger)
        ledger.intend_turn("conversation", driver, THREAD, "request", {})
        ledger.accept_turn("conversation", driver, "request", TURN)
        with pytest.raises(ConflictError):
            ledger.accept_turn("conversation", driver, "request", "other")
        with pytest.raises(MissingError):
            ledger.accept_turn("conversation", driver, "unknown", TURN)
        assert ledger.own_request_ids("conversation", THREAD) == [("request", TURN)]

    def test_accept_of_a_turn_somebody_else_began(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """R3.2: nothing is half-written."""
        driver = driven(suite, ledger)
        add_execs(suite, "second")
        ledger.record_turn_origin("conversation", THREAD, TURN, 1, "second")
        ledger.intend_turn("conversation", driver, THREAD, "request", {})
        with pytest.raises(ConflictError):
            ledger.accept_turn("conversation", driver, "request", TURN)
        assert ledger.own_request_ids("conversation", THREAD) == [("request", None)]

    # --- refuse, outstanding

    def test_refuse_ends_an_intent(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """D4: observation ``refused:<request id>``, repeatable."""
        driver = driven(suite, ledger)
        ledger.intend_turn("conversation", driver, THREAD, "request", {})
        [outstanding] = ledger.outstanding_intents("conversation")
        assert (outstanding.request_id, outstanding.thread, outstanding.turn) == ("request", THREAD, None)
        ledger.refuse_turn("conversation", driver, "request", "not connected")
        ledger.refuse_turn("conversation", driver, "request", "not connected")
        assert ledger.outstanding_intents("conversation") == []
        [row] = ledger.input_summary(INPUT)
        assert row.payload == {
            "input_id": INPUT,
            "source": "refused:request",
            "evidence": {"reason": "not connected"},
        }
        with pytest.raises(MissingError):
            ledger.refuse_turn("conversation", driver, "unknown", "x")

    def test_refuse_by_author_or_by_who_drives_now(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """D4: evidence of who sent it, or of who looks after the conversation."""
        driver = driven(suite, ledger)
        for request in ("a", "b", "c"):
            ledger.intend_turn("conversation", driver, THREAD, request, {})
        add_execs(suite, "second", "third")
        second = ledger.claim_driver("conversation", driver, "second", replace_engine=True)
        third = ledger.claim_driver("conversation", second, "third", replace_engine=True)
        ledger.refuse_turn("conversation", driver, "a", "x")
        ledger.refuse_turn("conversation", third, "b", "x")
        with pytest.raises(ConflictError):
            ledger.refuse_turn("conversation", second, "c", "x")
        assert [each.request_id for each in ledger.outstanding_intents("conversation")] == ["c"]

    def test_refusal_belongs_to_the_input_of_the_intent(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """D4 with R4.6."""
        driver = driven(suite, ledger)
        ledger.intend_turn("conversation", driver, THREAD, "request", {})
        ledger.replace_input("conversation", conversation.captured, artifact_key=REPLACEMENT)
        ledger.refuse_turn("conversation", driver, "request", "x")
        assert len(ledger.input_summary(INPUT)) == 1
        assert ledger.input_summary(REPLACEMENT) == []

    def test_unfinished_work_is_found_after_a_crash(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """D4, promise 4."""
        driver = driven(suite, ledger)
        ledger.intend_turn("conversation", driver, THREAD, "request", {}, turn=TURN)
        assert ledger.unfinished_sessions() == ["conversation"]
        assert ledger.open_turns("conversation") == []
        ledger.record("conversation", THREAD, TURN, "started", {})
        ledger.record("conversation", THREAD, "foreign", "started", {})
        assert ledger.open_turns("conversation") == [(THREAD, TURN)]
        ledger.record("conversation", THREAD, TURN, "completed", {"status": "completed"})
        assert ledger.open_turns("conversation") == []
        assert ledger.unfinished_sessions() == []
