"""``turnlog import``: the histories that agents leave on disk, into the ledger."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnlog.errors import InvalidError
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.output import print_object
from turnlog.surfaces.cli.words import note, one_line, plural

if TYPE_CHECKING:
    from turnlog.intake.importer import Imported, Progress

PROBLEMS_EXIT = 3
_SHOWN = 10


def import_(
    cli: Cli,
    provider: Annotated[str | None, typer.Option(metavar="NAME", help="Only claude, codex or opencode.")] = None,
    root: Annotated[list[Path] | None, typer.Option(metavar="DIR", help="Read this folder or file instead.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on, and import what changes.")] = False,
    reparse: Annotated[bool, typer.Option("--reparse", help="Read the archived bytes again.")] = False,
    no_archive: Annotated[bool, typer.Option("--no-archive", help="Receipts only: no transcripts, no search.")] = False,
) -> int:
    """Read what Claude Code, Codex and OpenCode left on disk; only what is new is read, nothing is written there.

    Example: turnlog import --provider claude
    """
    if reparse and (watch or root):
        raise InvalidError("--reparse reads the archive, not the disk", hint="leave --watch and --root out")
    roots = [folder.expanduser().absolute() for folder in root or ()]
    for folder in roots:
        try:
            folder.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise InvalidError(f"no folder {folder}", hint="name one that exists with --root") from None
        except OSError:
            pass  # it is there; the import tells why it cannot be read
    with cli.ledger(write=True) as ledger:
        if watch:
            for done in ledger.follow_histories(provider=provider, roots=roots, archive=not no_archive):
                if done.bytes or done.problems or done.missing:
                    _show(cli, done)
            return 0
        with progress_bar(cli) as progress:
            if reparse:
                done = ledger.reparse_archive(provider=provider, progress=progress)
            else:
                done = ledger.import_histories(
                    provider=provider, roots=roots, archive=not no_archive, progress=progress
                )
    _show(cli, done)
    return PROBLEMS_EXIT if done.problems else 0


@contextmanager
def progress_bar(cli: Cli) -> Iterator[Callable[[Progress], None] | None]:
    """Show files, speed and the time left on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty() or cli.json:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns: list[Any] = [
        TextColumn("importing {task.fields[files]} files"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    ]
    console = Console(stderr=True, no_color=not cli.color_err)
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("import", total=None, files="")

        def progress(at: Progress) -> None:
            bar.update(task, total=at.bytes_total, completed=at.bytes, files=f"{at.files}/{at.files_total}")

        yield progress


def _show(cli: Cli, done: Imported) -> None:
    if cli.json:
        print_object(
            files=done.files,
            found=done.found,
            lines=done.lines,
            bytes=done.bytes,
            receipts={"new": done.new, "known": done.known, "inherited": done.inherited, "dropped": done.dropped},
            sessions=done.sessions,
            missing=done.missing,
            problems=[
                {"file": each.file, "offset": each.offset, "kind": each.kind, "detail": each.detail}
                for each in done.problems
            ],
        )
        sys.stdout.flush()
        return
    if not done.found:
        note("No histories were found; `turnlog doctor` shows where they are looked for, --root names a folder.")
        return
    print(
        f"{plural(done.found, 'source')}, {done.files:,} read: {done.lines:,} lines, {done.bytes:,} bytes · "
        f"{done.new:,} new receipts, {done.known:,} known, {done.inherited:,} inherited · "
        f"{plural(done.sessions, 'conversation')}"
    )
    if done.missing:
        note(f"{plural(done.missing, 'source')} are gone from disk; what they told is kept")
    for each in done.problems[:_SHOWN]:
        note(f"{each.kind} at {one_line(each.file)}:{each.offset} {one_line(each.detail)}".rstrip())
    if len(done.problems) > _SHOWN:
        note(f"and {len(done.problems) - _SHOWN:,} more problems; --json lists them all")
