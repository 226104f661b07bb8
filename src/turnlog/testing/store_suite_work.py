"""Suite: processes of ours, waves, projects and tasks (semantics 1.4, 2.1, 2.4)."""

from __future__ import annotations

import os

import pytest

from turnlog import ConflictError, InvalidError, Ledger, MissingError, Session
from turnlog.testing.store_suite_base import StoreSetup, StoreTests, add_execs, driven


class TestWork(StoreTests):
    """Who ran, and for what."""

    # --- 2.1

    def test_an_exec_knows_its_process(self, suite: StoreSetup, ledger: Ledger) -> None:
        """2.1, architecture 4: boot id, pid and start time; missing fields are unknown."""
        made = ledger.start_exec(command=["turnlog", "run"], cwd="/f")
        assert (made.pid, made.started_at, made.command) == (os.getpid(), suite.clock(), '["turnlog", "run"]')
        assert made.pid_started_at is not None
        assert (made.completed_at, made.outcome, made.exit_code, made.signal, made.error, made.repo) == (None,) * 6
        assert ledger.exec(made.id) == made
        assert ledger.start_exec().id != made.id

    def test_trace_and_parent(self, ledger: Ledger) -> None:
        """2.1: a root opens a trace, children inherit it."""
        root = ledger.start_exec()
        child = ledger.start_exec(parent_id=root.id)
        other = ledger.start_exec(trace_id="trace", parent_id=root.id)
        assert (child.parent_id, child.trace_id, child.via_agent) == (root.id, root.trace_id, False)
        assert (other.trace_id, ledger.start_exec().trace_id != root.trace_id) == ("trace", True)

    def test_an_agent_call_belongs_to_who_drives_its_engine_now(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session
    ) -> None:
        """1.4: only if generation and origin are the current engine's; a stale engine keeps its own origin."""
        driver = driven(suite, ledger)
        add_execs(suite, "second", "third")
        handed = ledger.claim_driver("conversation", driver, "second")

        def parent(generation: int, origin: str) -> str | None:
            made = ledger.start_exec(
                caller_session_id="conversation", caller_provider_generation=generation, parent_id=origin
            )
            assert made.via_agent
            return made.parent_id

        assert parent(1, "first") == "second"
        assert parent(2, "first") == "first"
        assert parent(1, "third") == "third"
        ledger.claim_driver("conversation", handed, "third", replace_engine=True)
        assert parent(1, "first") == "first"

    def test_an_exec_ends_once(self, suite: StoreSetup, ledger: Ledger) -> None:
        """2.1."""
        made = ledger.start_exec(id="exec")
        suite.clock.advance(500)
        ledger.end_exec("exec", "interrupted", exit_code=130, signal="SIGINT", error="stopped")
        ended = ledger.exec("exec")
        assert ended is not None
        assert (ended.completed_at, ended.outcome, ended.exit_code) == (made.started_at + 500, "interrupted", 130)
        assert (ended.signal, ended.error) == ("SIGINT", "stopped")
        suite.clock.advance(500)
        ledger.end_exec("exec", "interrupted", exit_code=130)
        assert ledger.exec("exec") == ended
        with pytest.raises(ConflictError):
            ledger.end_exec("exec", "succeeded", exit_code=0)
        with pytest.raises(InvalidError):
            ledger.end_exec("exec", "exploded")
        with pytest.raises(ConflictError):
            ledger.start_exec(id="exec")
        assert ledger.exec("exec") == ended

    def test_an_exec_by_prefix(self, suite: StoreSetup, ledger: Ledger) -> None:
        """2.1: exact or unique; ambiguous is an error, no match is none."""
        add_execs(suite, "abc", "abcd", "b%c", "bxc")
        for word, found in (("abc", "abc"), ("abcd", "abcd"), ("b%", "b%c"), ("bx", "bxc")):
            exec = ledger.exec(word)  # the thing's name
            assert exec is not None
            assert exec.id == found
        assert ledger.exec("nothing") is None
        assert ledger.exec("") is None
        for word in ("a", "b"):
            with pytest.raises(InvalidError):
                ledger.exec(word)

    def test_execs_newest_first_in_pages(self, suite: StoreSetup, ledger: Ledger) -> None:
        """2.1: by start descending, then id; filters before paging."""
        for id, at, repo in (("a", 1, "/r"), ("c", 2, "/r"), ("b", 2, "/other"), ("d", 3, "/r")):
            suite.clock.now = at
            ledger.start_exec(id=id, repo=repo)
        assert exec_ids(ledger) == ["d", "b", "c", "a"]
        assert [each.id for each in ledger.execs(limit=2)] == ["d", "b"]
        assert [each.id for each in ledger.execs(limit=2, cursor="b")] == ["c", "a"]
        assert [each.id for each in ledger.execs(repo="/r", limit=2, cursor="d")] == ["c", "a"]
        with pytest.raises(InvalidError):
            ledger.execs(cursor="nothing")
        with pytest.raises(InvalidError):
            ledger.execs(limit=-1)

    def test_command_search_is_literal(self, ledger: Ledger) -> None:
        """2.1: the argv joined by blanks if it is a JSON array, else the raw text; no command never matches."""
        for id, command in (
            ("list", ["turnlog", "run", "100%"]),
            ("text", "old Text_command"),
            ("object", '{"not":"argv"}'),
            ("none", None),
        ):
            ledger.start_exec(id=id, command=command)
        for word, found in (
            ("TURNLOG RUN", ["list"]),
            ("%", ["list"]),
            ("_", ["text"]),
            ("text_", ["text"]),
            ("[", []),
            ('"not"', ["object"]),
            ("n r", []),
        ):
            assert exec_ids(ledger, search=word) == found

    # --- 2.4

    def test_work_records(self, suite: StoreSetup, ledger: Ledger) -> None:
        """2.4."""
        parent = ledger.create_wave("parent", repo="/repo", id="p")
        child = ledger.create_wave("child", repo="/repo", parent_id="p")
        assert (parent.slug, child.slug, child.parent_id, child.created_at) == ("parent", "parent/child", "p", 1_000)
        project = ledger.create_project(child.id, external_id="ext", slug="s", name="n")
        task = ledger.create_task(project.id, external_id="iss", identifier="T-1", title="title")
        assert project.id.startswith("proj_")
        assert task.id.startswith("task_")
        assert (task.project_id, task.identifier, task.title, task.started_at) == (project.id, "T-1", "title", None)
        assert ledger.resolve_work("wave", "parent/child") == child.id
        assert ledger.resolve_work("task", "T-1") == ledger.resolve_work("task", "iss") == task.id
        with pytest.raises(MissingError):
            ledger.resolve_work("wave", "child")

    def test_work_that_cannot_be(self, ledger: Ledger) -> None:
        """2.4: a name is one path segment and unique among the active of its place."""
        ledger.create_wave("name", repo="/repo", id="w")
        ledger.create_wave("name", repo="/other")
        ledger.create_wave("name", repo="/repo", parent_id="w")
        for name in ("", " ", "a/b"):
            with pytest.raises(InvalidError):
                ledger.create_wave(name, repo="/repo")
        with pytest.raises(ConflictError):
            ledger.create_wave("name", repo="/repo")
        with pytest.raises(MissingError):
            ledger.create_wave("other", repo="/repo", parent_id="nothing")
        with pytest.raises(MissingError):
            ledger.create_project("nothing", external_id="x")
        with pytest.raises(MissingError):
            ledger.create_task("nothing", external_id="x", identifier="X-1")

    def test_a_retired_wave_frees_its_name(self, suite: StoreSetup, ledger: Ledger) -> None:
        """2.4."""
        ledger.create_wave("name", repo="/repo", id="old")
        suite.raw_sql("UPDATE waves SET retired_at = 5 WHERE id = 'old'")
        assert ledger.create_wave("name", repo="/repo").slug == "name"

    @pytest.mark.parametrize("how", ["session", "bind", "turn"])
    def test_a_task_starts_once(self, suite: StoreSetup, ledger: Ledger, how: str) -> None:
        """2.3: its first conversation, bind or turn."""
        ledger.create_wave("w", repo="/repo", id="w")
        ledger.create_project("w", external_id="x", id="p")
        ledger.create_task("p", external_id="x", identifier="X-1", id="t")
        made = ledger.create_session(id="s", cwd="/f", created_at=1)
        suite.clock.now = 3_000
        if how == "session":
            ledger.create_session(id="s2", cwd="/f", task_id="t")
        elif how == "bind":
            ledger.bind_session("s", made.captured, "t")
        else:
            suite.raw_sql(
                "INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key, task_id,"
                " observed_at, payload) VALUES ('s', 'thread', 'turn', 'started', '', 't', 3000, '{}')"
            )
        suite.clock.now = 9_000
        ledger.create_session(id="s3", cwd="/f", task_id="t")
        assert list(suite.raw_sql("SELECT started_at FROM tasks")) == [(3_000,)]


def exec_ids(ledger: Ledger, search: str | None = None) -> list[str]:
    """Name the execs of a list."""
    return [each.id for each in ledger.execs(search=search)]
