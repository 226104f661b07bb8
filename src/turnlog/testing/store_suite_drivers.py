"""Suite: who may write to a conversation (semantics 3.9, 3.11, D10)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from turnlog import Driver, InvalidError, Ledger, MissingError, Session, StaleError, UnavailableError
from turnlog.testing.store_suite_base import THREAD, TURN, StoreSetup, StoreTests, add_execs, driven


class TestDrivers(StoreTests):
    """The whole tuple is the fencing token."""

    def test_first_claim(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """R9.2: generation 1, provider generation 1, whatever the flag says."""
        assert ledger.driver("conversation") is None
        add_execs(suite, "first")
        driver = ledger.claim_driver("conversation", None, "first", replace_engine=False)
        assert driver == Driver(exec_id="first", generation=1, provider_generation=1, provider_exec_id="first")
        assert ledger.driver("conversation") == driver

    def test_live_hand_over_keeps_the_engine(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """R9.3."""
        driver = driven(suite, ledger)
        ledger.record_connection("conversation", driver, "/original.sock", THREAD)
        ledger.record_process("conversation", driver, 12345, 12_000)
        add_execs(suite, "second")
        second = ledger.claim_driver("conversation", driver, "second")
        assert second == Driver(exec_id="second", generation=2, provider_generation=1, provider_exec_id="first")
        assert ledger.connection("conversation") == ("/original.sock", THREAD)
        assert ledger.process("conversation") == (12345, 12_000)

    def test_replacement_clears_the_engine_and_keeps_the_thread(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """R9.4, R11.1, R11.2."""
        driver = driven(suite, ledger)
        ledger.record_connection("conversation", driver, "/original.sock", THREAD)
        ledger.record_process("conversation", driver, 12345, 12_000)
        add_execs(suite, "second")
        second = ledger.claim_driver("conversation", driver, "second", replace_engine=True)
        assert second == Driver(exec_id="second", generation=2, provider_generation=2, provider_exec_id="second")
        assert ledger.connection("conversation") is None
        assert ledger.process("conversation") is None
        assert ledger.thread("conversation") == THREAD

    def test_a_claim_needs_the_whole_tuple(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """R9.1: every field counts."""
        driver = driven(suite, ledger)
        add_execs(suite, "second")
        e, g, p, x = driver.exec_id, driver.generation, driver.provider_generation, driver.provider_exec_id
        wrong = [
            None,
            Driver(exec_id=None, generation=g, provider_generation=p, provider_exec_id=x),
            Driver(exec_id="second", generation=g, provider_generation=p, provider_exec_id=x),
            Driver(exec_id=e, generation=g + 1, provider_generation=p, provider_exec_id=x),
            Driver(exec_id=e, generation=g, provider_generation=p + 1, provider_exec_id=x),
            Driver(exec_id=e, generation=g, provider_generation=p, provider_exec_id="second"),
            Driver(exec_id=e, generation=g, provider_generation=p, provider_exec_id=None),
        ]
        for expected in wrong:
            with pytest.raises(StaleError):
                ledger.claim_driver("conversation", expected, "second", replace_engine=True)
        assert ledger.driver("conversation") == driver

    def test_claims_of_nobody_and_nothing(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """An exec must be recorded before it drives."""
        with pytest.raises(MissingError):
            ledger.claim_driver("conversation", None, "nobody")
        add_execs(suite, "first")
        with pytest.raises(MissingError):
            ledger.claim_driver("nothing", None, "first")
        assert ledger.driver("conversation") is None

    def test_a_closed_review_is_not_claimed(self, suite: StoreSetup, ledger: Ledger) -> None:
        """R9.5."""
        review = ledger.create_session(id="review", kind="flow_review", cwd="/f")
        ledger.ready_session("review", review.captured, "fine")
        ledger.complete_session("review", review.captured)
        add_execs(suite, "first")
        with pytest.raises(StaleError):
            ledger.claim_driver("review", None, "first")

    def test_release(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """R9.6: the engine's records stay; the same tuple cannot let go twice."""
        driver = driven(suite, ledger)
        ledger.record_connection("conversation", driver, "/sock", THREAD)
        released = ledger.release_driver("conversation", driver)
        assert released == Driver(exec_id=None, generation=2, provider_generation=1, provider_exec_id="first")
        assert ledger.driver("conversation") == released
        assert ledger.connection("conversation") == ("/sock", THREAD)
        with pytest.raises(StaleError):
            ledger.release_driver("conversation", driver)
        add_execs(suite, "second")
        again = ledger.claim_driver("conversation", released, "second")
        assert (again.generation, again.provider_generation, again.provider_exec_id) == (3, 1, "first")

    def test_no_stale_driver_writes_anything(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """R9.10, 8.4 case 5: connection, process, launch, heartbeat, intent, dispatch, finish."""
        driver = driven(suite, ledger)
        ledger.record_connection("conversation", driver, "/sock", THREAD)
        add_execs(suite, "second")
        second = ledger.claim_driver("conversation", driver, "second")
        released = ledger.release_driver("conversation", second)
        before = (ledger.history("conversation"), ledger.engine("conversation"), ledger.session("conversation"))
        for stale in (driver, second, released):
            for write in fenced_writes(ledger, stale):
                with pytest.raises(StaleError):
                    write()
        assert (
            ledger.history("conversation"),
            ledger.engine("conversation"),
            ledger.session("conversation"),
        ) == before
        assert ledger.driver("conversation") == released

    def test_the_current_driver_writes_everything(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """R9.10, the other side."""
        driver = driven(suite, ledger)
        for write in fenced_writes(ledger, driver):
            write()

    def test_launch_records(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """R11.3: once per provider generation and stage."""
        driver = driven(suite, ledger)
        ledger.record_launch("conversation", driver, "reserved")
        ledger.record_launch("conversation", driver, "reserved")
        assert ledger.launched("conversation", 1, "reserved")
        assert not ledger.launched("conversation", 1, "spawn_requested")
        ledger.record_launch("conversation", driver, "spawn_requested")
        keys = suite.raw_sql("SELECT receipt_key FROM session_events WHERE kind = 'observed' ORDER BY seq")
        assert list(keys) == [("provider:1:reserved",), ("provider:1:spawn_requested",)]
        assert ledger.history("conversation")[-1].payload["type"] == "provider_launch"
        with pytest.raises(InvalidError):
            ledger.record_launch("conversation", driver, "landed")

    def test_connection_and_process_are_whole_or_none(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """R11.1, R11.2."""
        driver = driven(suite, ledger)
        ledger.record_connection("conversation", driver, None, THREAD)
        assert ledger.connection("conversation") is None
        assert ledger.thread("conversation") == THREAD
        assert ledger.process("conversation") is None
        for read in (ledger.connection, ledger.thread, ledger.process, ledger.driver, ledger.engine):
            assert read("nobody") is None

    def test_heartbeat(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """Every fenced write says that the driver lives."""
        driver = driven(suite, ledger)
        suite.clock.now = 8_000
        ledger.heartbeat("conversation", driver)
        engine = ledger.engine("conversation")
        assert engine is not None
        assert engine.heartbeat_at == 8_000

    # --- D10

    def test_driving_excludes_claim_release_and_finish(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """R9.11: a replaced driver's late send cannot interleave; waiting is bounded."""
        driver = driven(suite, ledger)
        add_execs(suite, "second")
        with suite.impatient() as other, ledger.driving("conversation", driver):
            for change in (
                lambda: other.claim_driver("conversation", driver, "second", replace_engine=True),
                lambda: other.release_driver("conversation", driver),
                lambda: other.finish_driver("conversation", driver, "completed"),
            ):
                with pytest.raises(UnavailableError):
                    change()
            assert ledger.driver("conversation") == driver
            other.record("conversation", THREAD, TURN, "started", {})
        assert ledger.claim_driver("conversation", driver, "second").exec_id == "second"

    def test_driving_of_one_conversation_does_not_hinder_another(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """R9.11: of the same conversation only."""
        driver = driven(suite, ledger)
        ledger.create_session(id="other", cwd="/f")
        add_execs(suite, "second")
        with suite.impatient() as other, ledger.driving("conversation", driver):
            other.claim_driver("other", None, "second")

    def test_a_waiting_claim_comes_through_after_the_write(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """R9.11: the claimer waits; the write ends before the tuple changes."""
        driver = driven(suite, ledger)
        add_execs(suite, "second")
        order: list[str] = []
        asked = threading.Event()

        def claim() -> None:
            asked.set()
            ledger.claim_driver("conversation", driver, "second", replace_engine=True)
            order.append("claimed")

        claimer = threading.Thread(target=claim)
        with ledger.driving("conversation", driver):
            claimer.start()
            assert asked.wait(10)
            ledger.record("conversation", THREAD, TURN, "usage", {"sent": True})
            order.append("written")
        claimer.join(20)
        assert order == ["written", "claimed"]
        with pytest.raises(StaleError), ledger.driving("conversation", driver):
            order.append("never")
        assert order == ["written", "claimed"]

    def test_an_error_inside_driving_frees_the_conversation(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """Nothing stays locked."""
        driver = driven(suite, ledger)
        with pytest.raises(ZeroDivisionError), ledger.driving("conversation", driver):
            raise ZeroDivisionError
        with suite.impatient() as other:
            other.release_driver("conversation", driver)

    def test_concurrent_claims_have_one_winner(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """R9.1 under threads: each generation is won once."""
        names = [f"exec{n}" for n in range(4)]
        add_execs(suite, *names)
        won: list[Driver] = []
        lost: list[StaleError] = []
        expected: Driver | None = None
        for _ in range(3):
            gate = threading.Barrier(len(names))

            def claim(name: str, expected: Driver | None = expected, gate: threading.Barrier = gate) -> None:
                gate.wait(10)
                try:
                    won.append(ledger.claim_driver("conversation", expected, name))
                except StaleError as error:
                    lost.append(error)

            threads = [threading.Thread(target=claim, args=(name,)) for name in names]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)
            expected = ledger.driver("conversation")
        assert [driver.generation for driver in won] == [1, 2, 3]
        assert len(lost) == 9
        assert ledger.driver("conversation") == won[-1]


def fenced_writes(ledger: Ledger, driver: Driver) -> list[Callable[[], object]]:
    """Return every write that needs the current driver; the last one lets go."""

    def dispatch() -> None:
        with ledger.driving("conversation", driver):
            pass

    return [
        lambda: ledger.record_connection("conversation", driver, "/stale.sock", "wrong-thread"),
        lambda: ledger.record_process("conversation", driver, 12346, 13_000),
        lambda: ledger.record_launch("conversation", driver, "reserved"),
        lambda: ledger.heartbeat("conversation", driver),
        lambda: ledger.intend_turn("conversation", driver, THREAD, "request", {}),
        lambda: ledger.take_requests("conversation", driver),
        dispatch,
        lambda: ledger.finish_driver("conversation", driver, "completed"),
    ]
