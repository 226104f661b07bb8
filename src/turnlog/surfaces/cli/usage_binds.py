"""``turnlog usage --binds``: what bound conversations used before, during and after their bind (4.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.output import Cell, Column, count_cell, plain, print_object, print_table
from turnlog.surfaces.cli.when import instant
from turnlog.surfaces.cli.words import dollars, local_time, note, one_line, short_id

if TYPE_CHECKING:
    from turnlog.queries.binds import BindUsage
    from turnlog.usage.report import UsageRow

_COUNTS: Final = (
    Column("INPUT", right=True),
    Column("OUTPUT", right=True),
    Column("CACHE READ", right=True, drop=1),
    Column("CACHE WRITE", right=True, drop=3),
    Column("REPORTED", right=True, drop=2),
    Column("ESTIMATED", right=True),
    Column("FINAL", right=True, drop=5),
    Column("GAPS", right=True, drop=4),
)
_PARTS: Final = (Column("", least=8), Column("TURNS", right=True), *_COUNTS)
_BINDS: Final = (Column("SESSION"), Column("TASK", least=8), Column("BOUND", drop=4), *_PARTS)


def show_binds(
    cli: Cli,
    *,
    task: str | None = None,
    wave: str | None = None,
    project: str | None = None,
    since: str | None = None,
) -> int:
    """Print the report; ``since`` is about the bind. Raises InvalidError."""
    start = 0 if since is None else instant(since)
    with cli.ledger() as ledger:
        from turnlog.surfaces.cli.filters import narrowed

        task, wave, project = narrowed(ledger, task=task, wave=wave, project=project)
        found = ledger.usage_binds(task=task, wave=wave, project=project, since=start, limit=None)
    if cli.json:
        print_object(
            binds=[bind_row(each) for each in found.binds],
            tasks=[
                {
                    "task": each.task,
                    "task_identifier": each.task_identifier,
                    "binds": each.binds,
                    "prospective": _usage(each.prospective),
                    "post_hoc": _usage(each.post_hoc),
                }
                for each in found.tasks
            ],
            next=found.next,
        )
        return 0
    if not found.binds:
        asked = any(each is not None for each in (task, wave, project, since))
        note("No bind matches." if asked else "No conversation was bound to a task; `turnlog bind` does that.")
        return 0
    rows: list[list[Cell | str]] = []
    for each in found.binds:
        names = [short_id(each.session), one_line(each.task_identifier), local_time(each.bound_at)]
        for row in _parts(each):
            rows.append([*names, *row])
            names = ["", "", ""]
    for total in found.tasks:
        task_name = one_line(total.task_identifier)
        rows.append(
            ["", Cell(task_name, style="1"), "", Cell("by receipts", style="1"), "", *_counts(total.prospective)]
        )
        rows.append(["", Cell(task_name, style="1"), "", Cell("all moved", style="1"), "", *_counts(total.post_hoc)])
    print_table(cli, _BINDS, rows)
    note("by receipts: turns that began for the task · all moved: with what its bound conversations used for no task")
    return 0


def bind_row(told: BindUsage) -> dict[str, Any]:
    """Return a bind as JSON."""
    row = plain(told)
    for phase in ("before", "during", "after"):
        part = getattr(told, phase)
        row[phase] = {"turns": part.turns, **_usage(part.usage)}
    return {**row, "prospective": _usage(told.prospective), "post_hoc": _usage(told.post_hoc)}


def print_parts(cli: Cli, told: BindUsage) -> None:
    """Print the three parts of one bind."""
    print_table(cli, _PARTS, _parts(told))


def _usage(row: UsageRow) -> dict[str, Any]:
    left_out = {"key", "native", "window", "models"}
    return {name: value for name, value in plain(row).items() if name not in left_out}


def _parts(told: BindUsage) -> list[list[Cell | str]]:
    parts = (("before", told.before), ("during", told.during), ("after", told.after))
    return [[name, f"{part.turns:,}", *_counts(part.usage)] for name, part in parts]


def _counts(row: UsageRow) -> list[Cell | str]:
    tokens, gaps = row.tokens, sum(gap.count for gap in row.gaps)
    low = bool(gaps) or row.final_streams < row.streams
    costs = low or row.cost.unpriced_calls > 0
    return [
        *(count_cell(each, low=low) for each in (tokens.input, tokens.output, tokens.cache_read, tokens.cache_write)),
        dollars(row.cost.reported_usd, low=costs),
        dollars(row.cost.estimated_usd, low=costs or row.cost.low_estimates > 0),
        f"{row.final_streams}/{row.streams}",
        Cell(str(gaps), style="33" if gaps else ""),
    ]
