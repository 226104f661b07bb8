"""``turnlog bind``: say for good which task a conversation is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.output import print_object
from turnlog.surfaces.cli.usage_binds import bind_row, print_parts
from turnlog.surfaces.cli.words import local_time, note, one_line, plural, short_id
from turnlog.surfaces.cli.work import resolve

if TYPE_CHECKING:
    from turnlog.model import Session
    from turnlog.queries.binds import BindUsage


def bind(
    cli: Cli,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Id of a conversation, or its beginning.")],
    task: Annotated[str, typer.Option(metavar="TASK", help="Its key, link, external id, or id.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what it would do.")] = False,
) -> int:
    """Bind a conversation to a task, once and for good: turns that begin afterwards are for the task.

    Earlier turns keep what their receipts say. Example: turnlog bind 4f1c --task ABC-123 --dry-run
    """
    with cli.ledger(write=not dry_run) as ledger:
        found = ledger.find_session(session)
        own = resolve(ledger, "task", task)
        told = ledger.bind_preview(found.id, own)  # refuses what the bind would refuse, with better words
        already = found.task_id == own
        if not dry_run and not already:
            found = ledger.bind_session(found.id, found.captured, own)
            told = ledger.bind_preview(found.id, own)
    if cli.json:
        print_object(**bind_row(told), dry_run=dry_run, already=already)
        return 0
    _print(cli, found, told, dry_run=dry_run, already=already)
    return 0


def _print(cli: Cli, session: Session, told: BindUsage, *, dry_run: bool, already: bool) -> None:
    name = f"“{one_line(session.title)}” (session {short_id(session.id)})"
    target = f"task {one_line(told.task_identifier)}"
    if already:
        since = f" since {local_time(told.bound_at)}" if told.bound_at is not None else " since it began"
        print(f"{name} is for {target}{since}; nothing to do")
    elif dry_run:
        print(f"would bind {name} to {target}, for good")
    else:
        print(f"bound {name} to {target}, for good")
    print_parts(cli, told)
    kept = told.before.turns + told.during.turns
    if kept:
        note(
            f"{plural(kept, 'turn')} before and during the bind stay as recorded; `turnlog usage --binds` has both sums"
        )
