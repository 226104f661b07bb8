"""Waves, projects, tasks (2.4), what a folder is for, and what was recorded lately (7.3)."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from turnlog.api.base import Part, positive
from turnlog.errors import InvalidError
from turnlog.history.work import Activity, Checkout, SessionWork, TaskPr
from turnlog.model import Project, Task, Wave

if TYPE_CHECKING:
    from turnlog.queries.binds import BindsReport, BindUsage

MOST_ACTIVITY: Final = 200
"""The longest page of activity (7.3)."""


class Planning(Part):
    """Waves, projects, tasks (2.4), what a folder is for, and what was recorded lately (7.3)."""

    def create_wave(self, name: str, *, repo: str, parent_id: str | None = None, id: str | None = None) -> Wave:
        """Create a wave; its address is the slug path of its parents' names and its own.

        Raises InvalidError for what is no name, MissingError; ConflictError where it is taken or the parent retired.
        """
        return self._store.work.create_wave(name, repo, parent_id, id or str(uuid.uuid4()))

    def create_project(
        self, wave_id: str, *, external_id: str, slug: str | None = None, name: str | None = None, id: str | None = None
    ) -> Project:
        """Create a project under a wave; errors as ``create_wave``: an active one may have its slug or external id."""
        return self._store.work.create_project(wave_id, external_id, slug, name, id or f"proj_{uuid.uuid4().hex}")

    def create_task(
        self,
        project_id: str,
        *,
        external_id: str,
        identifier: str,
        title: str | None = None,
        worktree: str | os.PathLike[str] | None = None,
        id: str | None = None,
    ) -> Task:
        """Create a task under a project; errors as ``create_wave``: an active one may have its external id.

        ``worktree`` is the folder that it is worked on in; conversations begun there are attributed to it.
        """
        return self._store.work.create_task(
            project_id, external_id, identifier, title, _folder(worktree), id or f"task_{uuid.uuid4().hex}"
        )

    def add_task_pr(
        self, task_id: str, *, external_id: str, identifier: str, title: str | None = None, id: str | None = None
    ) -> TaskPr:
        """Add a pull request to a task; naming it again changes nothing. Raises InvalidError, MissingError."""
        return self._store.work.add_task_pr(task_id, external_id, identifier, title, id or f"pr_{uuid.uuid4().hex}")

    def set_task_worktree(self, task_id: str, worktree: str | os.PathLike[str] | None) -> Task:
        """Note where a task is worked on, or None. Raises MissingError; ConflictError where another active task is."""
        return self._store.work.set_worktree(task_id, _folder(worktree))

    def retire_work(self, kind: str, id: str) -> None:
        """Retire a ``wave`` with the waves under it, a ``project`` or a ``task``, once.

        It takes no new work then, and its name is free for another. Raises MissingError, InvalidError.
        """
        self._store.work.retire(kind, id)

    def wave(self, id: str) -> Wave | None:
        """Return a wave, or None."""
        return self._store.work.wave(id)

    def project(self, id: str) -> Project | None:
        """Return a project, or None."""
        return self._store.work.project(id)

    def task(self, id: str) -> Task | None:
        """Return a task, or None."""
        return self._store.work.task(id)

    def task_prs(self, task_id: str) -> list[TaskPr]:
        """Return the pull requests of a task, in the order they were named."""
        return self._store.work.task_prs(task_id)

    def waves(
        self,
        *,
        repo: str | None = None,
        parent: str | None = None,
        all: bool = False,
        cursor: str | None = None,
        limit: int | None = 100,
    ) -> list[Wave]:
        """Return waves, newest first; without ``all`` those that are not retired. The cursor is the last id.

        O(limit), with a filter O(waves). Raises InvalidError.
        """
        return self._store.work.waves(repo=repo, parent=parent, all=all, cursor=cursor, limit=positive(limit))

    def projects(
        self, *, wave: str | None = None, all: bool = False, cursor: str | None = None, limit: int | None = 100
    ) -> list[Project]:
        """Return projects, of one wave (id) or all, as ``waves`` does."""
        return self._store.work.projects(wave=wave, all=all, cursor=cursor, limit=positive(limit))

    def tasks(
        self,
        *,
        project: str | None = None,
        wave: str | None = None,
        all: bool = False,
        cursor: str | None = None,
        limit: int | None = 100,
    ) -> list[Task]:
        """Return tasks, of one project or wave (ids) or all, as ``waves`` does."""
        return self._store.work.tasks(project=project, wave=wave, all=all, cursor=cursor, limit=positive(limit))

    def resolve_work(self, kind: str, word: str, *, repo: str | None = None, active: bool = False) -> str:
        """Return the id of the one ``wave``, ``project`` or ``task`` that a word names.

        A word is an id, an address, slug, identifier, external id or link, a task's pull request, or a unique beginning
        of an id. Of several that fit alike, those that are not retired and those of ``repo`` are meant. Raises
        MissingError; InvalidError when several remain; ConflictError for what is retired when it must be ``active``.
        """
        return self._store.work.resolve(kind, word, repo=repo, active=active)

    def checkout_work(self, folder: str | os.PathLike[str]) -> Checkout | None:
        """Return what a folder is for, if exactly one thing: a task by its worktree, else its repository's only wave.

        Reads the files of git, runs nothing. O(depth of the folder).
        """
        from turnlog.intake.projects import repository

        place = Path(folder).resolve()
        return self._store.work.checkout(_inside(place), repository(str(place)))

    def session_work(self, session_id: str) -> SessionWork | None:
        """Return what a conversation is for, and whether turns of it are for something else: O(its turns)."""
        return self._store.work.session_work(session_id)

    def activity(
        self, *, since: int = 0, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[Activity], str | None]:
        """Return what was recorded since an instant (unix ms), newest first, and the cursor of the next page (7.3).

        O(limit), at most 200. Raises InvalidError.
        """
        if not 0 < limit <= MOST_ACTIVITY:
            raise InvalidError(f"a page of activity has 1 to {MOST_ACTIVITY} rows", hint="use its cursor for more")
        return self._store.work.activity(since=since, limit=limit, cursor=cursor)

    def bind_preview(self, session_id: str, task_id: str) -> BindUsage:
        """Return what a bind now would leave before and during it, without doing it (4.7): O(receipts of the session).

        Raises MissingError, and ConflictError where ``bind_session`` would.
        """
        from turnlog.queries import binds

        return binds.preview(self._store, session_id, task_id)

    def usage_binds(
        self,
        *,
        task: str | None = None,
        wave: str | None = None,
        project: str | None = None,
        since: int = 0,
        cursor: str | None = None,
        limit: int | None = 50,
    ) -> BindsReport:
        """Return the usage of bound conversations before, during and after their bind, and of their tasks (4.7).

        Newest bind first. ``since`` (unix ms) is about the bind. Receipts are never changed: what post-hoc attribution
        would move is told beside what the receipts say. O(receipts of the conversations bound to the tasks shown).
        """
        from turnlog.queries import binds

        return binds.usage_binds(
            self._store, task=task, wave=wave, project=project, since=since, cursor=cursor, limit=positive(limit)
        )


def _folder(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else str(Path(path).expanduser().resolve())


def _inside(folder: Path) -> list[str]:
    """Return a folder and those above it, up to the top of its checkout: one inside another checkout is not of that."""
    found = []
    for each in (folder, *folder.parents):
        found.append(str(each))
        if (each / ".git").exists():
            break
    return found
