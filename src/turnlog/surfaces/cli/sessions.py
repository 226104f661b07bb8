"""``turnlog sessions``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.output import Cell, Column, print_object, print_table, time_cell
from turnlog.surfaces.cli.state import STYLES, Seat, seat_of, session_row, turn_word
from turnlog.surfaces.cli.words import UNKNOWN, note, one_line, short_id

if TYPE_CHECKING:
    from turnlog.api import Ledger
    from turnlog.model import Session

_HEAD: Final = (
    Column("SESSION"),
    Column("STATE"),
    Column("TURN"),
    Column("PROVIDER", drop=2),
    Column("MODEL", drop=4),
    Column("CREATED", drop=1),
    Column("WORK", drop=2, least=10),
    Column("TITLE", least=24),
    Column("FOLDER", drop=3, least=12),
)


def sessions(
    cli: Cli,
    everything: Annotated[bool, typer.Option("--all", help="Closed and non-interactive ones too.")] = False,
    search: Annotated[str | None, typer.Option(metavar="TEXT", help="Part of the title or the id.")] = None,
    provider: Annotated[str | None, typer.Option(metavar="NAME", help="Only this provider's.")] = None,
    task: Annotated[str | None, typer.Option(metavar="TASK", help="Only those of a task.")] = None,
    needs_me: Annotated[bool, typer.Option("--needs-me", help="Only those that wait for a person.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", help="At most N; 0 means all.")] = 100,
    cursor: Annotated[str | None, typer.Option(metavar="ID", help="Continue after this id (`next`).")] = None,
) -> int:
    """List conversations by title: the open ones, unless --all.

    Example: turnlog sessions --search login
    """
    filters: dict[str, Any] = {
        "search": search,
        "provider": provider,
        "task": task,
        "needs_me": needs_me,
        "cursor": cursor,
    }
    with cli.ledger() as ledger:
        if (task, provider) != (None, None):
            from turnlog.surfaces.cli.filters import narrowed, provider_filter

            filters["task"] = narrowed(ledger, task=task).task
            filters["provider"] = provider_filter(ledger, provider)
        found = ledger.sessions(all=everything, limit=limit + 1 if limit > 0 else limit or None, **filters)
        page = found[:limit] if limit > 0 else found
        following = page[-1].id if len(found) > len(page) else None
        hidden = False
        if not everything and following is None:
            hidden = len(ledger.sessions(all=True, limit=len(page) + 1, **filters)) > len(page)
        rows = [_row(ledger, session) for session in page]
    if cli.json:
        print_object(sessions=[row for row, _, _ in rows], next=following)
        return 0
    if rows:
        print_table(cli, _HEAD, [_cells(*row) for row in rows])
    else:
        note("no conversation matches" if any(filters.values()) else "no open conversations")
    if following:
        note(f"more: --cursor {following}")
    if hidden:
        note("closed conversations: --all")
    return 0


def _row(ledger: Ledger, session: Session) -> tuple[dict[str, Any], Session, Seat]:
    seat = seat_of(ledger, session.id)
    return session_row(ledger, session, seat), session, seat


def _cells(row: dict[str, Any], session: Session, seat: Seat) -> list[Cell | str]:
    turn = turn_word(row["latest_turn"], seat)
    return [
        short_id(session.id),
        Cell(row["state"], style=STYLES.get(row["state"], "")),
        Cell(turn, style=STYLES.get(turn, "")),
        one_line(session.provider or UNKNOWN),
        one_line(session.model or UNKNOWN),
        time_cell(session.created_at),
        one_line(row["work"]["label"]),
        one_line(session.title),
        one_line(session.cwd),
    ]
