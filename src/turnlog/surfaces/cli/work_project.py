"""``turnlog work project``: projects of waves."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from turnlog.errors import InvalidError
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.output import plain, print_object, print_table
from turnlog.surfaces.cli.words import local_time, one_line
from turnlog.surfaces.cli.work import (
    PROJECTS,
    TASKS,
    asked_for,
    cut,
    print_facts,
    print_list,
    project_cells,
    resolve,
    retired_fact,
    task_cells,
    task_row,
)


def create(
    cli: Cli,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What people call it.")],
    wave: Annotated[str, typer.Option(metavar="WAVE", help="The wave that it lies in.")],
    slug: Annotated[
        str | None, typer.Option(metavar="SLUG", help="A short name.", show_default="made from NAME")
    ] = None,
    external: Annotated[
        str | None, typer.Option(metavar="ID", help="Its id or link elsewhere.", show_default="the slug")
    ] = None,
) -> int:
    """Create a project in a wave.

    Example: turnlog work project create "Card payments" --wave checkout/payments
    """
    short = _slug(name) if slug is None else slug.strip()
    if not short or "/" in short:
        raise InvalidError(f"{short!r} is no short name", hint="give one without / by --slug")
    with cli.ledger(write=True) as ledger:
        above = resolve(ledger, "wave", wave, active=True)
        project = ledger.create_project(above, external_id=external or short, slug=short, name=name)
    if cli.json:
        print_object(project=plain(project))
    else:
        print(f"project {one_line(short)}  {project.id}")
    return 0


def list(  # noqa: A001 - commands are found by their name
    cli: Cli,
    wave: Annotated[str | None, typer.Option(metavar="WAVE", help="Only those of a wave.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Retired ones too.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", help="At most N; 0 means all.")] = 100,
    cursor: Annotated[str | None, typer.Option(metavar="ID", help="Continue after this id (`next`).")] = None,
) -> int:
    """List projects, newest first.

    Example: turnlog work project list --wave checkout/payments
    """
    count = asked_for(limit)
    with cli.ledger() as ledger:
        above = None if wave is None else resolve(ledger, "wave", wave)
        found = ledger.projects(wave=above, all=everything, cursor=cursor, limit=count)
        page, following = cut(found, limit)
        rows = [(plain(each), project_cells(ledger, each)) for each in page]
    return print_list(cli, PROJECTS, "project", rows, following)


def show(
    cli: Cli,
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="Its slug, name, external id, or id.")],
) -> int:
    """Show a project with its newest tasks.

    Example: turnlog work project show card-payments
    """
    with cli.ledger() as ledger:
        found = ledger.project(resolve(ledger, "project", project))
        assert found is not None  # noqa: S101 - it was just resolved, and nothing is deleted
        wave = ledger.wave(found.wave_id)
        tasks = ledger.tasks(project=found.id)
        rows = [task_cells(ledger, each) for each in tasks]
    if cli.json:
        print_object(
            project=plain(found),
            wave=None if wave is None else plain(wave),
            tasks=[task_row(each) for each in tasks],
        )
        return 0
    print_facts(
        [
            ("project", found.slug or found.external_id),
            ("name", found.name),
            ("wave", wave.slug if wave else found.wave_id),
            ("id", found.id),
            ("external", found.external_id),
            ("created", local_time(found.created_at)),
            retired_fact(found.retired_at),
        ]
    )
    if rows:
        print()
        print_table(cli, TASKS, rows)
    return 0


def retire(
    cli: Cli,
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="Its slug, name, external id, or id.")],
) -> int:
    """Retire a project: it takes no new work, and its name is free again. What was recorded for it stays.

    Example: turnlog work project retire card-payments
    """
    with cli.ledger(write=True) as ledger:
        found = resolve(ledger, "project", project)
        ledger.retire_work("project", found)
        retired = ledger.project(found)
    assert retired is not None  # noqa: S101 - as above
    if cli.json:
        print_object(project=plain(retired))
    else:
        print(f"project {one_line(retired.slug or retired.external_id)} is retired")
    return 0


def _slug(name: str) -> str:
    return re.sub(r"[^\w]+", "-", name.casefold()).strip("-")
