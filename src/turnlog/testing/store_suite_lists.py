"""Suite: lists of inputs across conversations (semantics 3.15)."""

from __future__ import annotations

import pytest

from turnlog import InputHistory, InvalidError, Ledger, Session
from turnlog.testing.store_suite_base import (
    INPUT,
    THREAD,
    TURN,
    StoreSetup,
    StoreTests,
    codex,
    fixture_session,
    gap_kinds,
    insert_observed,
    manifest,
    retain,
    terminal,
    work,
)

TEMPLATE = "run_000000000000000000000000000000ff"
DONE = {"status": "completed"}


class TestLists(StoreTests):
    """Limits come before payloads."""

    # --- the seed cases

    def test_limits_precede_payload_reads(self, suite: StoreSetup, ledger: Ledger) -> None:
        """The seed case of sixty conversations."""
        template(ledger)
        for at in range(1, 61):
            id = f"conversation-{at}"
            ledger.create_session(id=id, artifact_key=f"run_{at:032x}", cwd="/fixture", created_at=at, caller=TEMPLATE)
            ledger.record(id, THREAD, str(at), "started", {})
            if at != 1:
                ledger.record(id, THREAD, str(at), "completed", DONE)
        recent, truncated = ledger.recent_inputs(since=0, limit=5)
        assert truncated
        assert [row.observed_at for row in recent] == [60, 59, 58, 1, 1]
        assert [row.session_id for row in recent[3:]] == ["seed", "conversation-1"]
        assert len(ledger.inputs(caller=TEMPLATE, since=0, include_finished=False)) == 60
        assert len(ledger.inputs(caller="seed")) == 60
        boundary = ledger.inputs(since=59, include_finished=False)
        assert [row.observed_at for row in boundary] == [60, 59]
        assert len(ledger.inputs(since=59, include_finished=True)) == 59
        tenth = ledger.session("conversation-10")
        assert tenth is not None
        insert_observed(suite, tenth, f"{tenth.artifact_key}:events.jsonl:1", "{")
        assert ledger.recent_inputs(since=0, limit=5) == (recent, True)
        with pytest.raises(InvalidError):
            ledger.input_history("run_0000000000000000000000000000000a")
        with pytest.raises(InvalidError):
            ledger.inputs(caller=TEMPLATE, since=0, include_finished=False)

    def test_orphans_are_found_without_an_input(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """The seed case of orphans; usage is 4.6 F."""
        for turn, at in (("old", 10), ("recent", 100)):
            ledger.record("conversation", THREAD, turn, "usage", codex((12, 3, 0, 0), (12, 3, 0, 0)))
            ledger.record("conversation", THREAD, turn, "completed", DONE)
            suite.raw_sql(
                "UPDATE session_events SET observed_at = :at WHERE provider_turn = :turn", {"at": at, "turn": turn}
            )
        [row] = ledger.inputs(since=50)
        assert (row.captured, row.artifact_key, row.task_id, row.wave_id, row.recorded_outcome) == (None,) * 5
        assert (row.observed_at, row.session_id) == (100, "conversation")
        [provider] = row.providers
        assert (provider.kind, provider.turn, provider.start_seq, provider.outcome) == (
            "native_turn",
            "recent",
            None,
            "completed",
        )
        assert provider.completion_seq is not None
        assert (provider.exec_id, provider.task_id, provider.started_at) == (None, None, None)
        assert (row.usage.input_tokens, row.usage.output_tokens, row.usage.total_input_tokens) == (12, 3, 12)
        assert (row.usage.streams, row.usage.final_streams) == (1, 0)
        assert gap_kinds(row.usage) == ["start_unknown"]
        assert ledger.inputs(task="missing-task") == []
        assert ledger.recent_inputs(since=50, limit=1) == ([row], False)
        assert len(ledger.inputs(since=0)) == 3
        wave = ledger.create_wave("proof", repo="/repo")
        suite.raw_sql(
            "INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key, wave_id,"
            " observed_at, payload) VALUES ('conversation', :thread, 'owned', 'started', '', :wave, 110, '{}')",
            {"thread": THREAD, "wave": wave.id},
        )
        [scoped] = ledger.inputs(wave=wave.id)
        assert (scoped.wave_id, len(scoped.providers)) == (wave.id, 1)
        assert ledger.inputs(wave="proof") == [scoped]

    # --- candidates

    def test_an_input_is_listed_by_manifest_publication_or_turn(self, ledger: Ledger, conversation: Session) -> None:
        """3.15 (a)."""
        assert keys(ledger) == [INPUT]
        new = ledger.replace_input("conversation", conversation.captured)
        assert keys(ledger) == []
        ledger.publish_input("conversation", new.captured)
        assert keys(ledger) == [new.artifact_key]
        retain(ledger, "manifest.json", manifest())
        assert keys(ledger) == [new.artifact_key, INPUT]
        hidden = ledger.create_session(id="hidden", cwd="/f", published=False)
        assert hidden.artifact_key not in keys(ledger)
        ledger.record("hidden", THREAD, TURN, "started", {})
        assert hidden.artifact_key in keys(ledger)

    def test_started_time_and_work_are_the_manifests(self, ledger: Ledger) -> None:
        """R15.1, R15.2."""
        task, wave = work(ledger)
        fixture_session(ledger)
        [row] = ledger.inputs()
        assert (row.observed_at, row.task_id) == (1, None)
        retain(ledger, "manifest.json", manifest(), at=500, task_id=task, wave_id=wave)
        [row] = ledger.inputs()
        assert (row.observed_at, row.task_id, row.wave_id, row.task_identifier, row.wave_name) == (
            500,
            task,
            wave,
            "PROOF-1",
            "proof",
        )
        assert ledger.inputs(since=501) == []
        assert ledger.inputs(since=500) == [row]

    def test_ended_time_of_a_command(self, ledger: Ledger, conversation: Session) -> None:
        """R15.3: the terminal's time."""
        retain(ledger, "terminal.json", terminal(700))
        assert ledger.inputs(since=700) != []
        assert ledger.inputs(since=701) == []
        assert ledger.inputs(since=700, include_finished=False) == []

    def test_ended_time_of_turns(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """R15.3: the latest completion, if every started turn has one."""
        for turn, at in (("1", 300), ("2", 200)):
            suite.clock.now = at
            ledger.record("conversation", THREAD, turn, "started", {})
            ledger.record("conversation", THREAD, turn, "completed", DONE)
        assert ledger.inputs(since=300) != []
        assert ledger.inputs(since=301) == []
        ledger.record("conversation", THREAD, "3", "started", {})
        assert ledger.inputs(since=300) == []

    def test_an_open_turn_outweighs_the_terminal(self, ledger: Ledger, conversation: Session) -> None:
        """R15.3."""
        retain(ledger, "terminal.json", terminal(9_000))
        ledger.record("conversation", THREAD, TURN, "started", {})
        assert ledger.inputs(since=9_000) == []

    @pytest.mark.parametrize(
        "evidence",
        [
            {"schema_version": 2, "outcome": "completed", "ended_at": "1970-01-01T00:00:09Z"},
            {"schema_version": 1.0, "outcome": "completed", "ended_at": "1970-01-01T00:00:09Z"},
            {"schema_version": True, "outcome": "completed", "ended_at": "1970-01-01T00:00:09Z"},
            {"schema_version": 1, "outcome": "exploded", "ended_at": "1970-01-01T00:00:09Z"},
            {"schema_version": 1, "outcome": "completed", "ended_at": "1970-01-01T00:00:09"},
            {"schema_version": 1, "outcome": "completed", "ended_at": "1970-02-30T00:00:09Z"},
            {"schema_version": 1, "outcome": "completed", "ended_at": 9},
            {"schema_version": 1, "outcome": "completed"},
            [],
            None,
        ],
    )
    def test_an_invalid_terminal_means_not_ended(self, ledger: Ledger, conversation: Session, evidence: object) -> None:
        """R15.3, 3.14: the list and the record agree about what is invalid."""
        ledger.record("conversation", THREAD, TURN, "started", {})
        ledger.record("conversation", THREAD, TURN, "completed", DONE)
        retain(ledger, "terminal.json", evidence)
        assert ledger.inputs(since=2) == []
        assert ledger.input_history(INPUT).recorded_outcome is None

    @pytest.mark.parametrize(
        ("ended", "at"),
        [
            ("1970-01-01T00:00:09.9996Z", 9_999),
            ("1970-01-01T00:00:09.5Z", 9_500),
            ("1970-01-01t00:00:09z", 9_000),
            ("1970-01-01 00:00:09Z", 9_000),
            ("1970-01-01T01:00:09.001+01:00", 9_001),
            ("1969-12-31T23:30:09-00:30", 9_000),
        ],
    )
    def test_the_list_and_the_record_read_one_time(
        self, ledger: Ledger, conversation: Session, ended: str, at: int
    ) -> None:
        """R15.3, R16.2."""
        retain(ledger, "terminal.json", {"schema_version": 1, "outcome": "completed", "ended_at": ended})
        assert ledger.input_history(INPUT).recorded_at == at
        assert ledger.inputs(since=at) != []
        assert ledger.inputs(since=at + 1) == []

    # --- order, budget

    def test_order(self, ledger: Ledger) -> None:
        """R15.5: started descending, key descending with nulls last, then session, thread, turn."""
        for id, key, at in (("a", 1, 5), ("b", 2, 5), ("c", 3, 7)):
            ledger.create_session(id=id, artifact_key=f"{key:032x}", cwd="/f", created_at=at)
        ledger.create_session(id="hidden", cwd="/f", published=False)
        ledger.create_session(id="also", cwd="/f", published=False)
        for session, thread, turn in (
            ("hidden", "t", "2"),
            ("hidden", "t", "1"),
            ("hidden", "s", "9"),
            ("also", "z", "1"),
        ):
            ledger.record(session, thread, turn, "usage", {"n": 1})
        orphans = [("also", "z", "1"), ("hidden", "s", "9"), ("hidden", "t", "1"), ("hidden", "t", "2")]
        found = [(row.session_id, *turn_of(row)) for row in ledger.inputs()]
        assert found == [*orphans, ("c", None, None), ("b", None, None), ("a", None, None)]
        assert [row.session_id for row in ledger.recent_inputs(limit=50)[0]] == [each[0] for each in found]

    @pytest.mark.parametrize(
        ("limit", "shown", "truncated"),
        [
            (1, ["open2", "open1"], True),
            (2, ["open2", "open1"], True),
            (3, ["done3", "open2", "open1"], True),
            (5, ["done3", "open2", "done2", "open1", "done1"], False),
            (9, ["done3", "open2", "done2", "open1", "done1"], False),
            (None, ["done3", "open2", "done2", "open1", "done1"], False),
        ],
    )
    def test_budget(self, ledger: Ledger, limit: int | None, shown: list[str], truncated: bool) -> None:
        """R15.6: everything unfinished, then the newest finished; limits are positive."""
        for at, id in enumerate(("done1", "open1", "done2", "open2", "done3"), start=1):
            ledger.create_session(id=id, cwd="/f", created_at=at)
            ledger.record(id, THREAD, TURN, "started", {})
            if id.startswith("done"):
                ledger.record(id, THREAD, TURN, "completed", DONE)
        rows, cut = ledger.recent_inputs(limit=limit)
        assert ([row.session_id for row in rows], cut) == (shown, truncated)
        for wrong in (0, -1):
            with pytest.raises(InvalidError):
                ledger.recent_inputs(limit=wrong)

    def test_budget_counts_what_ended_in_the_window(self, suite: StoreSetup, ledger: Ledger) -> None:
        """R15.4, R15.6: started before, ended inside; unfinished old inputs are outside."""
        for at, id in enumerate(("old-open", "old-done", "new-done"), start=1):
            ledger.create_session(id=id, cwd="/f", created_at=at * 100)
            suite.clock.now = 400
            ledger.record(id, THREAD, TURN, "started", {})
            if id != "old-open":
                ledger.record(id, THREAD, TURN, "completed", DONE)
        names = [row.session_id for row in ledger.recent_inputs(since=300, limit=5)[0]]
        assert names == ["new-done", "old-done"]
        rows, truncated = ledger.recent_inputs(since=300, limit=1)
        assert ([row.session_id for row in rows], truncated) == (["new-done"], True)
        assert [row.session_id for row in ledger.recent_inputs(since=0, limit=1)[0]] == ["old-open"]

    # --- callers and scopes

    def test_exact_callers(self, ledger: Ledger) -> None:
        """R15.8: an artifact key, or a session id meaning any of its inputs."""
        template(ledger)
        parent = ledger.create_session(id="parent", artifact_key=f"{1:032x}", cwd="/f", caller=TEMPLATE)
        second = ledger.replace_input("parent", parent.captured)
        ledger.create_session(id="one", cwd="/f", caller=parent.artifact_key)
        ledger.create_session(id="two", cwd="/f", caller=second.artifact_key)
        ledger.create_session(id="stranger", cwd="/f")
        assert {row.session_id for row in ledger.inputs(caller=parent.artifact_key)} == {"one"}
        assert {row.session_id for row in ledger.inputs(caller="parent")} == {"one", "two"}
        assert ledger.inputs(caller="nobody") == []
        assert ledger.inputs(caller="parent")[0].caller_artifact_key in {parent.artifact_key, second.artifact_key}

    def test_scope(self, ledger: Ledger) -> None:
        """R15.9: own attribution, or that of any turn it began; also with a caller."""
        task, wave = work(ledger)
        template(ledger)
        ledger.create_session(id="own", cwd="/f", task_id=task, caller=TEMPLATE)
        late = ledger.create_session(id="late", cwd="/f", caller=TEMPLATE)
        ledger.bind_session("late", late.captured, task)
        ledger.create_session(id="free", cwd="/f", caller=TEMPLATE)
        for scope in ({"wave": wave}, {"wave": "proof"}, {"project": "slug"}, {"task": "PROOF-1"}):
            assert {row.session_id for row in ledger.inputs(**scope)} == {"own"}  # type: ignore[arg-type]
        ledger.record("late", THREAD, TURN, "started", {})
        for scope in ({"wave": wave}, {"project": "project-proof"}, {"task": "issue-proof"}):
            assert {row.session_id for row in ledger.inputs(**scope)} == {"own", "late"}  # type: ignore[arg-type]
            assert {row.session_id for row in ledger.recent_inputs(**scope)[0]} == {"own", "late"}  # type: ignore[arg-type]
        assert {row.session_id for row in ledger.inputs(caller=TEMPLATE)} == {"own", "late", "free"}
        assert {row.session_id for row in ledger.inputs(caller=TEMPLATE, task="PROOF-1")} == {"own", "late"}
        assert ledger.inputs(task="PROOF-1", wave="nothing") == []
        assert ledger.inputs(project="nothing") == []

    def test_a_broken_row_in_a_list_is_a_gap(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """D8: that row's details are unknown; the list is no error."""
        insert_observed(suite, conversation, f"{INPUT}:events.jsonl:1", "{")
        ledger.record("conversation", THREAD, "orphan", "usage", {"n": 1})
        suite.raw_sql("UPDATE session_events SET payload = '{' WHERE kind = 'usage'")
        captured = [row for row in ledger.inputs() if row.captured is not None]
        recent, _ = ledger.recent_inputs()
        assert gap_kinds(captured[0].usage) == ["unreadable"]
        assert captured[0] in recent


def template(ledger: Ledger) -> Session:
    """Create the conversation whose input the others name as their caller."""
    return fixture_session(ledger, "seed", TEMPLATE)


def keys(ledger: Ledger) -> list[str | None]:
    """Name the inputs of the whole list."""
    return [row.artifact_key for row in ledger.inputs()]


def turn_of(row: InputHistory) -> tuple[str | None, str | None]:
    """Name the turn of an orphan group."""
    return (row.providers[0].thread, row.providers[0].turn) if row.captured is None else (None, None)
