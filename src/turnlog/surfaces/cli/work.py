"""What the pages on waves, projects and tasks share: words for work, lists, how a row is shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from turnlog.errors import InvalidError
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.output import Cell, Column, plain, print_object, print_table, time_cell
from turnlog.surfaces.cli.words import UNKNOWN, local_time, note, one_line

if TYPE_CHECKING:
    from turnlog.api import Ledger
    from turnlog.history.external import External
    from turnlog.model import Project, Task, Wave

WAVES: Final = (
    Column("WAVE", least=20),
    Column("REPO", drop=2, least=12),
    Column("CREATED", drop=3),
    Column("RETIRED", drop=4),
    Column("ID", drop=1),
)
PROJECTS: Final = (
    Column("PROJECT", least=16),
    Column("NAME", drop=2, least=12),
    Column("WAVE", drop=3, least=12),
    Column("CREATED", drop=4),
    Column("RETIRED", drop=5),
    Column("ID", drop=1),
)
TASKS: Final = (
    Column("TASK", least=12),
    Column("TITLE", least=20),
    Column("PROJECT", drop=2, least=12),
    Column("STARTED", drop=3),
    Column("RETIRED", drop=4),
    Column("WORKTREE", drop=5, least=12),
    Column("ID", drop=1),
)


def here(folder: Path | None = None) -> str:
    """Return the repository of a folder (default: this one), else the folder itself. Raises InvalidError."""
    from turnlog.intake.projects import repository

    place = Path.cwd() if folder is None else folder.expanduser().resolve()
    if not place.is_dir():
        raise InvalidError(f"{folder} is not a folder", hint="name an existing folder")
    return repository(str(place)) or str(place)


def resolve(ledger: Ledger, kind: str, word: str, *, active: bool = False) -> str:
    """Return the id of what a word names; where several fit, the one of this folder's repository is meant."""
    return ledger.resolve_work(kind, word, repo=here(), active=active)


def named(reference: str) -> External:
    """Read a reference to something elsewhere. Raises InvalidError for an empty one."""
    from turnlog.history.external import parse

    if not reference.strip():
        raise InvalidError("an empty reference names nothing", hint="give a link, a key like ABC-123, or a word")
    return parse(reference)


def wave_cells(wave: Wave) -> list[Cell | str]:
    """Return the row of a wave."""
    retired = time_cell(wave.retired_at)
    return [one_line(wave.slug or wave.name), one_line(wave.repo), time_cell(wave.created_at), retired, wave.id]


def project_cells(ledger: Ledger, project: Project) -> list[Cell | str]:
    """Return the row of a project."""
    wave = ledger.wave(project.wave_id)
    return [
        one_line(project.slug or project.external_id),
        one_line(project.name or UNKNOWN),
        one_line(wave.slug if wave else project.wave_id),
        time_cell(project.created_at),
        time_cell(project.retired_at),
        one_line(project.id),
    ]


def task_cells(ledger: Ledger, task: Task) -> list[Cell | str]:
    """Return the row of a task."""
    project = ledger.project(task.project_id)
    return [
        one_line(task.identifier),
        one_line(task.title or UNKNOWN),
        one_line((project.slug or project.external_id) if project else task.project_id),
        time_cell(task.started_at),
        time_cell(task.retired_at),
        one_line(task.worktree or UNKNOWN),
        one_line(task.id),
    ]


def task_row(task: Task) -> dict[str, Any]:
    """Return a task as JSON, with what is known of its external id."""
    found = named(task.external_id)
    return {**plain(task), "external": {"kind": found.kind, "url": found.url}}


def asked_for(limit: int) -> int | None:
    """Return how many rows to read for a page of ``limit`` (0 = all): one more tells whether there is a next page."""
    if limit < 0:
        raise InvalidError("--limit must not be negative", hint="0 means all")
    return limit + 1 if limit else None


def cut(found: Sequence[Any], limit: int) -> tuple[Sequence[Any], str | None]:
    """Return the page and the cursor of the next one."""
    page = found[:limit] if limit else found
    return page, page[-1].id if len(found) > len(page) else None


def print_list(
    cli: Cli, head: Sequence[Column], kind: str, rows: Sequence[tuple[Any, list[Cell | str]]], following: str | None
) -> int:
    """Print a page of records: as JSON, or as a table."""
    if cli.json:
        print_object(**{f"{kind}s": [row for row, _ in rows], "next": following})
        return 0
    if rows:
        print_table(cli, head, [cells for _, cells in rows])
    else:
        note(f"no {kind}; `turnlog work {kind} create` makes one, --all shows retired ones")
    if following:
        note(f"more: --cursor {following}")
    return 0


def print_facts(facts: Sequence[tuple[str, str | None]]) -> None:
    """Print what is known of something, a line each; what is unknown is left out."""
    for name, value in facts:
        if value is not None:
            print(f"{name:<10} {one_line(value)}")


def retired_fact(retired_at: int | None) -> tuple[str, str | None]:
    """Return the line that says since when something is retired."""
    return "retired", None if retired_at is None else local_time(retired_at)
