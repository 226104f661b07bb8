"""Verbs on waves, projects, tasks and their pull requests (semantics 2.4), and on what words and folders name."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, Final, TypeVar

import msgspec

from turnlog.clock import Now
from turnlog.errors import ConflictError, InvalidError, MissingError
from turnlog.history.external import parse
from turnlog.history.work import Checkout, SessionWork, TaskPr, name_work
from turnlog.ledger import homes
from turnlog.ledger.backend import Backend, Row, Tx
from turnlog.ledger.rows import project_of, task_of, wave_of
from turnlog.model import Project, Task, Wave
from turnlog.receipts import canonical

_Record = TypeVar("_Record")

_END_OF_TIME: Final = 2**62
_SHOWN: Final = 5
"""Meanings of an ambiguous word that its error names."""


class _Meaning(msgspec.Struct, frozen=True):
    """Something that a word may mean; the smaller the rank, the better it fits."""

    id: str
    name: str
    repo: str
    closed_at: int | None
    rank: int


class Planning:
    """Work records of one ledger."""

    def __init__(self, backend: Backend, now: Now) -> None:
        self._backend = backend
        self._now = now

    # --- creating

    def create_wave(self, name: str, repo: str, parent_id: str | None, id: str) -> Wave:
        """Create a wave (2.4). Raises InvalidError, MissingError; ConflictError where it is taken or retired."""
        name = _word(name, "wave name")
        if "/" in name:
            raise InvalidError(f"{name!r} is no wave name", hint="a wave's name is one path segment; --parent nests it")
        with self._backend.write() as tx:
            if parent_id is not None:
                _open_wave(tx, parent_id)
            if tx.one("wave_taken", repo=repo, parent=parent_id, name=name) is not None:
                raise ConflictError(
                    f"there is a wave {name} in its place already", hint="use that one, or retire it to free its name"
                )
            home = homes.note(tx)
            tx.run("insert_wave", id=id, name=name, repo=repo, at=self._now(), parent=parent_id, home=home)
            return _wave(tx, id)

    def create_project(self, wave_id: str, external_id: str, slug: str | None, name: str | None, id: str) -> Project:
        """Create a project under a wave (2.4). Raises InvalidError, MissingError; ConflictError as for a wave."""
        external_id = _word(external_id, "external id")
        slug = None if slug is None else _word(slug, "project slug")
        name = None if name is None else _word(name, "project name")
        with self._backend.write() as tx:
            _open_wave(tx, wave_id)
            if tx.one("project_taken", wave=wave_id, external=external_id, slug=slug) is not None:
                raise ConflictError(
                    f"the wave has a project {slug or external_id} already", hint="use that one, or retire it first"
                )
            tx.run("insert_project", id=id, wave=wave_id, external=external_id, at=self._now(), slug=slug, name=name)
            return _project(tx, id)

    def create_task(
        self,
        project_id: str,
        external_id: str,
        identifier: str,
        title: str | None,
        worktree: str | None,
        id: str,
    ) -> Task:
        """Create a task under a project (2.4). Raises InvalidError, MissingError; ConflictError as for a wave."""
        external_id, identifier = _word(external_id, "external id"), _word(identifier, "identifier")
        with self._backend.write() as tx:
            _project(tx, project_id)
            closed = _closed(tx, "project", project_id)
            if closed is not None:
                raise closed
            if tx.one("task_taken", project=project_id, external=external_id) is not None:
                raise ConflictError(
                    f"the project has a task {identifier} already", hint="use that one, or retire it first"
                )
            if worktree is not None:
                self._free_worktree(tx, worktree, None)
            tx.run(
                "insert_task",
                id=id,
                project=project_id,
                external=external_id,
                identifier=identifier,
                at=self._now(),
                title=title,
                worktree=worktree,
                home=None if worktree is None else homes.note(tx),
            )
            return _task(tx, id)

    def add_task_pr(self, task_id: str, external_id: str, identifier: str, title: str | None, id: str) -> TaskPr:
        """Add a pull request to a task; naming it again changes nothing. Raises InvalidError, MissingError."""
        external_id, identifier = _word(external_id, "external id"), _word(identifier, "identifier")
        with self._backend.write() as tx:
            _task(tx, task_id)
            tx.run(
                "insert_task_pr",
                id=id,
                task=task_id,
                external=external_id,
                identifier=identifier,
                at=self._now(),
                title=title,
            )
            return next(each for each in _prs(tx, task_id) if each.external_id == external_id)

    def set_worktree(self, task_id: str, worktree: str | None) -> Task:
        """Note where a task is worked on. Raises MissingError; ConflictError where another active task is."""
        with self._backend.write() as tx:
            _task(tx, task_id)
            if worktree is not None:
                self._free_worktree(tx, worktree, task_id)
            home = None if worktree is None else homes.note(tx)
            tx.run("set_worktree", id=task_id, worktree=worktree, home=home)
            return _task(tx, task_id)

    def retire(self, kind: str, id: str) -> None:
        """Retire a wave with those under it, a project or a task, once: it takes no new work, and its name is free.

        Raises MissingError, InvalidError.
        """
        with self._backend.write() as tx:
            known = _known(kind)
            known.read(tx, id)
            tx.run(known.retire, id=id, at=self._now())

    # --- reading

    def wave(self, id: str) -> Wave | None:
        """Return a wave, or None."""
        return self._or_none(_wave, id)

    def project(self, id: str) -> Project | None:
        """Return a project, or None."""
        return self._or_none(_project, id)

    def task(self, id: str) -> Task | None:
        """Return a task, or None."""
        return self._or_none(_task, id)

    def task_prs(self, task_id: str) -> list[TaskPr]:
        """Return the pull requests of a task, in the order they were named."""
        with self._backend.read() as tx:
            return _prs(tx, task_id)

    def waves(
        self, *, repo: str | None, parent: str | None, all: bool, cursor: str | None, limit: int | None
    ) -> list[Wave]:
        """Return waves, newest first, after the cursor's: O(limit), with a filter O(waves)."""
        rows = self._page("wave", all=all, cursor=cursor, limit=limit, repo=repo, parent=parent)
        return [wave_of(row) for row in rows]

    def projects(self, *, wave: str | None, all: bool, cursor: str | None, limit: int | None) -> list[Project]:
        """Return projects, newest first, after the cursor's: O(limit), with a filter O(projects)."""
        return [project_of(row) for row in self._page("project", all=all, cursor=cursor, limit=limit, wave=wave)]

    def tasks(
        self, *, project: str | None, wave: str | None, all: bool, cursor: str | None, limit: int | None
    ) -> list[Task]:
        """Return tasks, newest first, after the cursor's: O(limit), with a filter O(tasks)."""
        rows = self._page("task", all=all, cursor=cursor, limit=limit, project=project, wave=wave)
        return [task_of(row) for row in rows]

    def _or_none(self, read: Callable[[Tx, str], _Record], id: str) -> _Record | None:
        with self._backend.read() as tx:
            try:
                return read(tx, id)
            except MissingError:
                return None

    def _page(self, kind: str, *, all: bool, cursor: str | None, limit: int | None, **filters: Any) -> list[Row]:
        known = _known(kind)
        with self._backend.read() as tx:
            at, after = _END_OF_TIME, ""
            if cursor is not None:
                try:
                    at, after = known.read(tx, cursor).created_at, cursor
                except MissingError:
                    raise InvalidError(f"unknown cursor {cursor!r}", hint="use the `next` of an earlier page") from None
            query = known.page if all else known.active_page
            return tx.all(query, at=at, after=after, limit=-1 if limit is None else limit, **filters)

    # --- what words and folders name

    def resolve(self, kind: str, word: str, *, repo: str | None = None, active: bool = False) -> str:
        """Return the id of the one ``wave``, ``project`` or ``task`` that a word names.

        In this order: an id; an address, slug, identifier or external id, in any spelling that ``external.parse``
        knows; a task's pull request; a unique beginning of an id. Of several that fit alike those that are not retired
        are meant, and of those the ones of ``repo``. Raises MissingError; InvalidError where several remain;
        ConflictError for what is retired when it must be ``active``.
        """
        with self._backend.read() as tx:
            found = _meanings(tx, _known(kind), word.strip()) if word.strip() else []
            if not found:
                raise MissingError(f"no {kind} {word[:80]!r}", hint=_hint(tx, kind, word))
            best = [each for each in found if each.rank == found[0].rank]
            for fits in (lambda each: each.closed_at is None, lambda each: repo is not None and each.repo == repo):
                best = [each for each in best if fits(each)] or best
            if len(best) > 1:
                named = ", ".join(f"{each.id} ({each.name} in {each.repo})" for each in best[:_SHOWN])
                raise InvalidError(
                    f"{kind} {word[:80]!r} is ambiguous",
                    hint=f"name it by its id: {named}{', …' * (len(best) > _SHOWN)}",
                )
            closed = _closed(tx, kind, best[0].id) if active else None
            if closed is not None:
                raise closed
            return best[0].id

    def checkout(self, folders: list[str], repo: str | None) -> Checkout | None:
        """Return the work that a folder is for, if there is exactly one.

        That is the task whose worktree is the innermost of ``folders``, else the only active wave of ``repo``. In a
        ledger that several machines write into, only folders that were named on this one count.
        """
        with self._backend.read() as tx:
            home = self._whose()
            tasks = tx.all("tasks_in_folders", folders=canonical(folders), home=home) if folders else []
            if tasks:
                deepest = max(len(row[2]) for row in tasks)
                inner = [row for row in tasks if len(row[2]) == deepest]
                if len(inner) > 1 or _closed(tx, "task", inner[0][0]) is not None:
                    return None
                return Checkout(task_id=inner[0][0], wave_id=inner[0][1], name=f"task {inner[0][3]}")
            waves = tx.all("waves_of_repo", repo=repo, home=home) if repo is not None else []
            if len(waves) != 1 or _closed(tx, "wave", waves[0][0]) is not None:
                return None
            return Checkout(task_id=None, wave_id=waves[0][0], name=f"wave {waves[0][1]}")

    def _whose(self) -> str | None:
        """Return whose folders are meant; None in a ledger of one machine, "" where nobody knows."""
        return homes.home_id() or "" if self._backend.shared else None

    def _free_worktree(self, tx: Tx, worktree: str, own: str | None) -> None:
        for row in tx.all("tasks_in_folders", folders=canonical([worktree]), home=self._whose()):
            if row[0] != own:
                raise ConflictError(
                    f"task {row[3]} is worked on in {worktree} already", hint="a folder is for one active task"
                )

    def session_work(self, session_id: str) -> SessionWork | None:
        """Return what a conversation is for, and whether turns of it are for something else: O(its turns)."""
        with self._backend.read() as tx:
            row = tx.one("session_work", session=session_id)
            if row is None:
                return None
            task, wave, source, mixed = row[0], row[1], row[2], bool(row[3])
            names = tx.one("work_names", task=task, wave=wave) or (None, None)
            label = "mixed" if mixed else name_work(task, names[0], wave, names[1])
            if source == "checkout" and not mixed:
                label += " (checkout)"
            return SessionWork(task_id=task, wave_id=wave, source=source, mixed=mixed, label=label)


def _wave(tx: Tx, id: str) -> Wave:
    row = tx.one("wave", id=id)
    if row is None:
        raise MissingError(f"no wave {id}", hint="`turnlog work wave list` lists what is here")
    return wave_of(row)


def _project(tx: Tx, id: str) -> Project:
    row = tx.one("project", id=id)
    if row is None:
        raise MissingError(f"no project {id}", hint="`turnlog work project list` lists what is here")
    return project_of(row)


def _task(tx: Tx, id: str) -> Task:
    row = tx.one("task", id=id)
    if row is None:
        raise MissingError(f"no task {id}", hint="`turnlog work task list` lists what is here")
    return task_of(row)


class _Kind(msgspec.Struct, frozen=True):
    """How one kind of work is read, and the names of its queries."""

    read: Callable[[Tx, str], Wave | Project | Task]
    page: str
    active_page: str
    named: str
    words: str
    retire: str


_KINDS: Final = {
    "wave": _Kind(_wave, "wave_page", "active_wave_page", "waves_named", "wave_words", "retire_wave"),
    "project": _Kind(
        _project, "project_page", "active_project_page", "projects_named", "project_words", "retire_project"
    ),
    "task": _Kind(_task, "task_page", "active_task_page", "tasks_named", "task_words", "retire_task"),
}


def _prs(tx: Tx, task_id: str) -> list[TaskPr]:
    return [
        TaskPr(id=row[0], task_id=row[1], external_id=row[2], identifier=row[3], created_at=row[4], title=row[5])
        for row in tx.all("task_prs", task=task_id)
    ]


def _known(kind: str) -> _Kind:
    found = _KINDS.get(kind)
    if found is None:
        raise InvalidError(f"no kind of work {kind!r}", hint=f"choose one of {', '.join(_KINDS)}")
    return found


def _word(text: str, what: str) -> str:
    """Return a name of one trimmed line. Raises InvalidError for one that is empty or cannot be printed."""
    name = text.strip()
    if not name or not name.isprintable():
        raise InvalidError(f"{text[:80]!r} is no {what}", hint="it is one line of text")
    return name


def _open_wave(tx: Tx, wave_id: str) -> None:
    _wave(tx, wave_id)
    closed = _closed(tx, "wave", wave_id)
    if closed is not None:
        raise closed


def _closed(tx: Tx, kind: str, id: str) -> ConflictError | None:
    """Return the refusal of what is retired, or lies under something that is; None for what is active."""
    wave = id
    if kind == "task":
        task = _task(tx, id)
        if task.retired_at is not None:
            return _retired("task", task.identifier)
        kind, wave = "project", task.project_id
    if kind == "project":
        project = _project(tx, wave)
        if project.retired_at is not None:
            return _retired("project", project.slug or project.external_id)
        wave = project.wave_id
    return next((_retired("wave", row[1]) for row in tx.all("wave_lineage", id=wave) if row[2] is not None), None)


def _retired(kind: str, name: str) -> ConflictError:
    return ConflictError(f"{kind} {name} is retired", hint="what is retired takes no new work; its name is free")


def _meanings(tx: Tx, kind: _Kind, word: str) -> list[_Meaning]:
    if kind.named == "tasks_named":
        named = parse(word)
        rows = tx.all(
            kind.named,
            word=word,
            external=named.external_id,
            key=named.identifier if named.url is None else word,
            identifier=named.identifier,
            others=canonical(list(named.others)),
        )
    else:
        rows = tx.all(kind.named, word=word)
    return [_Meaning(*row) for row in rows]


def _hint(tx: Tx, kind: str, word: str) -> str:
    words = [str(row[0]) for row in tx.all(_known(kind).words)]
    near = get_close_matches(word, words, n=1, cutoff=0.6)
    near = near or [each for each in words if each.rpartition("/")[2] == word][:1]
    guess = f"did you mean {near[0]}? " if near else ""
    return f"{guess}`turnlog work {kind} list` lists them, `turnlog work {kind} create` makes one"
