"""Suite: conversations, their inputs, summaries and lists (semantics 3.12, 3.17)."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog import ConflictError, InvalidError, Ledger, MissingError, Session, StaleError
from turnlog.testing.store_suite_base import (
    INPUT,
    REPLACEMENT,
    THREAD,
    TURN,
    StoreSetup,
    StoreTests,
    driven,
    fixture_session,
    manifest,
    retain,
    work,
)


class TestSessions(StoreTests):
    """A conversation is one thing, its inputs are many."""

    # --- 3.12

    def test_create_inserts_session_and_input(self, ledger: Ledger) -> None:
        """R12.1, 2.7: the captured row has the session's time and names its facts."""
        made = fixture_session(ledger)
        assert (made.id, made.title, made.title_source, made.kind, made.created_at) == (
            "conversation",
            "Retained",
            "human",
            "conversation",
            1,
        )
        assert (made.interactive, made.cwd, made.artifact_key, made.completed_at) == (True, "/fixture", INPUT, None)
        [captured] = ledger.history("conversation")
        assert (captured.seq, captured.kind, captured.observed_at) == (made.captured, "captured", 1)
        assert captured.payload == {
            "artifact_key": INPUT,
            "caller_key": None,
            "cwd": "/fixture",
            "skill": None,
            "provider": None,
            "model": None,
            "flow_session_id": None,
            "node": None,
            "iterations": None,
            "work_source": None,
        }
        assert ledger.session("conversation") == made
        assert ledger.session_for_artifact(INPUT) == made

    def test_new_ids_and_keys(self, suite: StoreSetup, ledger: Ledger) -> None:
        """1.1: ``session_<hex>``, a UUID of 32 hex digits, now."""
        made = ledger.create_session(cwd="/f")
        prefix, _, digits = made.id.partition("_")
        assert prefix == "session"
        assert len(bytes.fromhex(digits)) == len(bytes.fromhex(made.artifact_key)) == 16
        assert (made.created_at, made.title, made.title_source) == (suite.clock(), "Untitled", "generated")

    def test_create_is_idempotent_by_id(self, ledger: Ledger, conversation: Session) -> None:
        """R12.1."""
        again = ledger.create_session(id="conversation", artifact_key=INPUT, cwd="/other", title="Other")
        assert again == conversation
        assert ledger.create_session(id="conversation", cwd="/other") == conversation
        assert len(ledger.history("conversation")) == 1

    def test_an_artifact_key_names_one_input(self, ledger: Ledger, conversation: Session) -> None:
        """R12.2."""
        with pytest.raises(ConflictError):
            fixture_session(ledger, "other", INPUT)
        with pytest.raises(ConflictError):
            ledger.create_session(id="conversation", artifact_key=INPUT, cwd="/fixture", caller=REPLACEMENT)
        assert ledger.session("other") is None

    @pytest.mark.parametrize("key", ["x", "run_", "run_x", "run_run_" + "0" * 32, "0" * 31, "urn:uuid:" + "0" * 32])
    def test_artifact_keys_are_uuids(self, ledger: Ledger, key: str) -> None:
        """1.1."""
        with pytest.raises(InvalidError):
            ledger.create_session(id="conversation", artifact_key=key, cwd="/f")
        assert ledger.session("conversation") is None

    def test_replace_gives_a_new_input_and_keeps_the_rest(self, suite: StoreSetup, ledger: Ledger) -> None:
        """R12.3."""
        old = ledger.create_session(
            id="conversation", artifact_key=INPUT, cwd="/f", skill="s", provider="codex", model="m", title="T"
        )
        driver = driven(suite, ledger)
        ledger.ready_session("conversation", old.captured, "looks good")
        suite.clock.now = 5_000
        new = ledger.replace_input("conversation", old.captured, artifact_key=REPLACEMENT, cwd="/g", provider="claude")
        assert (new.artifact_key, new.cwd, new.skill, new.provider, new.model) == (
            REPLACEMENT,
            "/g",
            "s",
            "claude",
            "m",
        )
        assert (new.title, new.ready_summary, new.created_at) == ("T", "looks good", 1_000)
        assert new.captured > old.captured
        assert ledger.driver("conversation") == driver
        captured = ledger.history("conversation")[-1]
        assert (captured.seq, captured.observed_at, captured.payload["provider"]) == (new.captured, 5_000, "claude")
        assert ledger.session_inputs("conversation") == [INPUT, REPLACEMENT]
        assert ledger.session_for_artifact(INPUT) == ledger.session_for_artifact(REPLACEMENT) == new

    def test_replace_needs_the_current_input_of_an_open_conversation(
        self, ledger: Ledger, conversation: Session
    ) -> None:
        """R12.3: Stale, and nothing is written."""
        new = ledger.replace_input("conversation", conversation.captured, artifact_key=REPLACEMENT)
        before = ledger.history("conversation")
        with pytest.raises(StaleError):
            ledger.replace_input("conversation", conversation.captured)
        with pytest.raises(StaleError):
            ledger.replace_input("conversation", new.captured, artifact_key=INPUT)
        ledger.complete_session("conversation", new.captured)
        with pytest.raises(StaleError):
            ledger.replace_input("conversation", new.captured)
        with pytest.raises(MissingError):
            ledger.replace_input("nobody", 1)
        assert ledger.history("conversation") == before

    def test_publish_once_per_input(self, ledger: Ledger, conversation: Session) -> None:
        """R12.5: current, unpublished, open."""
        with pytest.raises(StaleError):
            ledger.publish_input("conversation", conversation.captured)
        new = ledger.replace_input("conversation", conversation.captured)
        with pytest.raises(StaleError):
            ledger.publish_input("conversation", conversation.captured)
        ledger.publish_input("conversation", new.captured)
        with pytest.raises(StaleError):
            ledger.publish_input("conversation", new.captured)
        hidden = ledger.create_session(id="hidden", cwd="/f", published=False)
        ledger.complete_session("hidden", hidden.captured)
        with pytest.raises(StaleError):
            ledger.publish_input("hidden", hidden.captured)

    def test_bind_once(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """R12.6: the same target again is a no-op; earlier turns keep their absent attribution."""
        task, wave = work(ledger)
        other = ledger.create_task("project", external_id="2", identifier="PROOF-2")
        ledger.record("conversation", THREAD, TURN, "started", {})
        suite.clock.now = 4_000
        bound = ledger.bind_session("conversation", conversation.captured, task)
        assert (bound.task_id, bound.wave_id, bound.work_source, bound.bound_at) == (task, wave, "bound", 4_000)
        suite.clock.now = 5_000
        assert ledger.bind_session("conversation", conversation.captured, task) == bound
        with pytest.raises(ConflictError):
            ledger.bind_session("conversation", conversation.captured, other.id)
        assert [row.task_id for row in ledger.input_summary(INPUT)] == [None]

    def test_bind_needs_current_input_and_agreeing_wave(self, ledger: Ledger, conversation: Session) -> None:
        """R12.6."""
        task, _ = work(ledger)
        elsewhere = ledger.create_wave("elsewhere", repo="/repo")
        ledger.create_session(id="waved", cwd="/f", wave_id=elsewhere.id)
        ledger.replace_input("conversation", conversation.captured)
        with pytest.raises(StaleError):
            ledger.bind_session("conversation", conversation.captured, task)
        waved = ledger.session("waved")
        assert waved is not None
        with pytest.raises(ConflictError):
            ledger.bind_session("waved", waved.captured, task)
        with pytest.raises(MissingError):
            ledger.bind_session("waved", waved.captured, "nothing")
        with pytest.raises(MissingError):
            ledger.bind_session("nobody", 1, task)
        assert ledger.session("waved") == waved

    def test_create_with_work(self, ledger: Ledger) -> None:
        """2.2, 2.3: the wave comes from the task and must agree with it."""
        task, wave = work(ledger)
        elsewhere = ledger.create_wave("elsewhere", repo="/repo")
        made = ledger.create_session(id="made", cwd="/f", task_id=task)
        assert (made.task_id, made.wave_id, made.work_source) == (task, wave, "declared")
        captured = ledger.history("made")[0]
        assert (captured.task_id, captured.wave_id) == (task, wave)
        with pytest.raises(ConflictError):
            ledger.create_session(id="torn", cwd="/f", task_id=task, wave_id=elsewhere.id)
        for missing in ({"task_id": "nothing"}, {"wave_id": "nothing"}):
            with pytest.raises(MissingError):
                ledger.create_session(id="torn", cwd="/f", **missing)  # type: ignore[arg-type]
        assert ledger.session("torn") is None

    def test_complete_once(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """R12.7: current, open, and a review only with feedback."""
        with pytest.raises(StaleError):
            ledger.complete_session("conversation", conversation.captured + 1)
        suite.clock.now = 7_000
        ledger.complete_session("conversation", conversation.captured)
        closed = ledger.session("conversation")
        assert closed is not None
        assert closed.completed_at == 7_000
        with pytest.raises(StaleError):
            ledger.complete_session("conversation", conversation.captured)
        review = ledger.create_session(id="review", kind="flow_review", cwd="/f")
        with pytest.raises(StaleError):
            ledger.complete_session("review", review.captured)
        ledger.ready_session("review", review.captured, "fine")
        ledger.complete_session("review", review.captured)

    def test_ready_needs_words_and_an_open_conversation(self, ledger: Ledger, conversation: Session) -> None:
        """Appendix A."""
        with pytest.raises(InvalidError):
            ledger.ready_session("conversation", conversation.captured, "  \n")
        with pytest.raises(StaleError):
            ledger.ready_session("conversation", conversation.captured + 1, "x")
        ledger.ready_session("conversation", conversation.captured, "x")
        ledger.complete_session("conversation", conversation.captured)
        with pytest.raises(StaleError):
            ledger.ready_session("conversation", conversation.captured, "y")
        saved = ledger.session("conversation")
        assert saved is not None
        assert saved.ready_summary == "x"

    def test_rename(self, ledger: Ledger, conversation: Session) -> None:
        """2.2, R17.5: trimmed, one line, at most 80 characters; generated never replaces human."""
        assert ledger.rename_session("conversation", "guess", "generated").title == "Retained"
        assert ledger.rename_session("conversation", "  two\nlines ").title == "two lines"
        assert len(ledger.rename_session("conversation", "x" * 100).title) == 80
        for title in ("", " \n\t"):
            with pytest.raises(InvalidError):
                ledger.rename_session("conversation", title)
        with pytest.raises(InvalidError):
            ledger.rename_session("conversation", "x", "somebody")
        made = ledger.create_session(id="made", cwd="/f")
        assert ledger.rename_session(made.id, "guess", "generated").title_source == "generated"
        assert ledger.rename_session(made.id, "better guess", "generated").title == "better guess"

    def test_one_open_primary_conversation_per_scope(self, ledger: Ledger) -> None:
        """2.2: the next one only when the first is closed."""
        first = ledger.create_session(id="first", cwd="/f", repo="/repo", primary_scope="repository")
        with pytest.raises(ConflictError):
            ledger.create_session(id="second", cwd="/f", repo="/repo", primary_scope="repository")
        ledger.create_session(id="elsewhere", cwd="/f", repo="/other", primary_scope="repository")
        ledger.complete_session("first", first.captured)
        ledger.create_session(id="second", cwd="/f", repo="/repo", primary_scope="repository")

    @pytest.mark.parametrize("members", [{"title_source": "who"}, {"primary_scope": "world"}, {"title": " "}])
    def test_words_that_are_none_of_the_known(self, ledger: Ledger, members: dict[str, Any]) -> None:
        """The caller's mistake is InvalidError."""
        with pytest.raises(InvalidError):
            ledger.create_session(id="made", cwd="/f", **members)
        assert ledger.session("made") is None

    # --- 3.17

    def test_latest_turn(self, ledger: Ledger, conversation: Session) -> None:
        """R17.1."""

        def latest() -> str | None:
            summary = ledger.session_summary("conversation")
            assert summary is not None
            return summary.latest_turn

        assert latest() is None
        ledger.record("conversation", THREAD, "1", "started", {})
        assert latest() == "running"
        ledger.record("conversation", THREAD, "2", "started", {})
        ledger.record("conversation", THREAD, "1", "completed", {"status": "completed"})
        assert latest() == "running"
        ledger.record("conversation", THREAD, "2", "completed", {"status": "interrupted"})
        assert latest() == "interrupted"
        ledger.record("conversation", THREAD, "unseen", "completed", {"status": "failed"})
        assert latest() == "interrupted"
        ledger.replace_input("conversation", conversation.captured)
        assert latest() is None

    def test_membership(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """R17.2: only what a manifest says; a broken one says nothing."""

        def membership() -> object:
            summary = ledger.session_summary("conversation")
            assert summary is not None
            return summary.membership

        assert membership() is None
        retain(ledger, "manifest.json", manifest(flow={"kind": "independent"}))
        assert membership() == {"kind": "independent"}
        suite.raw_sql("UPDATE session_events SET payload = '{' WHERE kind = 'observed'")
        assert membership() is None

    def test_default_list(self, ledger: Ledger) -> None:
        """R17.3, R17.4: interactive, open, by title then id."""
        for id, title, interactive in (("b", "B", True), ("a2", "A", True), ("a1", "A", True), ("h", "H", False)):
            ledger.create_session(id=id, title=title, cwd="/f", interactive=interactive, provider=f"p{id}")
        closed = ledger.create_session(id="c", title="C", cwd="/f")
        ledger.complete_session("c", closed.captured)
        assert ids(ledger.sessions()) == ["a1", "a2", "b"]
        assert ids(ledger.sessions(all=True)) == ["a1", "a2", "b", "c", "h"]
        assert ids(ledger.sessions(interactive=False)) == ["h"]
        assert ids(ledger.sessions(interactive=True, all=True)) == ["a1", "a2", "b", "c"]
        assert ids(ledger.sessions(provider="pa1")) == ["a1"]
        assert ids(ledger.sessions(limit=2)) == ["a1", "a2"]
        assert ids(ledger.sessions(limit=2, cursor="a2")) == ["b"]
        assert ids(ledger.sessions(limit=None, cursor="b")) == []
        with pytest.raises(InvalidError):
            ledger.sessions(cursor="nobody")
        with pytest.raises(InvalidError):
            ledger.sessions(limit=0)

    def test_search_is_literal_and_ignores_case_in_titles(self, ledger: Ledger) -> None:
        """R17.3: a part of the title, or of the id."""
        for id, title in (("one", "100% done"), ("two", "Fix_it"), ("three", "FIXING Über")):
            ledger.create_session(id=id, title=title, cwd="/f")
        for word, found in (
            ("%", ["one"]),
            ("_", ["two"]),
            ("fix", ["three", "two"]),
            ("über", ["three"]),
            ("hre", ["three"]),
            ("THREE", []),
            ("nothing", []),
        ):
            assert ids(ledger.sessions(search=word)) == found

    def test_list_by_task(self, ledger: Ledger, conversation: Session) -> None:
        """R17.3: id, identifier or external id."""
        task, _ = work(ledger)
        ledger.create_session(id="bound", cwd="/f", task_id=task)
        for word in (task, "PROOF-1", "issue-proof"):
            assert ids(ledger.sessions(task=word)) == ["bound"]
        assert ledger.sessions(task="nothing") == []

    def test_list_of_what_needs_me(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """R17.3: feedback that waits, and turns whose driver is gone."""
        ready = ledger.create_session(id="ready", cwd="/f", title="ready")
        ledger.ready_session("ready", ready.captured, "look")
        driver = driven(suite, ledger)
        ledger.record_turn_origin("conversation", THREAD, TURN, 1, "first")
        assert ids(ledger.sessions(needs_me=True)) == ["ready"]
        ledger.finish_driver("conversation", driver, "failed")
        assert ids(ledger.sessions(needs_me=True)) == ["conversation", "ready"]

    def test_finding_sessions(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """By exact id, unique prefix, provider thread, newest receipt."""
        fixture_session(ledger, "session_abc", None)
        fixture_session(ledger, "session_abd", None)
        assert ledger.find_session("conv").id == "conversation"
        assert ledger.find_session("abc").id == "session_abc"
        for word in ("session_ab", "ab"):
            with pytest.raises(InvalidError):
                ledger.find_session(word)
        for word in ("", "nobody", "%"):
            with pytest.raises(MissingError):
                ledger.find_session(word)
        newest = ledger.latest_session()
        assert newest is not None
        assert newest.id == "session_abd"
        ledger.record("conversation", THREAD, TURN, "started", {})
        newest = ledger.latest_session()
        assert newest is not None
        assert newest.id == "conversation"
        made = ledger.create_session(id="native", cwd="/f", provider="codex")
        driver = driven(suite, ledger, session_id="native")
        ledger.record_connection("native", driver, "/sock", THREAD)
        assert ledger.session_for_thread("codex", THREAD) == made
        assert ledger.session_for_thread("claude", THREAD) is None

    def test_reopen(self, ledger: Ledger, conversation: Session) -> None:
        """A retired conversation goes on; a review stays closed."""
        ledger.complete_session("conversation", conversation.captured)
        assert ledger.reopen_session("conversation") == conversation
        assert ledger.reopen_session("conversation") == conversation
        review = ledger.create_session(id="review", kind="flow_review", cwd="/f")
        ledger.ready_session("review", review.captured, "fine")
        ledger.complete_session("review", review.captured)
        assert ledger.reopen_session("review").completed_at is not None


def ids(sessions: list[Session]) -> list[str]:
    """Name the sessions of a list."""
    return [session.id for session in sessions]
