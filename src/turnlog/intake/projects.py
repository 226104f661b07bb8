"""Which repository a folder belongs to: projects are repositories, not folders, and worktrees belong together.

Read from the files of git itself, without running it: ``.git`` may be a folder or, in a worktree or submodule, a file
that names one, whose ``commondir`` names the repository's own.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Final

_WORKTREE: Final = re.compile(r"(/.+?)(?:\.worktrees|/\.worktrees|/\.claude/worktrees)/")


@lru_cache(maxsize=4096)
def repository(folder: str) -> str | None:
    """Return the top folder of the repository that holds ``folder``, as it is now; None when there is none.

    A worktree gives the folder of the main checkout; a bare repository gives itself. O(depth of the folder).
    """
    if not folder.startswith("/"):
        return None
    path = folder.rstrip("/") or "/"
    while True:
        git = os.path.join(path, ".git")  # noqa: PTH118 - called for each conversation
        if os.path.isdir(git):  # noqa: PTH112
            return path
        if os.path.isfile(git):  # noqa: PTH113
            return _main_checkout(Path(git)) or path
        parent = os.path.dirname(path)  # noqa: PTH120
        if parent == path:
            return None
        path = parent


def _main_checkout(pointer: Path) -> str | None:
    try:
        word, _, target = pointer.read_text(encoding="utf-8", errors="surrogateescape").strip().partition(": ")
        if word != "gitdir":
            return None
        folder = (pointer.parent / target).resolve()
        common = folder / "commondir"
        if not common.exists():
            return None  # a submodule: a repository of its own
        shared = (folder / common.read_text(encoding="utf-8", errors="surrogateescape").strip()).resolve()
    except OSError:
        return None
    return str(shared.parent if shared.name == ".git" else shared)


def project(cwd: str | None, root: str | None) -> str | None:
    """Return the project of a conversation: the repository of its folder, else the root that its file recorded.

    A folder that is gone is known by its place: ``<x>.worktrees/…`` beside a repository ``<x>``, ``<x>/.worktrees/…``
    and ``<x>/.claude/worktrees/…`` inside it belong to ``<x>``. None when nothing tells.
    """
    found = repository(cwd) if cwd else None
    if found is None and cwd:
        place = _WORKTREE.match(cwd)
        if place is not None:
            base = place[1]
            found = repository(base) or root or base
    return (found or (repository(root) or root if root else None) or "").rstrip("/") or None
