"""Suite: what keeps unfinished work in the recent list, and what lets go (D4, D13, D19)."""

from __future__ import annotations

import pytest

from turnlog import Driver, Ledger, Session
from turnlog.testing.store_suite_base import (
    INPUT,
    THREAD,
    TURN,
    StoreSetup,
    StoreTests,
    add_execs,
    driven,
    fixture_session,
    retain,
)


class TestHolds(StoreTests):
    """Unfinished work stays in sight until there is evidence that nobody works on it."""

    @pytest.fixture
    def driver(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> Driver:
        """A driven conversation, and a newer finished one that fills the list of one."""
        newer(ledger)
        return driven(suite, ledger)

    def test_an_input_that_nobody_drove_is_held(self, ledger: Ledger, conversation: Session) -> None:
        """D13, seed."""
        newer(ledger)
        assert held(ledger) == ["conversation"]

    def test_an_open_turn_is_held(self, ledger: Ledger, driver: Driver) -> None:
        """R15.6."""
        ledger.record_turn_origin("conversation", THREAD, TURN, 1, "first")
        assert held(ledger) == ["conversation"]
        ledger.record("conversation", THREAD, TURN, "completed", {"status": "failed"})
        assert held(ledger) == []

    def test_an_exit_ends_the_hold(self, ledger: Ledger, driver: Driver) -> None:
        """D13: the provider outcome stays unknown."""
        ledger.record_turn_origin("conversation", THREAD, TURN, 1, "first")
        ledger.finish_driver("conversation", driver, "failed")
        assert held(ledger) == []
        [provider] = ledger.input_history(INPUT).providers
        assert (provider.outcome, provider.completed_at) == (None, None)
        assert ledger.inputs(since=2) != []
        assert all(row.session_id != "conversation" for row in ledger.inputs(since=2))

    def test_an_exit_without_any_turn_ends_the_hold(self, ledger: Ledger, driver: Driver) -> None:
        """D13: it was driven, and the driver is gone."""
        ledger.finish_driver("conversation", driver, "failed")
        assert held(ledger) == []

    def test_an_exit_of_another_exec_does_not(self, suite: StoreSetup, ledger: Ledger, driver: Driver) -> None:
        """D13: the exec that began the turn."""
        ledger.record_turn_origin("conversation", THREAD, TURN, 1, "first")
        add_execs(suite, "second")
        second = ledger.claim_driver("conversation", driver, "second")
        ledger.finish_driver("conversation", second, "failed")
        assert held(ledger) == ["conversation"]

    def test_an_earlier_exit_does_not_release_a_later_turn(self, ledger: Ledger, driver: Driver) -> None:
        """D13: an exec that drives again begins anew."""
        ledger.finish_driver("conversation", driver, "failed")
        ledger.claim_driver("conversation", ledger.driver("conversation"), "first")
        ledger.record_turn_origin("conversation", THREAD, TURN, 2, "first")
        assert held(ledger) == ["conversation"]

    def test_a_recorded_death_ends_the_hold_everywhere(self, suite: StoreSetup, ledger: Ledger, driver: Driver) -> None:
        """D13: retained with the source ``death:<exec>``, on any input of any conversation."""
        fixture_session(ledger, "another", None)
        ledger.claim_driver("another", None, "first")
        for id in ("conversation", "another"):
            ledger.record_turn_origin(id, THREAD, TURN, 1, "first")
        assert set(held(ledger)) == {"conversation", "another"}
        retain(ledger, "death:someone", {"pid": 1})
        assert set(held(ledger)) == {"conversation", "another"}
        retain(ledger, "death:first", {"pid": 1})
        assert held(ledger) == []

    def test_a_death_known_before_the_turn_is_seen(self, ledger: Ledger, driver: Driver) -> None:
        """Order does not matter."""
        retain(ledger, "death:first", {"pid": 1})
        ledger.record_turn_origin("conversation", THREAD, TURN, 1, "first")
        assert held(ledger) == []

    def test_an_ended_exec_ends_the_hold(self, ledger: Ledger, driver: Driver) -> None:
        """D13."""
        ledger.record_turn_origin("conversation", THREAD, TURN, 1, "first")
        ledger.end_exec("first", "failed")
        assert held(ledger) == []

    def test_a_completed_session_ends_the_hold(self, ledger: Ledger, driver: Driver) -> None:
        """D13; opened again it is held again."""
        session = ledger.session("conversation")
        assert session is not None
        ledger.record("conversation", THREAD, TURN, "started", {})
        ledger.complete_session("conversation", session.captured)
        assert held(ledger) == []
        ledger.reopen_session("conversation")
        assert held(ledger) == ["conversation"]

    def test_an_open_orphan_turn_is_held(self, ledger: Ledger, driver: Driver) -> None:
        """3.15 (b)."""
        ledger.finish_driver("conversation", driver, "failed")
        ledger.record("conversation", THREAD, TURN, "usage", {"n": 1})
        rows, _ = ledger.recent_inputs(limit=1)
        assert [row.captured for row in rows if row.session_id == "conversation"] == [None]
        ledger.record("conversation", THREAD, TURN, "completed", {"status": "completed"})
        rows, _ = ledger.recent_inputs(since=999, limit=None)
        assert [row.captured for row in rows if row.session_id == "conversation"] == [None]

    # --- D4

    def test_an_outstanding_intent_is_held(self, ledger: Ledger, driver: Driver) -> None:
        """D4: it counts as a turn without completion, until start, refusal or the end of its exec."""
        ledger.intend_turn("conversation", driver, THREAD, "request", {})
        ledger.record("conversation", THREAD, "other", "started", {})
        ledger.record("conversation", THREAD, "other", "completed", {"status": "completed"})
        assert held(ledger) == ["conversation"]
        ledger.refuse_turn("conversation", driver, "request", "no")
        assert held(ledger) == []

    def test_an_outstanding_intent_of_a_replaced_input_is_listed(self, ledger: Ledger, driver: Driver) -> None:
        """D4: as a turn would be."""
        session = ledger.session("conversation")
        assert session is not None
        ledger.intend_turn("conversation", driver, THREAD, "request", {})
        ledger.replace_input("conversation", session.captured)
        assert [row.artifact_key for row in ledger.inputs() if row.session_id == "conversation"] == [INPUT]

    def test_an_exit_after_the_intent_ends_its_hold(self, ledger: Ledger, driver: Driver) -> None:
        """D4: it stays outstanding for recovery."""
        ledger.intend_turn("conversation", driver, THREAD, "request", {})
        ledger.finish_driver("conversation", driver, "failed")
        assert held(ledger) == []
        assert [each.request_id for each in ledger.outstanding_intents("conversation")] == ["request"]

    def test_a_turn_intended_before_the_exit_and_seen_after(self, ledger: Ledger, driver: Driver) -> None:
        """D13: what counts is when it was asked."""
        ledger.intend_turn("conversation", driver, THREAD, "request", {}, turn=TURN)
        ledger.finish_driver("conversation", driver, "failed")
        ledger.record("conversation", THREAD, TURN, "started", {})
        assert held(ledger) == []

    # --- D19

    @pytest.mark.parametrize("word", ["superseded", "absorbed"])
    @pytest.mark.parametrize("first", ["turn", "note"])
    def test_a_turn_that_another_took_over_is_not_held(
        self, ledger: Ledger, driver: Driver, word: str, first: str
    ) -> None:
        """D19: no completion, no hold, whichever is seen first."""
        if first == "note":
            retain(ledger, f"{word}:{THREAD}:{TURN}", {"by": "next"})
        ledger.record_turn_origin("conversation", THREAD, TURN, 1, "first")
        if first == "turn":
            retain(ledger, f"{word}:{THREAD}:{TURN}", {"by": "next"})
        assert held(ledger) == []
        assert ledger.open_turns("conversation") == []
        assert ledger.unfinished_sessions() == []
        [provider] = ledger.input_history(INPUT).providers
        assert provider.outcome is None

    def test_an_absorbed_request_is_not_outstanding(self, ledger: Ledger, driver: Driver) -> None:
        """D19 with D4."""
        ledger.intend_turn("conversation", driver, THREAD, "request", {}, turn=TURN)
        ledger.retain_for_turn("conversation", THREAD, TURN, f"absorbed:{THREAD}:{TURN}", {"by": "next"})
        assert ledger.outstanding_intents("conversation") == []

    @pytest.mark.parametrize(
        "source", [f"SUPERSEDED:{THREAD}:{TURN}", f"note:superseded:{THREAD}:{TURN}", "DEATH:first", "driver:1:exit"]
    )
    def test_words_that_only_look_alike_release_nothing(self, ledger: Ledger, driver: Driver, source: str) -> None:
        """R5.8: keys are compared literally."""
        ledger.record_turn_origin("conversation", THREAD, TURN, 1, "first")
        retain(ledger, source, {"by": "next"})
        assert held(ledger) == ["conversation"]
        assert ledger.verify() == []

    def test_taking_a_release_back_holds_again(self, suite: StoreSetup, ledger: Ledger, driver: Driver) -> None:
        """The lists follow the facts when somebody repairs them."""
        ledger.record_turn_origin("conversation", THREAD, TURN, 1, "first")
        retain(ledger, "death:first", {"pid": 1})
        suite.raw_sql("DELETE FROM session_events WHERE kind = 'observed'")
        assert held(ledger) == ["conversation"]
        assert ledger.verify() == []


def newer(ledger: Ledger) -> None:
    """Create a finished conversation that fills a list of one."""
    ledger.create_session(id="newer", cwd="/f", created_at=900)
    ledger.record("newer", THREAD, TURN, "started", {})
    ledger.record("newer", THREAD, TURN, "completed", {"status": "completed"})


def held(ledger: Ledger) -> list[str]:
    """Name what a list of one shows beside the newest finished input: what is held."""
    rows, _ = ledger.recent_inputs(limit=1)
    return [row.session_id for row in rows if row.session_id != "newer"]
