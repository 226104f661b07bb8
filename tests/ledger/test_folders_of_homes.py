"""A folder is one machine's: in a shared ledger the same path elsewhere says nothing of what work is done there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import postgres_server
from tests.ledger.moving_scenes import live_in, new_ledger, own_home, rows_of
from turnlog import ConflictError, Ledger, open_ledger
from turnlog.ledger import homes

__all__ = ["own_home"]


@pytest.fixture
def team() -> str:
    return postgres_server.PostgresSetup(postgres_server.shared()).url()


def furnish(ledger: Ledger, repo: Path) -> str:
    """Name a repository for a wave and a folder in it for a task; return the task's id."""
    wave = ledger.create_wave("area", repo=str(repo))
    project = ledger.create_project(wave.id, external_id="p")
    task = ledger.create_task(project.id, external_id="i", identifier="PROOF-1", worktree=repo / "tree")
    return task.id


def folders(tmp_path: Path) -> tuple[Path, Path]:
    repo, tree = tmp_path / "shop", tmp_path / "shop" / "tree"
    (repo / ".git").mkdir(parents=True)
    tree.mkdir()
    return repo, tree


def test_a_folder_of_another_machine_attributes_nothing(
    team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo, tree = folders(tmp_path)
    with open_ledger(team) as ledger:
        task = furnish(ledger, repo)
        here = ledger.checkout_work(tree)
        assert here is not None
        assert here.task_id == task
        there = ledger.checkout_work(repo)
        assert there is not None
        assert there.name == "wave area"

        live_in(tmp_path / "other", monkeypatch)
        assert ledger.checkout_work(tree) is None
        assert ledger.checkout_work(repo) is None
        # The same folder may be for another task on this machine, and is for that one then.
        project = ledger.projects()[0].id
        own = ledger.create_task(project, external_id="j", identifier="PROOF-2", worktree=tree)
        found = ledger.checkout_work(tree)
        assert found is not None
        assert found.task_id == own.id
        with pytest.raises(ConflictError, match="task PROOF-2 is worked on in"):
            ledger.create_task(project, external_id="k", identifier="PROOF-3", worktree=tree)

        live_in(tmp_path / "home", monkeypatch)
        back = ledger.checkout_work(tree)
        assert back is not None
        assert back.task_id == task


def test_a_folder_whose_machine_is_unknown_attributes_nothing_in_a_shared_ledger(team: str, tmp_path: Path) -> None:
    repo, tree = folders(tmp_path)
    with open_ledger(team) as ledger:
        furnish(ledger, repo)
        rows_of(team, "UPDATE tasks SET worktree_home_id = NULL")
        rows_of(team, "UPDATE waves SET home_id = NULL")
        assert ledger.checkout_work(tree) is None
        assert ledger.checkout_work(repo) is None
        ledger.set_task_worktree(ledger.tasks()[0].id, tree)
        assert ledger.checkout_work(tree) is not None


def test_where_the_home_cannot_be_known_nothing_is_attributed(
    team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo, tree = folders(tmp_path)
    monkeypatch.setattr(homes, "here", lambda: None)
    with open_ledger(team) as ledger:
        furnish(ledger, repo)
        assert ledger.checkout_work(tree) is None


def test_a_file_is_the_ledger_of_one_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo, tree = folders(tmp_path)
    with open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        task = furnish(ledger, repo)
        live_in(tmp_path / "other", monkeypatch)  # a data folder that was made anew
        found = ledger.checkout_work(tree)
        assert found is not None
        assert found.task_id == task


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_push_tells_whose_repository_it_is(kind: str, tmp_path: Path) -> None:
    repo, _ = folders(tmp_path)
    laptop = f"sqlite:///{tmp_path / 'laptop.db'}"
    (tmp_path / "team").mkdir()
    target = new_ledger(kind, tmp_path / "team")
    with open_ledger(laptop) as ledger:
        furnish(ledger, repo)
        rows_of(laptop, "UPDATE waves SET home_id = NULL")  # as of before it was noted
        ledger.push_to(target)
    assert rows_of(target, "SELECT home_id FROM waves") == [(homes.home_id(),)]
    assert rows_of(target, "SELECT worktree, worktree_home_id FROM tasks") == [(None, None)]
