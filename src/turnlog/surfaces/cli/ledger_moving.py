"""``turnlog ledger copy`` and ``turnlog ledger push``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnlog.errors import NoLedgerError, OldLedgerError, UnavailableError
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.output import plain, print_object
from turnlog.surfaces.cli.words import note, one_line, plural

if TYPE_CHECKING:
    from turnlog.api import Ledger
    from turnlog.ledger.copying import Copying
    from turnlog.ledger.pushing import Pushed

PROBLEMS_EXIT = 3
_SHOWN = 10
_URLS = "sqlite:////absolute/path or postgresql://user@host/database"


def copy(
    cli: Cli,
    source: Annotated[str, typer.Argument(metavar="FROM", help=f"The ledger to copy: {_URLS}.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="An empty ledger, or an earlier copy of FROM.")],
) -> int:
    """Copy a whole ledger into another one: receipts keep their numbers, lists and sums are made again.

    Both may be used meanwhile. A copy that was cut goes on when it is made again. TO has an identity of its own. FROM
    is only read, so it may lie where nothing can be written; one of an older turnlog is upgraded first.

    Example: turnlog ledger copy sqlite:////home/me/ledger.db postgresql://me@db.example/turnlog
    """
    with _readable(source) as ledger, _copy_bar(cli) as progress:
        done = ledger.copy_to(target, progress=progress)
    if cli.json:
        print_object(rows=done.rows, receipts=done.receipts, passages=done.passages)
    else:
        passages = f", words of {plural(done.passages, 'passage')}" if done.passages else ""
        print(f"{done.receipts:,} receipts, {done.rows:,} rows in all{passages}")
    return 0


def push(
    cli: Cli,
    url: Annotated[str, typer.Argument(metavar="URL", help="The ledger to push into, as postgresql://user@host/db.")],
    with_archive: Annotated[
        bool,
        typer.Option(
            "--with-archive",
            help="The bytes that agents left on disk and all text in them, too: everything said, secrets included.",
        ),
    ] = False,
) -> int:
    """Tell another ledger, as that of a team, what is new in this one: processes, work, conversations, receipts.

    Receipts hold prompts and answers of conversations that turnlog drove, and the answers of imported ones. The files
    of agents stay here unless --with-archive is given; usage adds up without them. What differs from what is there is
    reported (exit 3), never overwritten. A push that was cut goes on when it is made again.

    Example: turnlog ledger push postgresql://me@db.example/turnlog
    """
    with _opened(cli.url) as ledger, _push_bar(cli) as progress:
        done = ledger.push_to(url, archive=with_archive, progress=progress)
    _show(cli, done)
    return PROBLEMS_EXIT if done.problems else 0


def _readable(url: str) -> Ledger:
    """Open a ledger that must exist to read it; one of an older turnlog is upgraded, where it can be written."""
    from turnlog.api import open_ledger

    try:
        return open_ledger(url, read_only=True)
    except NoLedgerError as error:
        raise NoLedgerError(
            error.message, hint="name a ledger that exists; `turnlog run` or `import` makes one"
        ) from error
    except OldLedgerError as old:
        try:
            return open_ledger(url)
        except UnavailableError as error:
            raise UnavailableError(f"{old.message}; {error.message}", hint=error.hint) from error


def _opened(url: str) -> Ledger:
    """Open a ledger that must exist; it is written to: a push notes in it what was told."""
    from turnlog.api import open_ledger

    _readable(url).close()
    return open_ledger(url)


def _show(cli: Cli, done: Pushed) -> None:
    if cli.json:
        print_object(
            target=done.target,
            home_id=done.home,
            receipts={"new": done.new, "known": done.known, "conflicts": done.conflicts},
            sessions=done.sessions,
            execs=done.execs,
            pieces=done.pieces,
            passages=done.passages,
            problems=[plain(each) for each in done.problems],
            notes=done.notes,
        )
        return
    print(
        f"{one_line(done.target)}: {done.new:,} new receipts, {done.known:,} known · "
        f"{plural(done.sessions, 'conversation')}, {plural(done.execs, 'process').replace('processs', 'processes')}"
        + (f" · {plural(done.pieces, 'piece')} of files, {plural(done.passages, 'passage')}" if done.pieces else "")
    )
    for each in done.notes:
        note(f"note: {one_line(each)}")
    for problem in done.problems[:_SHOWN]:
        note(f"{problem.kind}: {one_line(problem.where)}: {one_line(problem.detail)}")
    if len(done.problems) > _SHOWN:
        note(f"and {len(done.problems) - _SHOWN:,} more; --json lists them")


@contextmanager
def _copy_bar(cli: Cli) -> Iterator[Callable[[Copying], None] | None]:
    with _bar(cli, "copying {task.completed:,} rows") as update:
        yield update and (lambda at: update(at.rows_total, at.rows))


@contextmanager
def _push_bar(cli: Cli) -> Iterator[Callable[[Pushed], None] | None]:
    with _bar(cli, "pushing {task.completed:,} receipts") as update:
        yield update and (lambda at: update(at.new + at.known + at.left, at.new + at.known))


@contextmanager
def _bar(cli: Cli, words: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show how far it is on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty() or cli.json:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns: list[Any] = [TextColumn(words), BarColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True, no_color=not cli.color_err), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda total, done: bar.update(task, total=total, completed=done)
