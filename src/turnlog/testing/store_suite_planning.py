"""Suite: waves that nest, words that name work, retirement, lists, checkouts (semantics 2.4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnlog import ConflictError, InvalidError, Ledger, MissingError
from turnlog.history.work import Checkout
from turnlog.testing.store_suite_base import StoreSetup, StoreTests, work


class TestPlanning(StoreTests):
    """What work is, and what names it."""

    # --- waves

    def test_an_address_is_the_path_of_names(self, ledger: Ledger) -> None:
        """2.4: from the root, however deep."""
        parent = None
        for name in ("a", "b", "c", "d"):
            parent = ledger.create_wave(name, repo="/repo", parent_id=parent).id
        found = ledger.wave(parent or "")
        assert found is not None
        assert found.slug == "a/b/c/d"
        assert ledger.resolve_work("wave", "a/b/c/d") == found.id
        assert ledger.wave("nothing") is None

    @pytest.mark.parametrize("name", ["", "  ", "a/b", "/", "two\nlines", "bell\x07"])
    def test_no_wave_name(self, ledger: Ledger, name: str) -> None:
        """2.4: one printable path segment."""
        with pytest.raises(InvalidError):
            ledger.create_wave(name, repo="/repo")
        assert ledger.waves(all=True) == []

    def test_names_are_trimmed_and_unique_in_their_place(self, ledger: Ledger) -> None:
        """2.4."""
        first = ledger.create_wave(" name ", repo="/repo")
        assert first.name == "name"
        with pytest.raises(ConflictError) as caught:
            ledger.create_wave("name", repo="/repo")
        assert "retire" in caught.value.hint

    @pytest.mark.parametrize("target", ["top", "middle", "bottom"])
    def test_a_wave_never_lies_under_itself(self, suite: StoreSetup, ledger: Ledger, target: str) -> None:
        """Wave cycles: not even a person with plain SQL makes one, and the tree stays as it was."""
        ledger.create_wave("top", repo="/repo", id="top")
        ledger.create_wave("middle", repo="/repo", parent_id="top", id="middle")
        ledger.create_wave("bottom", repo="/repo", parent_id="middle", id="bottom")
        with pytest.raises(Exception, match="lie under itself"):
            suite.raw_sql(f"UPDATE waves SET parent_wave_id = '{target}' WHERE id = 'top'")  # noqa: S608
        with pytest.raises(Exception, match="lie under itself"):
            suite.raw_sql(
                "INSERT INTO waves (id, name, repo, created_at, parent_wave_id) VALUES ('x', 'x', '/repo', 1, 'x')"
            )
        suite.raw_sql("UPDATE waves SET parent_wave_id = 'top' WHERE id = 'bottom'")
        assert [each.slug for each in sorted(ledger.waves(), key=lambda each: each.slug)] == [
            "top",
            "top/bottom",
            "top/middle",
        ]

    # --- what names work

    def test_words_for_a_task(self, ledger: Ledger) -> None:
        """Id, its beginning with or without prefix, identifier, external id, any link or spelling of it."""
        wave = ledger.create_wave("w", repo="/repo")
        project = ledger.create_project(wave.id, external_id="p")
        ledger.create_task(project.id, external_id="linear:acme/ENG-9", identifier="ENG-9", id="task_9f0")
        ledger.create_task(project.id, external_id="github:o/r#12", identifier="o/r#12", id="task_12ab")
        for word in (
            "task_12ab",
            "task_12",
            "12a",
            "o/r#12",
            "O/R#12",
            "github:o/r#12",
            " https://github.com/o/R/issues/12#x ",
        ):
            assert ledger.resolve_work("task", word) == "task_12ab", word
        for word in ("ENG-9", "eng-9", "https://linear.app/acme/issue/ENG-9/a-title", "linear:acme/ENG-9"):
            assert ledger.resolve_work("task", word) == "task_9f0", word

    def test_a_linear_link_finds_what_its_key_made(self, ledger: Ledger) -> None:
        """A key alone does not tell its workspace."""
        wave = ledger.create_wave("w", repo="/repo")
        project = ledger.create_project(wave.id, external_id="p")
        made = ledger.create_task(project.id, external_id="linear:ENG-9", identifier="ENG-9")
        assert ledger.resolve_work("task", "https://linear.app/acme/issue/ENG-9") == made.id
        exact = ledger.create_task(project.id, external_id="linear:acme/ENG-9", identifier="ENG-9")
        assert ledger.resolve_work("task", "https://linear.app/acme/issue/ENG-9") == exact.id
        with pytest.raises(InvalidError) as caught:
            ledger.resolve_work("task", "ENG-9")
        assert made.id in caught.value.hint
        assert exact.id in caught.value.hint
        with pytest.raises(InvalidError):
            ledger.resolve_work("task", "eng-9")

    def test_a_pull_request_names_its_task(self, suite: StoreSetup, ledger: Ledger) -> None:
        """Task PRs (1.1): a series, each named once."""
        task, _ = work(ledger)
        assert ledger.task_prs(task) == []
        first = ledger.add_task_pr(task, external_id="github:o/r#7", identifier="o/r#7", title="one")
        suite.clock.advance(1)
        second = ledger.add_task_pr(task, external_id="github:o/r#8", identifier="o/r#8")
        assert ledger.add_task_pr(task, external_id="github:o/r#7", identifier="o/r#7", title="other") == first
        assert ledger.task_prs(task) == [first, second]
        assert (first.task_id, first.title, first.created_at, second.title) == (task, "one", 1_000, None)
        assert ledger.resolve_work("task", "https://github.com/o/r/pull/7/files") == task
        with pytest.raises(MissingError):
            ledger.add_task_pr("nothing", external_id="x", identifier="x")
        with pytest.raises(InvalidError):
            ledger.add_task_pr(task, external_id=" ", identifier="x")

    def test_words_for_a_project(self, ledger: Ledger) -> None:
        """Id, slug, external id, name, a beginning of the id."""
        wave = ledger.create_wave("w", repo="/repo")
        made = ledger.create_project(wave.id, external_id="EXT", slug="web", name="The web", id="proj_abc")
        for word in ("proj_abc", "proj_a", "ab", "web", "EXT", "The web"):
            assert ledger.resolve_work("project", word) == made.id

    def test_unknown_and_ambiguous_words_say_what_to_do(self, ledger: Ledger) -> None:
        """Clear errors with hints."""
        work(ledger)
        with pytest.raises(MissingError) as missing:
            ledger.resolve_work("task", "PROOF-2")
        assert missing.value.hint.startswith("did you mean PROOF-1? ")
        with pytest.raises(MissingError):
            ledger.resolve_work("task", " ")
        with pytest.raises(InvalidError):
            ledger.resolve_work("epic", "x")
        for id, repo in (("w_1", "/one"), ("w_2", "/two")):
            ledger.create_wave("same", repo=repo, id=id)
        for word in ("same", "w_"):
            with pytest.raises(InvalidError) as ambiguous:
                ledger.resolve_work("wave", word)
            assert "w_1 (same in /one)" in ambiguous.value.hint
            assert "w_2 (same in /two)" in ambiguous.value.hint
        assert ledger.resolve_work("wave", "same", repo="/two") == "w_2"

    def test_wildcards_in_words_are_plain_characters(self, ledger: Ledger) -> None:
        """R5.8 holds for words too."""
        work(ledger)
        for word in ("%", "_", "task_%", "*", "PROOF-_"):
            with pytest.raises(MissingError):
                ledger.resolve_work("task", word)

    # --- retirement

    def test_a_retired_wave_takes_no_new_work_and_frees_its_name(self, suite: StoreSetup, ledger: Ledger) -> None:
        """With all that lies under it; what was there stays."""
        top = ledger.create_wave("top", repo="/repo")
        inner = ledger.create_wave("inner", repo="/repo", parent_id=top.id)
        project = ledger.create_project(inner.id, external_id="p", slug="p")
        task = ledger.create_task(project.id, external_id="i", identifier="T-1")
        other = ledger.create_wave("other", repo="/repo")
        suite.clock.now = 2_000
        ledger.retire_work("wave", top.id)
        suite.clock.now = 3_000
        ledger.retire_work("wave", top.id)
        retired = [each.id for each in ledger.waves(all=True) if each.retired_at == 2_000]
        assert sorted(retired) == sorted([top.id, inner.id])
        assert (ledger.waves(), ledger.projects(), ledger.tasks()) == ([other], [], [])
        assert [each.id for each in ledger.tasks(all=True)] == [task.id]
        for refused in (
            lambda: ledger.create_wave("x", repo="/repo", parent_id=top.id),
            lambda: ledger.create_wave("x", repo="/repo", parent_id=inner.id),
            lambda: ledger.create_project(inner.id, external_id="x"),
            lambda: ledger.create_task(project.id, external_id="x", identifier="X-1"),
            lambda: ledger.resolve_work("task", "T-1", active=True),
            lambda: ledger.resolve_work("project", "p", active=True),
            lambda: ledger.resolve_work("wave", "top/inner", active=True),
        ):
            with pytest.raises(ConflictError, match="is retired"):
                refused()
        assert ledger.resolve_work("task", "T-1") == task.id
        again = ledger.create_wave("top", repo="/repo")
        assert ledger.resolve_work("wave", "top", active=True) == again.id
        assert ledger.resolve_work("wave", top.id) == top.id

    def test_a_wave_under_one_that_plain_sql_retired_is_closed_too(self, suite: StoreSetup, ledger: Ledger) -> None:
        """Appendix B: the ledger stays right when somebody repairs it."""
        ledger.create_wave("top", repo="/repo", id="top")
        ledger.create_wave("inner", repo="/repo", parent_id="top", id="inner")
        suite.raw_sql("UPDATE waves SET retired_at = 5 WHERE id = 'top'")
        with pytest.raises(ConflictError, match="wave top is retired"):
            ledger.create_project("inner", external_id="x")

    def test_retired_projects_and_tasks(self, suite: StoreSetup, ledger: Ledger) -> None:
        """Their names are free again; the first time stays."""
        task, wave = work(ledger)
        with pytest.raises(ConflictError):
            ledger.create_task("project", external_id="issue-proof", identifier="PROOF-1")
        suite.clock.now = 2_000
        ledger.retire_work("task", task)
        suite.clock.now = 3_000
        ledger.retire_work("task", task)
        found = ledger.task(task)
        assert found is not None
        assert (found.retired_at, found.wave_id) == (2_000, wave)
        again = ledger.create_task("project", external_id="issue-proof", identifier="PROOF-1")
        assert ledger.resolve_work("task", "PROOF-1") == again.id
        with pytest.raises(ConflictError):
            ledger.create_project(wave, external_id="another", slug="slug")
        ledger.retire_work("project", "project")
        assert ledger.tasks() == []
        with pytest.raises(ConflictError, match="project slug is retired"):
            ledger.create_task("project", external_id="x", identifier="X-1")
        assert ledger.create_project(wave, external_id="another", slug="slug").retired_at is None
        for kind in ("wave", "project", "task"):
            with pytest.raises(MissingError):
                ledger.retire_work(kind, "nothing")
        with pytest.raises(InvalidError):
            ledger.retire_work("epic", "x")

    def test_binding_to_a_retired_task_is_allowed(self, ledger: Ledger) -> None:
        """R12.6: it says what was, and begins nothing."""
        task, _ = work(ledger)
        ledger.retire_work("task", task)
        made = ledger.create_session(id="s", cwd="/f")
        assert ledger.bind_session("s", made.captured, task).task_id == task

    # --- lists

    def test_lists_are_newest_first_in_pages(self, suite: StoreSetup, ledger: Ledger) -> None:
        """Ties by id; the cursor is the last id."""
        wave = ledger.create_wave("w", repo="/repo", id="w0")
        project = ledger.create_project(wave.id, external_id="p", id="p0")
        for at, id in ((2_010, "c"), (2_020, "b"), (2_020, "a"), (2_030, "d")):
            suite.clock.now = at
            ledger.create_task(project.id, external_id=id, identifier=id, id=id)
            ledger.create_project(wave.id, external_id=id, id=id)
            ledger.create_wave(id, repo="/other", parent_id=None if id == "d" else wave.id, id=id)
        wanted = ["d", "a", "b", "c"]
        assert [each.id for each in ledger.tasks()] == wanted
        assert [each.id for each in ledger.projects()][:4] == wanted
        assert [each.id for each in ledger.waves()][:4] == wanted
        for read in (ledger.tasks, ledger.projects, ledger.waves):
            assert [each.id for each in read(limit=2)] == ["d", "a"]
            assert [each.id for each in read(limit=2, cursor="a")] == ["b", "c"]
            with pytest.raises(InvalidError):
                read(cursor="nothing")
            with pytest.raises(InvalidError):
                read(limit=0)
        assert [each.id for each in ledger.waves(parent="w0")] == ["a", "b", "c"]
        assert [each.id for each in ledger.waves(repo="/repo")] == ["w0"]
        assert [each.id for each in ledger.tasks(project="p0", limit=1)] == ["d"]
        assert ledger.tasks(project="a") == []
        assert [each.id for each in ledger.tasks(wave="w0", cursor="b")] == ["c"]
        assert ledger.projects(wave="c") == []

    # --- checkouts

    def test_a_folder_is_for_the_task_of_its_worktree(self, ledger: Ledger, tmp_path: Path) -> None:
        """The innermost one, and never that of a checkout around it."""
        wave = ledger.create_wave("w", repo="/elsewhere")
        project = ledger.create_project(wave.id, external_id="p")
        inner = tmp_path / "tree" / "src"
        (tmp_path / "tree" / ".git").mkdir(parents=True)
        inner.mkdir()
        assert ledger.checkout_work(inner) is None
        made = ledger.create_task(project.id, external_id="i", identifier="T-1", worktree=tmp_path / "tree")
        found = Checkout(task_id=made.id, wave_id=wave.id, name="task T-1")
        assert ledger.checkout_work(inner) == ledger.checkout_work(tmp_path / "tree") == found
        other = tmp_path / "tree" / "nested"
        (other / ".git").mkdir(parents=True)
        assert ledger.checkout_work(other) is None
        second = ledger.create_task(project.id, external_id="j", identifier="T-2", worktree=inner)
        assert ledger.checkout_work(inner) == Checkout(task_id=second.id, wave_id=wave.id, name="task T-2")
        with pytest.raises(ConflictError):
            ledger.set_task_worktree(second.id, tmp_path / "tree")
        assert ledger.set_task_worktree(second.id, None).worktree is None
        assert ledger.checkout_work(inner) == found
        ledger.retire_work("task", made.id)
        assert ledger.checkout_work(inner) is None
        with pytest.raises(MissingError):
            ledger.set_task_worktree("nothing", tmp_path)

    def test_a_folder_is_for_the_only_wave_of_its_repository(self, ledger: Ledger, tmp_path: Path) -> None:
        """Of two nobody knows which; a retired one is none."""
        repo = tmp_path.resolve() / "repo"
        (repo / ".git").mkdir(parents=True)
        wave = ledger.create_wave("w", repo=str(repo))
        found = Checkout(task_id=None, wave_id=wave.id, name="wave w")
        assert ledger.checkout_work(repo) == found
        assert ledger.checkout_work(tmp_path) is None
        second = ledger.create_wave("inner", repo=str(repo), parent_id=wave.id)
        assert ledger.checkout_work(repo) is None
        ledger.retire_work("wave", second.id)
        assert ledger.checkout_work(repo) == found
        ledger.retire_work("wave", wave.id)
        assert ledger.checkout_work(repo) is None

    def test_two_tasks_in_one_folder_say_nothing(self, suite: StoreSetup, ledger: Ledger, tmp_path: Path) -> None:
        """Only plain SQL can do that."""
        work(ledger)
        ledger.create_task("project", external_id="2", identifier="T-2")
        suite.raw_sql("UPDATE tasks SET worktree = :folder", {"folder": str(tmp_path.resolve())})
        assert ledger.checkout_work(tmp_path) is None

    def test_what_a_checkout_said_is_marked(self, ledger: Ledger) -> None:
        """2.2: the source of an attribution is kept with it, and shown."""
        task, wave = work(ledger)
        made = ledger.create_session(id="s", cwd="/f", task_id=task, wave_id=wave, work_source="checkout")
        assert made.work_source == "checkout"
        assert ledger.history("s")[0].payload["work_source"] == "checkout"
        shown = ledger.session_work("s")
        assert shown is not None
        assert (shown.label, shown.mixed, shown.source) == ("task/PROOF-1 (checkout)", False, "checkout")
        with pytest.raises(InvalidError):
            ledger.create_session(cwd="/f", task_id=task, work_source="guessed")
        assert ledger.create_session(cwd="/f", work_source="checkout").work_source is None

    def test_turns_for_other_work_make_a_conversation_mixed(self, suite: StoreSetup, ledger: Ledger) -> None:
        """R16.10."""
        task, _ = work(ledger)
        made = ledger.create_session(id="s", cwd="/f")
        ledger.record("s", "t", "one", "started", {})
        before = ledger.session_work("s")
        assert before is not None
        assert (before.label, before.mixed) == ("-", False)
        ledger.bind_session("s", made.captured, task)
        after = ledger.session_work("s")
        assert after is not None
        assert (after.label, after.mixed, after.task_id, after.source) == ("mixed", True, task, "bound")
        assert ledger.session_work("nothing") is None
