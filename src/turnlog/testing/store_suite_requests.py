"""Suite: requests to a running driver (D20)."""

from __future__ import annotations

import threading

import pytest

from turnlog import InvalidError, Ledger, MissingError, Session, StaleError
from turnlog.testing.store_suite_base import StoreSetup, StoreTests, add_execs, driven


class TestRequests(StoreTests):
    """Any terminal may write one; only the driving process takes it, once."""

    def test_a_request_waits_for_the_driver(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """D20: queued, sent, accepted."""
        driver = driven(suite, ledger)
        id = ledger.request("conversation", "steer", "left", exec_id="first")
        [queued] = ledger.requests("conversation")
        assert (queued.id, queued.kind, queued.text, queued.by_exec, queued.state) == (
            id,
            "steer",
            "left",
            "first",
            "queued",
        )
        assert (queued.session_id, queued.created_at, queued.settled_at) == ("conversation", suite.clock(), None)
        assert [each.id for each in ledger.take_requests("conversation", driver)] == [id]
        sent = ledger.request_state(id)
        assert sent is not None
        assert sent.state == "sent"
        suite.clock.advance(10)
        ledger.settle_request(id, "accepted", "by turn 1")
        settled = ledger.request_state(id)
        assert settled is not None
        assert (settled.state, settled.settled_at, settled.detail) == ("accepted", suite.clock(), "by turn 1")

    def test_requests_keep_their_order_whatever_the_clock_does(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """Order is never by time."""
        driver = driven(suite, ledger)
        made = []
        for text in ("one", "two", "three"):
            made.append(ledger.request("conversation", "steer", text))
            suite.clock.advance(-100)
        assert [each.id for each in ledger.requests("conversation")] == made
        assert [each.text for each in ledger.take_requests("conversation", driver)] == ["one", "two", "three"]

    def test_each_request_is_taken_once(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """D20, also by several threads of the driver."""
        driver = driven(suite, ledger)
        made = {ledger.request("conversation", "interrupt") for _ in range(20)}
        taken: list[str] = []
        gate = threading.Barrier(4)

        def take() -> None:
            gate.wait(10)
            taken.extend(each.id for each in ledger.take_requests("conversation", driver))

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert sorted(taken) == sorted(made)
        assert ledger.take_requests("conversation", driver) == []

    def test_taking_is_fenced(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """Promise 3."""
        driver = driven(suite, ledger)
        id = ledger.request("conversation", "permission", '{"id":"p","answer":"once"}')
        add_execs(suite, "second")
        second = ledger.claim_driver("conversation", driver, "second")
        with pytest.raises(StaleError):
            ledger.take_requests("conversation", driver)
        waiting = ledger.request_state(id)
        assert waiting is not None
        assert waiting.state == "queued"
        assert [each.id for each in ledger.take_requests("conversation", second)] == [id]

    @pytest.mark.parametrize("state", ["accepted", "not_steerable", "uncertain", "refused"])
    def test_a_settled_request_stays(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session, state: str
    ) -> None:
        """It moves forward only."""
        driver = driven(suite, ledger)
        id = ledger.request("conversation", "steer", "x")
        ledger.take_requests("conversation", driver)
        ledger.settle_request(id, state)
        ledger.settle_request(id, state)
        before = ledger.request_state(id)
        ledger.settle_request(id, "uncertain", "again")
        assert ledger.request_state(id) == before
        assert ledger.requests("conversation", open_only=True) == []

    def test_requests_that_cannot_be(self, ledger: Ledger, conversation: Session) -> None:
        """Nothing is written."""
        with pytest.raises(InvalidError):
            ledger.request("conversation", "shout", "x")
        with pytest.raises(MissingError):
            ledger.request("nobody", "steer", "x")
        with pytest.raises(MissingError):
            ledger.settle_request("nothing", "accepted")
        id = ledger.request("conversation", "steer", "x")
        for state in ("accepted", "queued-again", "sent-twice"):
            with pytest.raises(InvalidError):
                ledger.settle_request(id, state)
        assert ledger.request_state("nothing") is None
        assert ledger.requests("nobody") == []
        assert [each.state for each in ledger.requests("conversation")] == ["queued"]

    def test_requests_of_one_conversation_are_not_anothers(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """By session."""
        driver = driven(suite, ledger)
        ledger.create_session(id="other", cwd="/f")
        ledger.request("other", "steer", "x")
        assert ledger.requests("conversation") == []
        assert ledger.take_requests("conversation", driver) == []
