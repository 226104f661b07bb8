"""``turnlog ps``: what runs now, what was left behind, and ending it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.output import Cell, Column, plain, print_object, print_table, time_cell
from turnlog.surfaces.cli.words import UNKNOWN, note, one_line, short_id

if TYPE_CHECKING:
    from turnlog.drive import Node, ProviderProcess

_HEAD: Final = (
    Column("PID"),
    Column("WHAT"),
    Column("STATE"),
    Column("SINCE", drop=1),
    Column("SESSION", drop=2),
    Column("COMMAND", least=24),
)
_STATES: Final = {"working": "32", "waiting": "33", "stalled": "31", "orphaned": "31", "unclaimed": "2"}


def ps(
    cli: Cli,
    stop: Annotated[
        str | None, typer.Option("--stop", metavar="ID", help="End one process; only what turnlog started.")
    ] = None,
) -> int:
    """Show what runs: turnlogs, their engines, and agent programs that nobody holds any more.

    Example: turnlog ps --stop 4711
    """
    from turnlog import drive

    with cli.ledger(write=True) as ledger:
        if stop is not None:
            ended = drive.stop_process(ledger, stop)
            if cli.json:
                print_object(stopped=plain(ended))
            else:
                print(f"ended {ended.pid}")
            return 0
        look = drive.running_processes(ledger)
    if cli.json:
        print_object(**plain(look))
        return 0
    rows = [_node(each) for each in look.nodes] + [_left(each) for each in look.provider_processes]
    if rows:
        print_table(cli, _HEAD, rows)
    else:
        note("nothing runs")
    if any(each.claim == "orphaned" for each in look.provider_processes):
        note(
            "orphaned: turnlog started it and is gone; `turnlog recover` reads what it did, `turnlog ps --stop` ends it"
        )
    return 0


def _node(node: Node) -> list[Cell | str]:
    what = "turnlog" if node.kind == "exec" else "  engine"
    return [
        str(node.pid),
        what,
        Cell(node.state, style=_STATES.get(node.state, "")),
        time_cell(node.started_at),
        short_id(node.session_id) if node.session_id else UNKNOWN,
        one_line(node.label),
    ]


def _left(each: ProviderProcess) -> list[Cell | str]:
    return [
        str(each.pid),
        one_line(each.provider or "child"),
        Cell(each.claim, style=_STATES.get(each.claim, "")),
        time_cell(each.started_at),
        short_id(each.session_id) if each.session_id else UNKNOWN,
        one_line(each.command),
    ]
