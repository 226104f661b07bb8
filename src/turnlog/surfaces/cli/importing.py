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
from turnlog.surfaces.cli.words import local_time, note, one_line, plural

if TYPE_CHECKING:
    from turnlog.api import Ledger
    from turnlog.intake.importer import Imported, Progress

PROBLEMS_EXIT = 3
_SHOWN = 10


def import_(
    cli: Cli,
    provider: Annotated[str | None, typer.Option(metavar="NAME", help="Only claude, codex or opencode.")] = None,
    root: Annotated[list[str] | None, typer.Option(metavar="DIR", help="Read this folder or file instead.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on, and import what changes.")] = False,
    reparse: Annotated[bool, typer.Option("--reparse", help="Read the archived bytes again.")] = False,
    no_archive: Annotated[bool, typer.Option("--no-archive", help="Receipts only: no transcripts, no search.")] = False,
) -> int:
    """Read what Claude Code, Codex and OpenCode left on disk; only what is new is read, nothing is written there.

    Example: turnlog import --provider claude
    """
    if reparse and (watch or root):
        raise InvalidError("--reparse reads the archive, not the disk", hint="leave --watch and --root out")
    roots = [_folder(name) for name in root or ()]
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
        nothing = _why_nothing_is_archived(ledger, provider) if reparse and not done.found else None
    _show(cli, done, nothing)
    return PROBLEMS_EXIT if done.problems else 0


def _folder(name: str) -> Path:
    """Return what --root names. Raises InvalidError where there is nothing."""
    if not name.strip():
        raise InvalidError("--root names no folder", hint="name one, like --root ~/.codex, or leave --root out")
    folder = Path(name).expanduser().absolute()
    try:
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidError(f"no folder {folder}", hint="name one that exists with --root") from None
    except OSError:
        pass  # it is there; the import tells why it cannot be read
    return folder


def _why_nothing_is_archived(ledger: Ledger, provider: str | None) -> str:
    """Return why there are no archived bytes to read again, and what to do."""
    kept = ledger.text_kept()
    if kept is None:
        return "Nothing was imported yet, so there is nothing to read again; `turnlog import` reads what is on disk."
    if kept != "none":
        what = "What is archived" if provider is None else f"What is archived of {provider}"
        return f"{what}, if anything, was pushed here or pruned in part; it is not read again."
    pruned = ledger.text_pruned()
    if pruned is not None:
        return f"No bytes are archived any more: they were pruned, last on {local_time(pruned)}. The receipts stay."
    return (
        "No bytes are archived: what was imported was imported with --no-archive. Its receipts stay as they are; "
        "new histories that are imported without it can be read again."
    )


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


def _show(cli: Cli, done: Imported, nothing: str | None = None) -> None:
    """Print what was imported; ``nothing`` says why nothing was found where that is known."""
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
        looked = "`turnlog doctor` shows where they are looked for, --root names a folder."
        note(nothing or f"No histories were found; {looked}")
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
