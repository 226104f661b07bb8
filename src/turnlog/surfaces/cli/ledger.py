"""``turnlog ledger …``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnlog.errors import InvalidError
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.output import print_object
from turnlog.surfaces.cli.words import one_line


def backup(
    cli: Cli,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file; its folder must exist.")],
) -> int:
    """Copy the ledger into a new file while others go on writing.

    Example: turnlog ledger backup ~/turnlog-2026-03-01.db
    """
    target = file.expanduser().absolute()
    if not target.parent.is_dir():
        raise InvalidError(f"no folder {target.parent}", hint="make it first, or name another place")
    with cli.ledger() as ledger:
        ledger.backup(target)
    size = target.stat().st_size
    if cli.json:
        print_object(path=str(target), bytes=size)
    else:
        print(f"{one_line(target)}  {size:,} bytes")
    return 0
