"""Suite: receipts, their keys and conflicts, attribution, and the strict reads (semantics 3.1, 3.2, 3.5)."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from turnlog import ConflictError, EventKind, InvalidError, Ledger, MissingError, Session, TurnlogError
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
    envelope,
    fixture_session,
    manifest,
    retain,
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
        assert len(seqs) == 4  # noqa: PLR2004

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
            "SELECT kind, task_id, wave_id, captured_event FROM session_events WHERE provider_turn = :turn ORDER BY seq",
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

    # --- 3.5

    def test_history_pages_by_seq(self, ledger: Ledger, conversation: Session) -> None:
        """R5.1, R5.2; limit None = all, a limit that is not positive is an error."""
        seqs = [ledger.record("conversation", THREAD, str(n), "started", {}) for n in range(5)]
        everything = [conversation.captured, *seqs]
        assert [event.seq for event in ledger.history("conversation")] == everything
        assert [event.seq for event in ledger.history("conversation", 0, 2)] == everything[:2]
        assert [event.seq for event in ledger.history("conversation", after=seqs[1], limit=2)] == seqs[2:4]
        assert ledger.history("conversation", after=seqs[-1]) == []
        for limit in (0, -1):
            with pytest.raises(InvalidError):
                ledger.history("conversation", limit=limit)

    def test_history_of_a_session_holds_nothing_of_another(self, ledger: Ledger, conversation: Session) -> None:
        """R5.1."""
        other = fixture_session(ledger, "other", None)
        ledger.record("other", THREAD, TURN, "started", {})
        assert [event.seq for event in ledger.history("conversation")] == [conversation.captured]
        assert [event.session_id for event in ledger.history("other")] == ["other", "other"]
        assert ledger.history("other")[0].seq == other.captured

    @pytest.mark.parametrize("text", ["{", "", "nul", '{"a":1', "[1,]", '"\\ud800"'])
    def test_an_unreadable_payload_fails_the_exact_reads(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session, text: str
    ) -> None:
        """R5.3, freedom 5."""
        insert_observed(suite, conversation, f"{INPUT}:events.jsonl:1", text)
        for read in (
            lambda: ledger.history("conversation"),
            lambda: ledger.input_summary(INPUT),
            lambda: ledger.input_events(INPUT),
            lambda: ledger.input_history(INPUT),
        ):
            with pytest.raises(InvalidError):
                read()
        assert len(ledger.history("conversation", after=0, limit=1)) == 1

    def test_an_unknown_kind_fails_the_exact_read(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """R5.3, 3.14."""
        suite.raw_sql(
            "INSERT INTO session_events (session_id, kind, receipt_key, observed_at, payload)"
            " VALUES ('conversation', 'unheard', '', 1, '{}')"
        )
        with pytest.raises(TurnlogError) as caught:
            ledger.history("conversation")
        assert "unheard" in caught.value.message

    def test_summary_leaves_text_out_and_keeps_what_it_does_not_know(
        self, ledger: Ledger, conversation: Session
    ) -> None:
        """R5.4 to R5.7 and the seed case: text 0, an undecodable usage 1, unparsed 2."""
        text = "retained transcript " * 4096
        events = [
            {"schema_version": 1, "seq": 0, "type": "conversation", "event": {"type": "text_delta", "content": text}},
            {"schema_version": 1, "seq": 1, "type": "usage", "usage": {"input_tokens": 12}},
            {"unparsed": "partial historical event"},
        ]
        for number, event in enumerate(events):
            retain(ledger, f"events.jsonl:{number}", event)
        summary = ledger.input_summary(INPUT)
        assert [row.payload["evidence"] for row in summary] == events[1:]
        assert summary[0].payload == {"input_id": INPUT, "source": "events.jsonl:1", "evidence": events[1]}
        assert ledger.input_events(INPUT) == events
        assert len(ledger.history("conversation")) == 4  # noqa: PLR2004

    @pytest.mark.parametrize(
        "kind",
        ["activity", "handoff", "user_input", "conversation", "text", "tool_use", "result", "provider_output"],
    )
    def test_text_is_left_out_only_with_schema_one(self, ledger: Ledger, conversation: Session, kind: str) -> None:
        """R5.5, R5.6."""
        retain(ledger, "events.jsonl:0", {"schema_version": 1, "type": kind})
        retain(ledger, "events.jsonl:1", {"schema_version": 2, "type": kind})
        retain(ledger, "events.jsonl:2", {"type": kind})
        assert [row.payload["source"] for row in ledger.input_summary(INPUT)] == ["events.jsonl:1", "events.jsonl:2"]

    def test_prefixes_are_compared_literally(self, suite: StoreSetup, ledger: Ledger) -> None:
        """R5.8: wildcards in keys mean themselves."""
        for id, key in (("a", "x_%"), ("b", "xy%"), ("c", "x_z")):
            add_raw_session(suite, id, key)
            suite.raw_sql(
                "INSERT INTO session_events (session_id, kind, receipt_key, observed_at, payload, captured_event)"
                " SELECT session_id, 'observed', receipt_key || ':events.jsonl:0', 1, :payload, seq"
                " FROM session_events WHERE kind = 'captured' AND session_id = :id",
                {"id": id, "payload": canonical({"evidence": {"of": id}, "source": "events.jsonl:0"})},
            )
        for id, key in (("a", "x_%"), ("b", "xy%"), ("c", "x_z")):
            assert ledger.input_events(key) == [{"of": id}]
            assert len(ledger.input_summary(key)) == 1

    def test_summary_in_a_scope(self, ledger: Ledger) -> None:
        """R5.9: own attribution for observations, the origin's for turns; manifest and terminal always pass."""
        task, wave = work(ledger)
        conversation = fixture_session(ledger)
        retain(ledger, "manifest.json", manifest())
        retain(ledger, "terminal.json", {"schema_version": 1})
        retain(ledger, "runs", {})
        retain(ledger, "events.jsonl:0", envelope(0, type="new"), task_id=task, wave_id=wave)
        retain(ledger, "events.jsonl:1", envelope(1, type="new"))
        ledger.record("conversation", THREAD, "before", "started", {})
        ledger.bind_session("conversation", conversation.captured, task)
        ledger.record_many("conversation", turn_rows())
        always = ["manifest.json", "terminal.json", "runs"]
        inside = [*always, "events.jsonl:0", *[(TURN, kind) for kind in ("started", "usage", "completed", "output")]]
        for scope in (
            {"wave": wave},
            {"wave": "proof"},
            {"project": "project"},
            {"project": "slug"},
            {"project": "project-proof"},
            {"task": task},
            {"task": "PROOF-1"},
            {"task": "issue-proof"},
            {"wave": "proof", "task": "PROOF-1"},
        ):
            assert labels(ledger, **scope) == inside
        for scope in ({"wave": "other"}, {"project": "other"}, {"task": "other"}, {"wave": wave, "task": "other"}):
            assert labels(ledger, **scope) == always
        assert len(ledger.input_summary(INPUT)) == len(inside) + 2

    def test_orphans_of_exactly_one_turn(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """R5.10: no start, or a start without capture; compared null-safe."""
        ledger.record("conversation", THREAD, TURN, "usage", {"n": 1})
        ledger.record("conversation", THREAD, TURN, "completed", DONE)
        ledger.record("conversation", THREAD, "other", "usage", {"n": 1})
        ledger.record("conversation", "other", TURN, "usage", {"n": 1})
        ledger.record("conversation", THREAD, "seen", "started", {})
        suite.raw_sql(
            "INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key, wave_id,"
            " observed_at, payload) VALUES ('conversation', :thread, 'owned', 'started', '', 'wave', 5, '{}')",
            {"thread": THREAD},
        )
        suite.raw_sql(
            "INSERT INTO session_events (session_id, kind, receipt_key, observed_at, payload)"
            " VALUES ('conversation', 'usage', 'key', 5, '{}')"
        )
        assert [row.kind for row in ledger.orphaned_history("conversation", THREAD, TURN)] == ["usage", "completed"]
        assert ledger.orphaned_history("conversation", THREAD, "seen") == []
        assert [row.wave_id for row in ledger.orphaned_history("conversation", THREAD, "owned")] == ["wave"]
        assert [row.thread for row in ledger.orphaned_history("conversation", None, None)] == [None]
        assert ledger.orphaned_history("conversation", THREAD, TURN, wave="wave") == []
        assert ledger.orphaned_history("nobody", THREAD, TURN) == []


def turn_rows() -> list[tuple[str, str, str, Any]]:
    """Return one whole turn."""
    return [
        (THREAD, TURN, "started", {}),
        (THREAD, TURN, "usage", {"n": 1}),
        (THREAD, TURN, "completed", DONE),
        (THREAD, TURN, "output", {"text": "done"}),
    ]


def work(ledger: Ledger) -> tuple[str, str]:
    """Create the wave, project and task of the seeds; return (task id, wave id)."""
    wave = ledger.create_wave("proof", repo="/repo")
    project = ledger.create_project(wave.id, external_id="project-proof", slug="slug", id="project")
    task = ledger.create_task(project.id, external_id="issue-proof", identifier="PROOF-1")
    return task.id, wave.id


def labels(ledger: Ledger, **scope: str) -> list[Any]:
    """Name the rows of a scoped summary: sources of observations, (turn, kind) of receipts."""
    return [
        row.payload["source"] if row.kind is EventKind.OBSERVED else (row.turn, row.kind)
        for row in ledger.input_summary(INPUT, **scope)
    ]


def insert_observed(suite: StoreSetup, session: Session, key: str, text: str) -> None:
    """Insert an observation as freedom 5 does."""
    suite.raw_sql(
        "INSERT INTO session_events (session_id, kind, receipt_key, observed_at, payload, captured_event)"
        " VALUES (:session, 'observed', :key, 10, :payload, :capture)",
        {"session": session.id, "key": key, "payload": text, "capture": session.captured},
    )


def add_raw_session(suite: StoreSetup, id: str, key: str) -> None:
    """Create a conversation by SQL alone, so that its key may be any text."""
    suite.raw_sql(
        "INSERT INTO agent_sessions (id, title, title_source, created_at, input_published, cwd)"
        " VALUES (:id, 'raw', 'human', 1, 1, '/fixture')",
        {"id": id},
    )
    suite.raw_sql(
        "INSERT INTO session_events (session_id, kind, receipt_key, observed_at, payload)"
        " VALUES (:id, 'captured', :key, 1, '{}')",
        {"id": id, "key": key},
    )
    suite.raw_sql(
        "UPDATE agent_sessions SET current_capture = (SELECT seq FROM session_events WHERE kind = 'captured'"
        " AND receipt_key = :key) WHERE id = :id",
        {"id": id, "key": key},
    )
