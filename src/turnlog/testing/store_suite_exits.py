"""Suite: how a driver leaves, and which conversations that closes (semantics 3.9, 3.10)."""

from __future__ import annotations

import pytest

from turnlog import EventKind, InvalidError, Ledger, MissingError, Session, StaleError
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
)


class TestExits(StoreTests):
    """A driver's exit is not a native completion."""

    def test_exit_retires_orphans_and_keeps_primary_task_and_review(self, suite: StoreSetup, ledger: Ledger) -> None:
        """The seed matrix of R10.3; work and kinds are set by plain SQL (freedoms 1 to 3)."""
        suite.raw_sql("INSERT INTO waves (id, name, repo, created_at) VALUES ('wave', 'proof', '/repo', 1)")
        suite.raw_sql(
            "INSERT INTO projects (id, wave_id, external_project_id, created_at)"
            " VALUES ('project', 'wave', 'project-proof', 1)"
        )
        suite.raw_sql(
            "INSERT INTO tasks (id, project_id, external_issue_id, issue_identifier, created_at)"
            " VALUES ('task', 'project', 'issue-proof', 'PROOF-1', 1)"
        )
        for id, kind, primary, retired in (
            ("orphan", "conversation", None, True),
            ("primary", "conversation", "repository", False),
            ("task", "conversation", None, False),
            ("review", "flow_review", None, False),
        ):
            session = fixture_session(ledger, id, None)
            suite.raw_sql(
                "UPDATE agent_sessions SET kind = :kind, primary_scope = :primary WHERE id = :id",
                {"id": id, "kind": kind, "primary": primary},
            )
            if id == "task":
                suite.raw_sql("UPDATE agent_sessions SET task_id = 'task', wave_id = 'wave' WHERE id = 'task'")
            driver = driven(suite, ledger, f"exec-{id}", id)
            ledger.finish_driver(id, driver, "interrupted")
            summary = ledger.session_summary(id)
            assert summary is not None
            assert (summary.session.completed_at is not None) is retired
            assert summary.session.captured == session.captured
            assert summary.driver_outcome == "interrupted"
            history = ledger.history(id)
            assert [event.payload for event in history if event.payload.get("type") == "driver_exit"] == [
                {"type": "driver_exit", "outcome": "interrupted", "generation": 1}
            ]
            assert EventKind.COMPLETED not in {event.kind for event in history}
        assert {session.id for session in ledger.sessions()} == {"primary", "task", "review"}
        assert {session.id for session in ledger.sessions(all=True)} == {"orphan", "primary", "task", "review"}

    def test_a_stopped_turn_and_a_stale_driver_retire_nothing(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """The first seed sequence of 3.9; R10.6."""
        original = driven(suite, ledger)
        add_execs(suite, "second")
        ledger.record("conversation", THREAD, TURN, "started", {})
        ledger.record("conversation", THREAD, TURN, "completed", {"status": "interrupted"})
        summary = ledger.session_summary("conversation")
        assert summary is not None
        assert (summary.session.completed_at, summary.latest_turn) == (None, "interrupted")
        resumed = ledger.claim_driver("conversation", original, "second", replace_engine=True)
        with pytest.raises(StaleError):
            ledger.finish_driver("conversation", original, "interrupted")
        assert ledger.session("conversation") == conversation
        assert ledger.driver("conversation") == resumed
        ledger.finish_driver("conversation", resumed, "completed")
        closed = ledger.session("conversation")
        assert closed is not None
        assert closed.completed_at is not None

    def test_recovered_completion_and_replaced_driver(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """The second seed sequence of 3.9: R1.3, R1.7, R2.4, R2.5."""
        done = {"status": "completed", "error": None, "started_at": 10, "completed_at": 20, "duration_ms": 10_000}
        seq = ledger.record("conversation", THREAD, TURN, "completed", done)
        first = driven(suite, ledger)
        ledger.record_connection("conversation", first, "/original.sock", THREAD)
        ledger.record_process("conversation", first, 12345, 12_000)
        ledger.record_turn_origin("conversation", THREAD, "later", 1, "first")
        add_execs(suite, "second")
        second = ledger.claim_driver("conversation", first, "second", replace_engine=True)
        assert second.provider_generation == 2
        assert (ledger.connection("conversation"), ledger.process("conversation")) == (None, None)
        assert ledger.thread("conversation") == THREAD
        with pytest.raises(StaleError):
            ledger.record_connection("conversation", first, "/stale.sock", "wrong-thread")
        with pytest.raises(StaleError):
            ledger.record_process("conversation", first, 12346, 13_000)
        ledger.record("conversation", THREAD, "later", "usage", {"total": {"inputTokens": 40}})
        ledger.record("conversation", THREAD, "unobserved", "usage", {"total": {"inputTokens": 60}})
        rows = ledger.history("conversation", after=seq, limit=100)
        assert [(row.turn, row.kind, row.provider_generation, row.exec_id) for row in rows] == [
            ("later", "started", 1, "first"),
            ("later", "usage", 1, "first"),
            ("unobserved", "usage", None, None),
        ]

    def test_finish_records_the_exit_on_the_current_input(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """R9.7, R9.8: one transaction, no completion."""
        driver = driven(suite, ledger)
        replaced = ledger.replace_input("conversation", conversation.captured, artifact_key=REPLACEMENT)
        suite.clock.now = 9_000
        ledger.finish_driver("conversation", driver, "failed")
        rows = suite.raw_sql(
            "SELECT receipt_key, exec_id, captured_event, observed_at FROM session_events WHERE kind = 'observed'"
        )
        assert list(rows) == [("driver:1:exit", "first", replaced.captured, 9_000)]
        stored = ledger.driver("conversation")
        assert stored is not None
        assert (stored.exec_id, stored.generation) == (None, 2)
        assert ledger.input_summary(INPUT) == []

    @pytest.mark.parametrize(("closed", "connection"), [(True, None), (False, ("/sock", THREAD))])
    def test_finish_clears_the_endpoint_of_a_closed_engine(
        self,
        suite: StoreSetup,
        ledger: Ledger,
        conversation: Session,
        closed: bool,
        connection: tuple[str, str] | None,
    ) -> None:
        """R9.7."""
        driver = driven(suite, ledger)
        ledger.record_connection("conversation", driver, "/sock", THREAD)
        ledger.finish_driver("conversation", driver, "completed", engine_closed=closed)
        assert ledger.connection("conversation") == connection
        assert ledger.thread("conversation") == THREAD

    def test_driver_outcome_is_that_of_the_last_ended_generation(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """R9.9: a new claim hides an older exit; a release has none."""

        def outcome() -> str | None:
            summary = ledger.session_summary("conversation")
            assert summary is not None
            return summary.driver_outcome

        driver = driven(suite, ledger)
        assert outcome() is None
        ledger.finish_driver("conversation", driver, "failed")
        assert outcome() == "failed"
        add_execs(suite, "second")
        second = ledger.claim_driver("conversation", ledger.driver("conversation"), "second")
        assert outcome() is None
        ledger.release_driver("conversation", second)
        assert outcome() is None

    @pytest.mark.parametrize(("outcome", "retired"), [("completed", True), ("interrupted", True), ("failed", False)])
    def test_only_a_good_end_retires(
        self,
        suite: StoreSetup,
        ledger: Ledger,
        conversation: Session,
        outcome: str,
        retired: bool,
    ) -> None:
        """R10.1, R10.4."""
        ledger.finish_driver("conversation", driven(suite, ledger), outcome)
        session = ledger.session("conversation")
        assert session is not None
        assert (session.completed_at is not None) is retired

    def test_a_handed_over_driver_retires_nothing(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """R10.4: the exiter did not start the engine."""
        first = driven(suite, ledger)
        add_execs(suite, "second")
        second = ledger.claim_driver("conversation", first, "second")
        ledger.finish_driver("conversation", second, "completed")
        assert ledger.session("conversation") == conversation

    @pytest.mark.parametrize(
        ("cwd", "retired"), [("/tree", False), ("/tree/deep/er", False), ("/treehouse", True), ("/", True)]
    )
    def test_a_cwd_inside_a_tasks_worktree_is_an_association(
        self,
        suite: StoreSetup,
        ledger: Ledger,
        cwd: str,
        retired: bool,
    ) -> None:
        """R10.2."""
        ledger.create_wave("w", repo="/repo", id="w")
        ledger.create_project("w", external_id="x", id="p")
        ledger.create_task("p", external_id="x", identifier="X-1", id="t")
        suite.raw_sql("UPDATE tasks SET worktree = '/tree' WHERE id = 't'")
        ledger.create_session(id="conversation", cwd=cwd)
        ledger.finish_driver("conversation", driven(suite, ledger), "completed")
        session = ledger.session("conversation")
        assert session is not None
        assert (session.completed_at is not None) is retired

    def test_a_conversation_of_a_wave_stays_open(self, suite: StoreSetup, ledger: Ledger) -> None:
        """R10.1."""
        wave = ledger.create_wave("w", repo="/repo")
        ledger.create_session(id="conversation", cwd="/f", wave_id=wave.id)
        ledger.finish_driver("conversation", driven(suite, ledger), "completed")
        session = ledger.session("conversation")
        assert session is not None
        assert session.completed_at is None

    def test_history_of_a_retired_conversation_stays(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """R10.5; receipts that come late are welcome."""
        driver = driven(suite, ledger)
        ledger.record_turn_origin("conversation", THREAD, TURN, 1, "first")
        ledger.finish_driver("conversation", driver, "completed")
        assert ledger.sessions() == []
        ledger.record("conversation", THREAD, TURN, "completed", {"status": "completed"})
        assert [event.kind for event in ledger.input_summary(INPUT)] == ["started", "completed"]
        again = ledger.claim_driver("conversation", ledger.driver("conversation"), "first", replace_engine=True)
        assert again.generation == 3

    def test_exits_that_cannot_be(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """Nothing is written."""
        driver = driven(suite, ledger)
        with pytest.raises(InvalidError):
            ledger.finish_driver("conversation", driver, "")
        with pytest.raises(MissingError):
            ledger.finish_driver("nobody", driver, "completed")
        assert ledger.driver("conversation") == driver
        assert len(ledger.history("conversation")) == 1
