"""Suite: what was recorded lately (7.3), and usage around a bind (4.7)."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog import ConflictError, InvalidError, Ledger, MissingError
from turnlog.testing.store_suite_base import StoreSetup, StoreTests, add_execs, opencode, work


class TestActivity(StoreTests):
    """What happened, and what a bind changes."""

    # --- activity

    def test_every_kind_of_fact_newest_first(self, suite: StoreSetup, ledger: Ledger) -> None:
        """7.3."""
        clock = suite.clock
        task, wave = work(ledger)
        clock.now = 2_000
        pr = ledger.add_task_pr(task, external_id="github:o/r#7", identifier="o/r#7")
        clock.now = 3_000
        made = ledger.create_session(id="s", cwd="/f", title="Fix", provider="codex")
        clock.now = 3_500
        ledger.record("s", "t", "one", "started", {})
        request = ledger.request("s", "steer", "smaller steps")
        clock.now = 4_000
        ledger.record("s", "t", "one", "completed", {"status": "failed"})
        clock.now = 5_000
        ledger.bind_session("s", made.captured, task)
        clock.now = 6_000
        ledger.complete_session("s", made.captured)
        clock.now = 7_000
        ledger.retire_work("task", task)
        found, following = ledger.activity()
        assert following is None
        assert [(each.at, each.kind, each.subject, each.id) for each in found] == [
            (7_000, "work_retired", "task", task),
            (6_000, "conversation_closed", "session", "s"),
            (5_000, "bound", "session", "s"),
            (4_000, "input_completion_recorded", "input", made.artifact_key),
            (3_500, "steer_issued", "request", request),
            (3_000, "input_captured", "input", made.artifact_key),
            (2_000, "pr_recorded", "pr", pr.id),
            (1_000, "work_created", "wave", wave),
            (1_000, "work_created", "project", "project"),
            (1_000, "work_created", "task", task),
        ]
        by_kind = {each.kind: each for each in found}
        done = by_kind["input_completion_recorded"]
        assert (done.session, done.turn, done.outcome, done.title, done.task) == ("s", "one", "failed", "Fix", None)
        steer = by_kind["steer_issued"]
        assert (steer.outcome, steer.detail, steer.session) == ("queued", "smaller steps", "s")
        bound = by_kind["bound"]
        assert (bound.task, bound.task_identifier, bound.wave, bound.wave_name) == (task, "PROOF-1", wave, "proof")
        assert not any(each.imported for each in found)
        assert [each.at for each in ledger.activity(since=5_000)[0]] == [7_000, 6_000, 5_000]

    @pytest.mark.parametrize("size", [1, 2, 3, 7])
    def test_pages_are_the_whole_list(self, suite: StoreSetup, ledger: Ledger, size: int) -> None:
        """Nothing is left out or told twice where many facts have one instant."""
        work(ledger)
        for number in range(4):
            suite.clock.now = 1_000 + number // 2
            ledger.create_session(id=f"s{number}", cwd="/f", artifact_key=f"{number:032x}")
            ledger.request(f"s{number}", "interrupt")
        whole, _ = ledger.activity(limit=200)
        pages: list[Any] = []
        cursor = None
        while True:
            page, cursor = ledger.activity(limit=size, cursor=cursor)
            pages += page
            assert len(page) <= size
            if cursor is None:
                break
        assert pages == whole
        assert len(whole) == 11

    def test_turns_without_an_input_are_provider_history(self, suite: StoreSetup, ledger: Ledger) -> None:
        """R15.10: of a client of the same thread that is not ours."""
        ledger.create_session(id="s", cwd="/f")
        suite.clock.now = 2_000
        ledger.record("s", "t", "theirs", "completed", {"status": "completed"})
        first = ledger.activity()[0][0]
        assert (first.kind, first.subject, first.turn, first.outcome) == (
            "provider_history_recorded",
            "turn",
            "theirs",
            "completed",
        )

    @pytest.mark.parametrize("limit", [0, -1, 201])
    def test_a_page_has_its_bounds(self, ledger: Ledger, limit: int) -> None:
        """7.3: 1 to 200."""
        with pytest.raises(InvalidError):
            ledger.activity(limit=limit)

    @pytest.mark.parametrize("cursor", ["", "x", "bm90aGluZw", "WzEsMl0", "ü", "=" * 7])
    def test_no_cursor(self, ledger: Ledger, cursor: str) -> None:
        """A cursor is what a page gave."""
        with pytest.raises(InvalidError):
            ledger.activity(cursor=cursor)
        with pytest.raises(InvalidError):
            ledger.usage_binds(cursor=cursor)

    # --- usage around a bind

    def test_the_worked_example(self, suite: StoreSetup, ledger: Ledger) -> None:
        """4.7: 1000 before, 230 in the binding turn over 2 steps, 4 after; 10004 become 11234."""
        task, wave = work(ledger)
        add_execs(suite, "exec")
        ledger.create_session(id="other", cwd="/f", task_id=task)
        made = ledger.create_session(id="s", cwd="/f", title="Fix", provider="opencode")

        def turn(session: str, name: str, *steps: int, end: bool = True) -> None:
            ledger.record_turn_origin(session, "t", name, 1, "exec")
            for number, fresh in enumerate(steps):
                usage = opencode(f"{name}{number}", fresh, 0, time={"created": suite.clock.now, "completed": 1})
                ledger.record(session, "t", name, "usage", usage)
            suite.clock.advance(10)
            if end:
                ledger.record(session, "t", name, "completed", {"status": "completed"})
                suite.clock.advance(10)

        turn("other", "o", 10_000)
        turn("s", "one", 1_000)
        turn("s", "two", 200, 30, end=False)
        preview = ledger.bind_preview("s", task)
        assert (preview.bound_at, preview.before.turns, preview.during.turns, preview.after.turns) == (None, 1, 1, 0)
        assert ledger.session("s") == made
        at = suite.clock.now
        ledger.bind_session("s", made.captured, task)
        suite.clock.advance(10)
        ledger.record("s", "t", "two", "completed", {"status": "completed"})
        turn("s", "three", 4)

        rows = ledger.history("s")
        found = ledger.usage_binds()
        (bind,) = found.binds
        assert (bind.session, bind.task, bind.task_identifier, bind.bound_at) == ("s", task, "PROOF-1", at)
        parts = (bind.before, bind.during, bind.after)
        assert [(part.turns, part.usage.tokens.input, part.usage.streams) for part in parts] == [
            (1, 1_000, 1),
            (1, 230, 2),
            (1, 4, 1),
        ]
        assert (bind.prospective.tokens.input, bind.post_hoc.tokens.input) == (4, 1_234)
        (total,) = found.tasks
        assert (total.task, total.binds) == (task, 1)
        assert (total.prospective.tokens.input, total.post_hoc.tokens.input) == (10_004, 11_234)
        assert (total.prospective.streams, total.post_hoc.streams) == (2, 5)
        assert ledger.usage_report("total", task=task).totals.tokens.input == 10_004, "nothing was moved"
        assert ledger.history("s") == rows
        assert ledger.usage_binds() == found
        assert ledger.usage_binds(task="PROOF-1", wave=wave, project="slug").binds == found.binds
        for other in ({"task": "PROOF-9"}, {"wave": "nothing"}, {"project": "x"}, {"since": at + 1}):
            assert ledger.usage_binds(**other).binds == ()

    def test_binds_in_pages(self, suite: StoreSetup, ledger: Ledger) -> None:
        """Newest first; a task's total is whole on every page."""
        task, _ = work(ledger)
        for number in range(3):
            made = ledger.create_session(id=f"s{number}", cwd="/f")
            suite.clock.now = 2_000 + number // 2
            ledger.bind_session(made.id, made.captured, task)
        first = ledger.usage_binds(limit=2)
        assert [each.session for each in first.binds] == ["s2", "s0"]
        rest = ledger.usage_binds(limit=2, cursor=first.next)
        assert ([each.session for each in rest.binds], rest.next) == (["s1"], None)
        assert [each.binds for each in (*first.tasks, *rest.tasks)] == [3, 3]

    def test_a_preview_refuses_what_the_bind_would(self, ledger: Ledger) -> None:
        """R12.6."""
        task, wave = work(ledger)
        other = ledger.create_task("project", external_id="2", identifier="PROOF-2")
        made = ledger.create_session(id="s", cwd="/f")
        ledger.bind_session("s", made.captured, task)
        assert ledger.bind_preview("s", task).bound_at == 1_000
        with pytest.raises(ConflictError, match="is for task PROOF-1 already"):
            ledger.bind_preview("s", other.id)
        elsewhere = ledger.create_wave("elsewhere", repo="/repo")
        ledger.create_session(id="waved", cwd="/f", wave_id=elsewhere.id)
        with pytest.raises(ConflictError, match="is for wave elsewhere"):
            ledger.bind_preview("waved", task)
        for session, target in (("nothing", task), ("s", "nothing")):
            with pytest.raises(MissingError):
                ledger.bind_preview(session, target)
        assert wave
