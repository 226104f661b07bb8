"""``turnlog work wave``: standing areas of work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.output import plain, print_object, print_table
from turnlog.surfaces.cli.words import local_time, one_line
from turnlog.surfaces.cli.work import (
    PROJECTS,
    WAVES,
    asked_for,
    cut,
    here,
    print_facts,
    print_list,
    project_cells,
    resolve,
    retired_fact,
    wave_cells,
)


def create(
    cli: Cli,
    name: Annotated[str, typer.Argument(metavar="NAME", help="One path segment.")],
    parent: Annotated[str | None, typer.Option(metavar="WAVE", help="The wave that it lies in.")] = None,
    repo: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Its repository.", show_default="that of this folder")
    ] = None,
) -> int:
    """Create a wave; its address is the path of the names from the root, like checkout/payments.

    Example: turnlog work wave create payments --parent checkout
    """
    where = here(repo)
    with cli.ledger(write=True) as ledger:
        above = None if parent is None else ledger.resolve_work("wave", parent, repo=where, active=True)
        wave = ledger.create_wave(name, repo=where, parent_id=above)
    if cli.json:
        print_object(wave=plain(wave))
    else:
        print(f"wave {one_line(wave.slug)}  {wave.id}")
    return 0


def list(  # noqa: A001 - commands are found by their name
    cli: Cli,
    parent: Annotated[str | None, typer.Option(metavar="WAVE", help="Only those in a wave.")] = None,
    repo: Annotated[Path | None, typer.Option(metavar="DIR", help="Only those of a repository.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Retired ones too.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", help="At most N; 0 means all.")] = 100,
    cursor: Annotated[str | None, typer.Option(metavar="ID", help="Continue after this id (`next`).")] = None,
) -> int:
    """List waves, newest first.

    Example: turnlog work wave list
    """
    count = asked_for(limit)
    where = None if repo is None else here(repo)
    with cli.ledger() as ledger:
        above = None if parent is None else resolve(ledger, "wave", parent)
        found = ledger.waves(repo=where, parent=above, all=everything, cursor=cursor, limit=count)
    page, following = cut(found, limit)
    return print_list(cli, WAVES, "wave", [(plain(each), wave_cells(each)) for each in page], following)


def show(
    cli: Cli,
    wave: Annotated[str, typer.Argument(metavar="WAVE", help="Its address, its id or the beginning of it.")],
) -> int:
    """Show a wave with the waves and projects in it.

    Example: turnlog work wave show checkout/payments
    """
    with cli.ledger() as ledger:
        found = ledger.wave(resolve(ledger, "wave", wave))
        assert found is not None  # noqa: S101 - it was just resolved, and nothing is deleted
        inside = ledger.waves(parent=found.id)
        projects = ledger.projects(wave=found.id)
        rows = [project_cells(ledger, each) for each in projects]
    if cli.json:
        print_object(
            wave=plain(found), waves=[plain(each) for each in inside], projects=[plain(each) for each in projects]
        )
        return 0
    print_facts(
        [
            ("wave", found.slug),
            ("id", found.id),
            ("repo", found.repo),
            ("created", local_time(found.created_at)),
            retired_fact(found.retired_at),
        ]
    )
    for head, cells in ((WAVES, [wave_cells(each) for each in inside]), (PROJECTS, rows)):
        if cells:
            print()
            print_table(cli, head, cells)
    return 0


def retire(
    cli: Cli,
    wave: Annotated[str, typer.Argument(metavar="WAVE", help="Its address, its id or the beginning of it.")],
) -> int:
    """Retire a wave and the waves in it: they take no new work, and their names are free again.

    What was recorded for them stays. Example: turnlog work wave retire checkout/payments
    """
    with cli.ledger(write=True) as ledger:
        found = resolve(ledger, "wave", wave)
        ledger.retire_work("wave", found)
        retired = ledger.wave(found)
    assert retired is not None  # noqa: S101 - as above
    if cli.json:
        print_object(wave=plain(retired))
    else:
        print(f"wave {one_line(retired.slug)} is retired")
    return 0
