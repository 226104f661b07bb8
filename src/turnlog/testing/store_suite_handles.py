"""Suite: threads, handles, read-only handles, values, care (contract 1, appendix B, promise 1)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from turnlog import Ledger, Session, TurnlogError, UnavailableError, open_ledger
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
    insert_observed,
    retain,
    turn_rows,
)

DONE = {"status": "completed"}


class TestHandles(StoreTests):
    """One ledger, however many look at it."""

    # --- handles and threads

    def test_two_handles_see_one_ledger(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """Freedom 9."""
        with suite.open() as other:
            seq = other.record("conversation", THREAD, TURN, "started", {})
            assert ledger.record("conversation", THREAD, TURN, "started", {}) == seq
            assert ledger.history("conversation") == other.history("conversation")
        assert ledger.history("conversation")[-1].seq == seq

    def test_two_handles_cannot_both_insert(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """R1.6: one row, one seq, whoever comes first."""
        with suite.open() as other:
            for number in range(10):
                gate = threading.Barrier(2)

                def record(handle: Ledger, number: int = number, gate: threading.Barrier = gate) -> int:
                    gate.wait(10)
                    return handle.record("conversation", THREAD, str(number), "completed", DONE)

                with ThreadPoolExecutor(2) as pool:
                    one, two = pool.map(record, (ledger, other))
                assert one == two

    def test_several_threads_on_one_ledger(self, ledger: Ledger, conversation: Session) -> None:
        """Contract 1: every receipt once; a reader that tails by seq skips nothing."""
        workers, each = 4, 40
        seen: list[int] = []
        done = threading.Event()

        def write(worker: int) -> None:
            for number in range(each):
                ledger.record("conversation", THREAD, TURN, "usage", {"worker": worker, "number": number})
                ledger.record("conversation", THREAD, TURN, "usage", {"shared": number})

        def tail() -> None:
            last = conversation.captured
            while True:
                final = done.is_set()
                for event in ledger.history("conversation", after=last):
                    seen.append(event.seq)
                    last = event.seq
                if final:
                    return

        reader = threading.Thread(target=tail)
        reader.start()
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(write, range(workers)))
        done.set()
        reader.join(30)
        rows = ledger.history("conversation", after=conversation.captured)
        assert len(rows) == (workers + 1) * each
        assert seen == [row.seq for row in rows]
        for worker in range(workers):
            mine = [row.payload["number"] for row in rows if row.payload.get("worker") == worker]
            assert mine == list(range(each))
        assert ledger.verify() == []

    def test_a_change_of_another_is_noticed(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """D20: cheap enough to poll."""
        token = ledger.change_token()
        assert ledger.change_token() == token
        with suite.open() as other:
            other.record("conversation", THREAD, TURN, "started", {})
        assert ledger.change_token() != token

    def test_close_is_idempotent_and_final(self, suite: StoreSetup) -> None:
        """Contract 1."""
        ledger = suite.open()
        fixture_session(ledger)
        ledger.close()
        ledger.close()
        with pytest.raises(UnavailableError):
            ledger.history("conversation")
        with pytest.raises(UnavailableError):
            ledger.record("conversation", THREAD, TURN, "started", {})
        with suite.open() as again:
            assert again.session("conversation") is not None

    # --- read-only

    def test_a_read_only_handle_reads_everything_and_writes_nothing(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """2.6: it never writes."""
        driver = driven(suite, ledger)
        ledger.record_many("conversation", turn_rows())
        id = ledger.request("conversation", "steer", "x")
        before = ledger.history("conversation")
        with suite.open(read_only=True) as reader:
            assert reader.history("conversation") == before
            assert reader.input_history(INPUT) == ledger.input_history(INPUT)
            assert reader.recent_inputs() == ledger.recent_inputs()
            assert reader.verify() == []

            def drive() -> None:
                with reader.driving("conversation", driver):
                    pass

            for write in (
                lambda: fixture_session(reader, "other", None),
                reader.start_exec,
                lambda: reader.record("conversation", THREAD, "2", "started", {}),
                lambda: reader.record_many("conversation", turn_rows()),
                lambda: retain(reader, "note", {}),
                lambda: reader.replace_input("conversation", conversation.captured),
                lambda: reader.claim_driver("conversation", driver, "first"),
                lambda: reader.release_driver("conversation", driver),
                lambda: reader.finish_driver("conversation", driver, "completed"),
                lambda: reader.heartbeat("conversation", driver),
                lambda: reader.request("conversation", "steer", "y"),
                lambda: reader.settle_request(id, "uncertain"),
                drive,
            ):
                with pytest.raises(UnavailableError):
                    write()
            seq = ledger.record("conversation", THREAD, "2", "started", {})
            assert reader.history("conversation", after=before[-1].seq)[-1].seq == seq

    # --- values

    def test_values_are_frozen_and_compare_by_value(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """Contract 1: tuples rather than lists."""
        driver = driven(suite, ledger)
        ledger.record_many("conversation", turn_rows())
        retain(ledger, "events.jsonl:0", {})
        made = ledger.start_exec(command=["x"])
        for read in (
            lambda: ledger.session("conversation"),
            lambda: ledger.driver("conversation"),
            lambda: ledger.exec(made.id),
            lambda: ledger.history("conversation")[1],
            lambda: ledger.input_history(INPUT),
            lambda: ledger.input_history(INPUT).usage,
            lambda: ledger.input_history(INPUT).providers[0],
            lambda: ledger.final_answer(INPUT),
            lambda: ledger.session_summary("conversation"),
        ):
            value = read()
            assert value == read()
            assert value is not None
            with pytest.raises(AttributeError):
                setattr(value, type(value).__struct_fields__[0], None)
        record = ledger.input_history(INPUT)
        assert isinstance(record.providers, tuple)
        assert isinstance(record.usage.gap_list, tuple)
        assert hash(driver) == hash(ledger.driver("conversation"))

    # --- appendix B

    def test_the_freedoms_of_the_schema(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """Appendix B 1 to 8 by plain SQL; the lists stay right."""
        add_execs(suite, "exec")
        suite.raw_sql("INSERT INTO waves (id, name, repo, created_at) VALUES ('w', 'proof', '/repo', 1)")
        suite.raw_sql(
            "INSERT INTO projects (id, wave_id, external_project_id, created_at) VALUES ('p', 'w', 'external', 1)"
        )
        suite.raw_sql(
            "INSERT INTO tasks (id, project_id, external_issue_id, issue_identifier, created_at)"
            " VALUES ('t', 'p', 'issue', 'PROOF-1', 1)"
        )
        suite.raw_sql(
            "UPDATE agent_sessions SET kind = 'conversation', primary_scope = 'repository', task_id = 't',"
            " wave_id = 'w'"
        )
        ledger.record("conversation", "thread", "1", "usage", {"n": 1})
        suite.raw_sql("UPDATE session_events SET observed_at = 77 WHERE provider_turn = '1'")
        insert_observed(suite, conversation, f"{INPUT}:events.jsonl:1", "{")
        suite.raw_sql(
            "INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key, wave_id,"
            " observed_at, payload) VALUES ('conversation', 'thread', 'owned', 'started', '', 'w', 110, '{}')"
        )
        driver = ledger.claim_driver("conversation", None, "exec")
        ledger.record_connection("conversation", driver, "/original.sock", "thread")
        ledger.record_process("conversation", driver, 2**31, 12)
        assert [row.observed_at for row in ledger.inputs(since=50)] == [110, 77]
        assert [problem.kind for problem in ledger.verify()] == ["unreadable"]

    def test_an_input_can_be_neither_changed_nor_deleted(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """2.3 guards: by nobody."""
        for statement in (
            "UPDATE session_events SET observed_at = 5 WHERE kind = 'captured'",
            "DELETE FROM session_events WHERE kind = 'captured'",
        ):
            with pytest.raises(Exception, match="captured row"):
                suite.raw_sql(statement)
        assert ledger.session("conversation") == conversation

    def test_guards_of_bindings_and_ancestry(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """2.3 guards."""
        fixture_session(ledger, "other", REPLACEMENT)
        for id in ("one", "two"):
            ledger.create_wave(id, repo="/repo", id=id)
        ledger.create_project("one", external_id="x", id="p")
        ledger.create_task("p", external_id="x", identifier="X-1", id="t")
        ledger.bind_session("conversation", conversation.captured, "t")
        for statement in (
            "UPDATE agent_sessions SET task_id = NULL WHERE id = 'conversation'",
            "UPDATE agent_sessions SET wave_id = 'two' WHERE id = 'conversation'",
            "UPDATE agent_sessions SET task_id = 't', wave_id = 'two' WHERE id = 'other'",
            "UPDATE agent_sessions SET current_capture = :capture WHERE id = 'other'",
        ):
            with pytest.raises(Exception, match=r"binding|together|current_capture|UNIQUE"):
                suite.raw_sql(statement, {"capture": conversation.captured} if ":" in statement else {})
        assert ledger.verify() == []

    # --- care

    def test_verify_finds_nothing_in_a_used_ledger(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """Promise 5's care: everything that can be recomputed agrees."""
        driver = driven(suite, ledger)
        ledger.intend_turn("conversation", driver, THREAD, "request", {}, turn=TURN)
        ledger.record_many("conversation", turn_rows())
        replaced = ledger.replace_input("conversation", conversation.captured, artifact_key=REPLACEMENT)
        ledger.publish_input("conversation", replaced.captured)
        ledger.finish_driver("conversation", driver, "completed")
        ledger.end_exec("first", "succeeded")
        ledger.reopen_session("conversation")
        assert ledger.verify() == []

    def test_backup_is_a_whole_ledger(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session, tmp_path: Path
    ) -> None:
        """Contract 2: online, into a new file."""
        ledger.record_many("conversation", turn_rows())
        target = tmp_path / "backup.db"
        ledger.backup(target)
        with open_ledger(f"sqlite:///{target}", read_only=True) as copy:
            assert copy.history("conversation") == ledger.history("conversation")
            assert copy.verify() == []
        with pytest.raises(TurnlogError):
            ledger.backup(target)
