"""Suite: the strict reads of receipts (semantics 3.5)."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog import EventKind, InvalidError, Ledger, Session, TurnlogError
from turnlog.receipts import canonical
from turnlog.testing.store_suite_base import (
    INPUT,
    THREAD,
    TURN,
    StoreSetup,
    StoreTests,
    envelope,
    fixture_session,
    insert_observed,
    manifest,
    retain,
    turn_rows,
    work,
)

DONE = {"status": "completed"}


class TestReads(StoreTests):
    """An exact read is whole, or it fails loudly."""

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
        assert len(ledger.history("conversation")) == 4

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


def labels(ledger: Ledger, **scope: str) -> list[Any]:
    """Name the rows of a scoped summary: sources of observations, (turn, kind) of receipts."""
    return [
        row.payload["source"] if row.kind is EventKind.OBSERVED else (row.turn, row.kind)
        for row in ledger.input_summary(INPUT, **scope)
    ]


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
