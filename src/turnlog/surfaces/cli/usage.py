"""``turnlog usage``: its command line. What it shows is in ``usage_show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnlog.errors import InvalidError
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.usage_show import Asked, show


def usage(
    cli: Cli,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="[daily|weekly|monthly|blocks|session|model|project|task|total]",
            help="How to group; blocks are 5-hour windows, weeks begin on Monday.",
        ),
    ] = "total",
    since: Annotated[str | None, typer.Option(metavar="WHEN", help="First day, or 7d, or RFC 3339.")] = None,
    until: Annotated[str | None, typer.Option(metavar="WHEN", help="Last day, or RFC 3339.")] = None,
    timezone: Annotated[str | None, typer.Option(metavar="ZONE", help="Zone that days are cut in.")] = None,
    provider: Annotated[str | None, typer.Option(metavar="NAME", help="Only this provider's.")] = None,
    project: Annotated[
        str | None, typer.Option(metavar="PROJECT", help="Only that of a repository (path or name) or project.")
    ] = None,
    task: Annotated[str | None, typer.Option(metavar="TASK", help="Only that of a task.")] = None,
    wave: Annotated[str | None, typer.Option(metavar="WAVE", help="Only that of a wave.")] = None,
    breakdown: Annotated[bool, typer.Option("--breakdown", help="A line per model.")] = False,
    prices: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Estimate by these prices, for this report.")
    ] = None,
    binds: Annotated[bool, typer.Option("--binds", help="Before, during and after binds to tasks.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    no_import: Annotated[bool, typer.Option("--no-import", help="Do not read new history first.")] = False,
) -> int:
    """Add up tokens and cost; a sum that may lack something shows ≥.

    Example: turnlog usage daily --since 2026-03-01 --timezone Europe/Berlin
    """
    if binds:
        from turnlog.surfaces.cli.usage_binds import show_binds

        others = (
            ("a kind of report", kind != "total"),
            ("--until", until),
            ("--timezone", timezone),
            ("--provider", provider),
            ("--breakdown", breakdown),
            ("--prices", prices),
            ("--csv", csv),
        )
        for name, given in others:
            if given:
                raise InvalidError(f"--binds does not go with {name}", hint="it takes --since --task --project --wave")
        return show_binds(cli, task=task, wave=wave, project=project, since=since)
    asked = Asked(
        kind=kind,
        since=since,
        until=until,
        timezone=timezone,
        provider=provider,
        project=project,
        task=task,
        wave=wave,
        breakdown=breakdown,
        prices=prices,
        csv=csv,
        no_import=no_import,
    )
    return show(cli, asked)
