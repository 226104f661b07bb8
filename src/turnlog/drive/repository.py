"""Which repository a folder belongs to: the one that all its worktrees share. Reads files only, runs no git."""

from __future__ import annotations

from pathlib import Path


def repository_of(folder: Path) -> str | None:
    """Return the root folder of the repository of ``folder``; None outside one.

    A worktree names its repository by the common directory, so that all worktrees of one repository are one project.
    """
    for place in (folder, *folder.parents):
        mark = place / ".git"
        if mark.is_dir():
            return str(place)
        if mark.is_file():
            return str(_common(mark) or place)
    return None


def _common(mark: Path) -> Path | None:
    """Return the root of the repository that a worktree's ``.git`` file points into."""
    try:
        named = mark.read_text(encoding="utf-8").partition("gitdir:")[2].strip()
        private = (mark.parent / named).resolve()
        common = (private / (private / "commondir").read_text(encoding="utf-8").strip()).resolve()
    except (OSError, UnicodeDecodeError):
        return None  # a submodule, or a worktree whose repository is gone
    return common.parent if common.name == ".git" else common
