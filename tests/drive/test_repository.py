"""A folder's repository is the one that its worktrees share."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from turnlog.drive.repository import repository_of


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run(["git", *identity, "-C", str(folder), *words], check=True, capture_output=True)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / "deep").mkdir(parents=True)
    git(root, "init", "-q")
    git(root, "commit", "-q", "--allow-empty", "-m", "first")
    return root


def test_any_folder_below_the_root(repo: Path, tmp_path: Path) -> None:
    assert repository_of(repo / "deep") == str(repo)
    assert repository_of(tmp_path) is None


def test_a_worktree_is_its_repository(repo: Path, tmp_path: Path) -> None:
    git(repo, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert repository_of(tmp_path / "tree") == str(repo)


def test_a_mark_that_points_nowhere_is_its_own_root(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")
    assert repository_of(tmp_path) == str(tmp_path)
