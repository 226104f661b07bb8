"""``turnlog ps``: what runs now, what was left behind, and ending it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from turnlog.errors import NoLedgerError
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.output import Cell, Column, plain, print_object, print_table, time_cell
from turnlog.surfaces.cli.words import SHORT_ID, UNKNOWN, note, one_line, short_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from turnlog.api import Ledger
    from turnlog.drive import Node, ProviderProcess

_HEAD: Final = (
    Column("PID"),
    Column("WHAT"),
    Column("STATE"),
    Column("HOME", drop=3),
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

    with _opened(cli) as ledger:
        if stop is not None:
            ended = drive.stop_process(ledger, stop)
            if cli.json:
                print_object(stopped=plain(ended))
            else:
                print(f"ended {ended.pid}")
            return 0
        look = drive.running_processes(ledger)
        homes = {} if cli.json else _homes(ledger, look.nodes)
    if cli.json:
        print_object(**plain(look))
        return 0
    rows = [_node(each, homes) for each in look.nodes] + [_left(each) for each in look.provider_processes]
    if rows:
        shown = [index for index, column in enumerate(_HEAD) if homes or column.title != "HOME"]
        print_table(cli, [_HEAD[index] for index in shown], [[row[index] for index in shown] for row in rows])
    else:
        note("nothing runs")
    if any(each.claim == "orphaned" for each in look.provider_processes):
        note(
            "orphaned: turnlog started it and is gone; `turnlog recover` reads what it did, `turnlog ps --stop` ends it"
        )
    return 0


def _opened(cli: Cli) -> Ledger:
    """Open the ledger for reading; make one where there is none, for programs may run that it knows nothing of."""
    try:
        return cli.ledger()
    except NoLedgerError:
        return cli.ledger(write=True)


def _homes(ledger: Ledger, nodes: tuple[Node, ...]) -> dict[str, str]:
    """Return what the homes are called that something runs in; nothing while all of it runs in this one."""
    from turnlog.ledger.homes import home_id

    found = {node.home_id for node in nodes if node.home_id is not None}
    if found <= {home_id()}:
        return {}
    known = {home.id: one_line(home.name) for home in ledger.homes() if home.id in found}
    named = list(known.values())
    return {each: _called(each, known.get(each), named) for each in found}


def _called(home: str, name: str | None, named: list[str]) -> str:
    short = home.removeprefix("home_")[:SHORT_ID]
    return short if name is None else name if named.count(name) == 1 else f"{name} ({short})"


def _node(node: Node, homes: Mapping[str, str]) -> list[Cell | str]:
    what = "turnlog" if node.kind == "exec" else "  engine"
    return [
        str(node.pid),
        what,
        Cell(node.state, style=_STATES.get(node.state, "")),
        homes.get(node.home_id or "", UNKNOWN),
        time_cell(node.started_at),
        short_id(node.session_id) if node.session_id else UNKNOWN,
        one_line(node.label),
    ]


def _left(each: ProviderProcess) -> list[Cell | str]:
    return [
        str(each.pid),
        one_line(each.provider or "child"),
        Cell(each.claim, style=_STATES.get(each.claim, "")),
        UNKNOWN,
        time_cell(each.started_at),
        short_id(each.session_id) if each.session_id else UNKNOWN,
        one_line(each.command),
    ]
