"""``turnlog history``: the receipts of one conversation, as they were recorded."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from turnlog.errors import InvalidError
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.output import Cell, Column, plain, print_json, print_table, time_cell
from turnlog.surfaces.cli.phrases import phrase
from turnlog.surfaces.cli.words import UNKNOWN, note, one_line

if TYPE_CHECKING:
    from turnlog.model import Event

_HEAD: Final = (
    Column("SEQ", right=True),
    Column("TIME", drop=1),
    Column("TURN"),
    Column("KIND"),
    Column("WHAT", least=40),
)
_TURN: Final = 14
_PAYLOAD: Final = 160


def history(
    cli: Cli,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Id of a conversation, or its beginning.")],
    after: Annotated[int, typer.Option(metavar="SEQ", help="Only receipts after this seq.")] = 0,
    limit: Annotated[int | None, typer.Option(metavar="N", help="At most N receipts.")] = None,
) -> int:
    """Print the receipts of a conversation in order; every payload whole with --json.

    Example: turnlog history 4f1c --after 120 --limit 50
    """
    if limit is not None and limit <= 0:
        raise InvalidError("--limit must be positive", hint="without --limit everything is printed")
    with cli.ledger() as ledger:
        found = ledger.find_session(session)
        events = ledger.history(found.id, after, limit)
    if cli.json:
        print_json([plain(event) for event in events])
        return 0
    if not events:
        note(f"no receipts after seq {after}" if after else "no receipts")
        return 0
    print_table(cli, _HEAD, _rows(events))
    if limit is not None and len(events) == limit:
        note(f"more: --after {events[-1].seq}")
    return 0


def _rows(events: Iterable[Event]) -> Iterable[list[Cell | str]]:
    shorten = sys.stdout.isatty()
    for event in events:
        payload = one_line(phrase(event), _PAYLOAD)
        turn = UNKNOWN if event.turn is None else one_line(event.turn)
        if shorten and len(turn) > _TURN:
            turn = f"…{turn[1 - _TURN :]}"
        yield [str(event.seq), time_cell(event.observed_at, seconds=True), turn, event.kind.value, payload]
