"""Projects are repositories: worktrees group, folders that are gone fall back to what was recorded."""

from __future__ import annotations

import subprocess
from pathlib import Path

from turnlog.intake.projects import project, repository


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.invalid", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def test_worktrees_belong_to_their_repository(tmp_path: Path) -> None:
    main = tmp_path / "p"
    main.mkdir()
    git(main, "init")
    git(main, "commit", "--allow-empty", "-m", "one")
    tree = tmp_path / "p.worktrees" / "feat" / "x"
    git(main, "worktree", "add", str(tree))
    (tree / "deep" / "er").mkdir(parents=True)
    assert project(str(tree / "deep" / "er"), None) == str(main)
    assert project(str(main), None) == str(main)


def test_a_worktree_that_is_gone_is_known_by_its_place(tmp_path: Path) -> None:
    main = tmp_path / "p"
    main.mkdir()
    git(main, "init")
    assert project(str(tmp_path / "p.worktrees" / "feat" / "x"), None) == str(main)
    assert project("/nowhere/r/p.worktrees/feat/x", None) == "/nowhere/r/p"
    assert project("/nowhere/r/p/.worktrees/x", None) == "/nowhere/r/p"
    assert project("/nowhere/r/p/.claude/worktrees/x/deep", None) == "/nowhere/r/p"


def test_a_worktree_of_a_bare_repository_belongs_to_it(tmp_path: Path) -> None:
    bare = tmp_path / "b.git"
    git(tmp_path, "init", "--bare", str(bare))
    seed = tmp_path / "seed"
    git(tmp_path, "clone", str(bare), str(seed))
    git(seed, "commit", "--allow-empty", "-m", "one")
    git(seed, "push", "origin", "HEAD:main")
    tree = tmp_path / "tree"
    git(bare, "worktree", "add", str(tree), "main")
    assert project(str(tree), None) == str(bare)


def test_a_submodule_is_a_repository_of_its_own(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    for each in (inner, outer):
        each.mkdir()
        git(each, "init")
        git(each, "commit", "--allow-empty", "-m", "one")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", str(inner), "sub")
    assert project(str(outer / "sub"), None) == str(outer / "sub")


def test_what_the_file_recorded_counts_where_the_folder_is_gone(tmp_path: Path) -> None:
    assert project("/nowhere/at/all", "/nowhere") == "/nowhere"
    assert project("/nowhere/at/all", None) is None
    assert project(None, None) is None
    assert project("relative", None) is None


def test_a_pointer_that_cannot_be_read_is_a_repository_itself(tmp_path: Path) -> None:
    (tmp_path / ".git").write_bytes(b"\xff\xfe nonsense")
    assert repository(str(tmp_path)) == str(tmp_path)
