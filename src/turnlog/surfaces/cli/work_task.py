"""``turnlog work task``: tasks of projects, their pull requests and worktrees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from turnlog.errors import InvalidError
from turnlog.history.external import pull_url
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.output import Column, plain, print_object, print_table, time_cell
from turnlog.surfaces.cli.words import UNKNOWN, local_time, note, one_line, short_id
from turnlog.surfaces.cli.work import (
    TASKS,
    asked_for,
    cut,
    named,
    print_facts,
    print_list,
    resolve,
    retired_fact,
    task_cells,
    task_row,
)

if TYPE_CHECKING:
    from turnlog.history.external import External

CONVERSATIONS: Final = 20
"""Conversations of a task that its page names."""

_PRS: Final = (Column("PULL REQUEST"), Column("TITLE", least=16), Column("NAMED", drop=1))
_SESSIONS: Final = (Column("SESSION"), Column("BY"), Column("CREATED", drop=1), Column("TITLE", least=20))

_TASK: Final = typer.Argument(metavar="TASK", help="Its key, link, external id, or id.")
_TITLE: Final = typer.Option("--title", metavar="TEXT", help="Its title.")
_ASK: Final = typer.Option("--ask-title", help="Ask the gh program for the title; that goes to GitHub.")


def create(
    cli: Cli,
    reference: Annotated[
        str, typer.Argument(metavar="REFERENCE", help="A link to an issue, owner/repo#12, ABC-123, or a name.")
    ],
    project: Annotated[str, typer.Option(metavar="PROJECT", help="The project that it belongs to.")],
    title: Annotated[str | None, _TITLE] = None,
    ask_title: Annotated[bool, _ASK] = False,
    worktree: Annotated[Path | None, typer.Option(metavar="DIR", help="Where it is worked on.")] = None,
) -> int:
    """Create a task from what its issue is called elsewhere; nothing is asked of anybody unless --ask-title is given.

    Example: turnlog work task create ABC-123 --project card-payments --title "Refunds"
    """
    found = named(reference)
    folder = _folder(worktree)
    with cli.ledger(write=True) as ledger:
        above = resolve(ledger, "project", project, active=True)
        task = ledger.create_task(
            above,
            external_id=found.external_id,
            identifier=found.identifier,
            title=_title(found, title, ask=ask_title),
            worktree=folder,
        )
    if cli.json:
        print_object(task=task_row(task))
    else:
        print(f"task {one_line(task.identifier)}  {task.id}")
    return 0


def list(  # noqa: A001 - commands are found by their name
    cli: Cli,
    project: Annotated[str | None, typer.Option(metavar="PROJECT", help="Only those of a project.")] = None,
    wave: Annotated[str | None, typer.Option(metavar="WAVE", help="Only those of a wave.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Retired ones too.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", help="At most N; 0 means all.")] = 100,
    cursor: Annotated[str | None, typer.Option(metavar="ID", help="Continue after this id (`next`).")] = None,
) -> int:
    """List tasks, newest first.

    Example: turnlog work task list --project card-payments
    """
    count = asked_for(limit)
    with cli.ledger() as ledger:
        found = ledger.tasks(
            project=None if project is None else resolve(ledger, "project", project),
            wave=None if wave is None else resolve(ledger, "wave", wave),
            all=everything,
            cursor=cursor,
            limit=count,
        )
        page, following = cut(found, limit)
        rows = [(task_row(each), task_cells(ledger, each)) for each in page]
    return print_list(cli, TASKS, "task", rows, following)


def show(cli: Cli, task: Annotated[str, _TASK]) -> int:
    """Show a task: where it stands, its pull requests, its conversations.

    Example: turnlog work task show ABC-123
    """
    with cli.ledger() as ledger:
        found = ledger.task(resolve(ledger, "task", task))
        assert found is not None  # noqa: S101 - it was just resolved, and nothing is deleted
        project, wave = ledger.project(found.project_id), ledger.wave(found.wave_id or "")
        prs = ledger.task_prs(found.id)
        sessions = ledger.sessions(task=found.id, all=True, limit=CONVERSATIONS + 1)
    row = task_row(found)
    if cli.json:
        print_object(
            task=row,
            project=None if project is None else plain(project),
            wave=None if wave is None else plain(wave),
            prs=[{**plain(each), "url": pull_url(each.external_id)} for each in prs],
            sessions=[
                {"id": each.id, "title": each.title, "work_source": each.work_source}
                for each in sessions[:CONVERSATIONS]
            ],
            truncated=len(sessions) > CONVERSATIONS,
        )
        return 0
    print_facts(
        [
            ("task", found.identifier),
            ("title", found.title),
            ("project", (project.slug or project.external_id) if project else found.project_id),
            ("wave", wave.slug if wave else found.wave_id),
            ("id", found.id),
            ("external", row["external"]["url"] or found.external_id),
            ("worktree", found.worktree),
            ("created", local_time(found.created_at)),
            ("started", None if found.started_at is None else local_time(found.started_at)),
            retired_fact(found.retired_at),
        ]
    )
    if prs:
        print()
        rows = [
            (one_line(each.identifier), one_line(each.title or UNKNOWN), time_cell(each.created_at)) for each in prs
        ]
        print_table(cli, _PRS, rows)
    if sessions:
        print()
        shown = [
            (
                short_id(each.id),
                one_line(each.work_source or UNKNOWN),
                time_cell(each.created_at),
                one_line(each.title),
            )
            for each in sessions[:CONVERSATIONS]
        ]
        print_table(cli, _SESSIONS, shown)
    if len(sessions) > CONVERSATIONS:
        note(f"there are more: turnlog sessions --all --task {one_line(found.identifier)}")
    return 0


def pr(
    cli: Cli,
    task: Annotated[str, _TASK],
    reference: Annotated[
        str, typer.Argument(metavar="PR", help="A link to a pull request, owner/repo#7, or another name.")
    ],
    title: Annotated[str | None, _TITLE] = None,
    ask_title: Annotated[bool, _ASK] = False,
) -> int:
    """Add a pull request to a task; naming it again changes nothing. The task is found by it too.

    Example: turnlog work task pr ABC-123 https://github.com/me/shop/pull/7
    """
    found = named(reference)
    with cli.ledger(write=True) as ledger:
        own = resolve(ledger, "task", task)
        added = ledger.add_task_pr(
            own,
            external_id=found.external_id,
            identifier=found.identifier,
            title=_title(found, title, ask=ask_title),
        )
    if cli.json:
        print_object(pr={**plain(added), "url": pull_url(added.external_id)})
    else:
        print(f"pull request {one_line(added.identifier)}  {added.id}")
    return 0


def worktree(
    cli: Cli,
    task: Annotated[str, _TASK],
    folder: Annotated[Path | None, typer.Argument(metavar="DIR", help="The folder of its checkout.")] = None,
    forget: Annotated[bool, typer.Option("--forget", help="It is not worked on anywhere any more.")] = False,
) -> int:
    """Say where a task is worked on: conversations that begin there are for it unless they say otherwise.

    Example: turnlog work task worktree ABC-123 ../shop.worktrees/refunds
    """
    if (folder is None) != forget:
        raise InvalidError("name a folder, or --forget", hint="turnlog work task worktree TASK DIR")
    place = _folder(folder)
    with cli.ledger(write=True) as ledger:
        changed = ledger.set_task_worktree(resolve(ledger, "task", task), place)
    if cli.json:
        print_object(task=task_row(changed))
    else:
        print(f"task {one_line(changed.identifier)}  {one_line(changed.worktree or 'no worktree')}")
    return 0


def retire(cli: Cli, task: Annotated[str, _TASK]) -> int:
    """Retire a task: no conversation begins for it any more. What was recorded for it stays.

    Example: turnlog work task retire ABC-123
    """
    with cli.ledger(write=True) as ledger:
        found = resolve(ledger, "task", task)
        ledger.retire_work("task", found)
        retired = ledger.task(found)
    assert retired is not None  # noqa: S101 - as above
    if cli.json:
        print_object(task=task_row(retired))
    else:
        print(f"task {one_line(retired.identifier)} is retired")
    return 0


def _folder(folder: Path | None) -> Path | None:
    if folder is None:
        return None
    place = folder.expanduser().resolve()
    if not place.is_dir():
        raise InvalidError(f"{folder} is not a folder", hint="name an existing folder")
    return place


def _title(found: External, title: str | None, *, ask: bool) -> str | None:
    if title is not None:
        if not title.strip():
            raise InvalidError("the title is empty", hint="leave --title out, or say something")
        return " ".join(title.split())
    if not ask:
        return None
    from turnlog.surfaces.cli.gh import ask_title

    return ask_title(found)
