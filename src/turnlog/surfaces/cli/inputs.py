"""``turnlog inputs``: what was asked, how it went, what it cost (semantics 3.15, 7.2)."""

from __future__ import annotations

from itertools import groupby
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Final

import typer

from turnlog.errors import InvalidError
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.output import Cell, Column, count_cell, plain, print_object, print_table, time_cell
from turnlog.surfaces.cli.state import STYLES
from turnlog.surfaces.cli.when import instant
from turnlog.surfaces.cli.words import UNKNOWN, dollars, local_time, note, one_line, short_id

if TYPE_CHECKING:
    from turnlog.model import InputHistory, Usage

_HEAD: Final = (
    Column("TIME", drop=1),
    Column("REPO", drop=7, least=12),
    Column("WORK", drop=5, least=12),
    Column("SESSION"),
    Column("STATUS"),
    Column("INPUT", right=True),
    Column("OUTPUT", right=True),
    Column("CACHE READ", right=True, drop=6),
    Column("COST", right=True),
    Column("FINAL", right=True, drop=3),
    Column("GAPS", right=True, drop=2),
    Column("INPUT ID", drop=4),
)


def inputs(
    cli: Cli,
    since: Annotated[str, typer.Option(metavar="WHEN", help="7d, 2026-03-01 or RFC 3339; `all` for all time.")] = "7d",
    limit: Annotated[int, typer.Option(metavar="N", help="At most N finished ones; unfinished ones always show.")] = 50,
    wave: Annotated[str | None, typer.Option(metavar="WAVE", help="Only those of a wave.")] = None,
    project: Annotated[str | None, typer.Option(metavar="PROJECT", help="Only those of a project.")] = None,
    task: Annotated[str | None, typer.Option(metavar="TASK", help="Only those of a task.")] = None,
    caller: Annotated[
        str | None, typer.Option(metavar="KEY", help="Only what this input or session launched; all of it.")
    ] = None,
) -> int:
    """List what was asked lately with its outcomes, tokens, cost and gaps.

    Example: turnlog inputs --since 7d
    """
    if limit <= 0:
        raise InvalidError("--limit must be positive", hint="write --limit 50")
    start = 0 if since == "all" or caller is not None else instant(since)
    with cli.ledger() as ledger:
        if (task, wave, project) != (None, None, None):
            from turnlog.surfaces.cli.filters import narrowed

            task, wave, project = narrowed(ledger, task=task, wave=wave, project=project)
        if caller is not None:
            rows, truncated = ledger.inputs(wave=wave, project=project, task=task, caller=caller, since=start), False
            if not rows:
                from turnlog.surfaces.cli.filters import known_caller

                known_caller(ledger, caller)
        else:
            rows, truncated = ledger.recent_inputs(wave=wave, project=project, task=task, since=start, limit=limit)
    if cli.json:
        print_object(inputs=[plain(row) for row in rows], truncated=truncated)
        return 0
    if not rows:
        which = "matches" if wave or project or task or caller else "was recorded"
        note(f"No input {which} {'at any time' if start == 0 else f'since {local_time(start)}'}.")
        return 0
    print_table(cli, _HEAD, [_cells(row) for row in rows])
    if truncated:
        note(f"there are more: --limit (now {limit})")
    return 0


def is_low(usage: Usage) -> bool:
    """Tell whether sums may lack something: there are gaps, or a stream is not final."""
    return usage.gaps > 0 or usage.final_streams < usage.streams


def _cells(row: InputHistory) -> list[Cell | str]:
    from turnlog.history.inputs import status_label, work_label

    usage, low = row.usage, is_low(row.usage)
    status = one_line(status_label(row))
    style = STYLES.get(row.providers[-1].outcome or "unknown", "") if row.providers else ""
    return [
        time_cell(row.observed_at),
        one_line(PurePath(row.repo).name or row.repo) if row.repo else UNKNOWN,
        one_line(work_label(row)),
        short_id(row.session_id),
        Cell(status, _grouped(status), style),
        count_cell(usage.input_tokens, low=low),
        count_cell(usage.output_tokens, low=low),
        count_cell(usage.cache_read_tokens, low=low),
        dollars(usage.cost_usd, low=low),
        f"{usage.final_streams}/{usage.streams}",
        Cell(str(usage.gaps), style="33" if usage.gaps else ""),
        short_id(row.artifact_key.removeprefix("run_")) if row.artifact_key else UNKNOWN,
    ]


def _grouped(status: str) -> str:
    """Shorten a row of outcomes without hiding one: ``completed ×3 → failed``."""
    groups = [(word, len(list(same))) for word, same in groupby(status.split(" → "))]
    return " → ".join(word if times == 1 else f"{word} ×{times}" for word, times in groups)
