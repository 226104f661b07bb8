"""``turnlog usage``: sums with their coverage (contract §2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from turnlog.errors import InvalidError
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.gaps import MEANING
from turnlog.surfaces.cli.output import Cell, Column, count_cell, plain, print_object, print_table
from turnlog.surfaces.cli.when import bound
from turnlog.surfaces.cli.words import UNKNOWN, dollars, note, one_line, plural, short_id

if TYPE_CHECKING:
    from turnlog.usage.report import UsageReport, UsageRow

KINDS: Final = ("total", "session", "model", "daily")
DAYS_SHOWN: Final = 30
"""What a person sees of the daily report unless told otherwise (contract §2)."""

_TITLES: Final = {"total": "", "session": "SESSION", "model": "MODEL", "daily": "DAY"}


def usage(
    cli: Cli,
    kind: Annotated[str, typer.Argument(metavar="[total|session|model|daily]", help="How to group.")] = "total",
    since: Annotated[str | None, typer.Option(metavar="WHEN", help="First day, or 7d, or RFC 3339.")] = None,
    until: Annotated[str | None, typer.Option(metavar="WHEN", help="Last day, or RFC 3339.")] = None,
    timezone: Annotated[str | None, typer.Option(metavar="ZONE", help="Zone that days are cut in.")] = None,
    provider: Annotated[str | None, typer.Option(metavar="NAME", help="Only this provider's.")] = None,
    task: Annotated[str | None, typer.Option(metavar="TASK", help="Only that of a task.")] = None,
    wave: Annotated[str | None, typer.Option(metavar="WAVE", help="Only that of a wave.")] = None,
    project: Annotated[str | None, typer.Option(metavar="PROJECT", help="Only that of a project.")] = None,
    breakdown: Annotated[bool, typer.Option("--breakdown", help="A line per model.")] = False,
) -> int:
    """Add up tokens and cost; a sum that may lack something shows ≥.

    Example: turnlog usage daily --since 2026-03-01 --timezone Europe/Berlin
    """
    if kind not in KINDS:
        raise InvalidError(f"no usage report {kind!r}", hint=f"choose one of {', '.join(KINDS)}")
    first, last = bound(since), bound(until)
    recent = kind == "daily" and not cli.json and first is None and last is None
    if recent:
        first = _days_ago(DAYS_SHOWN - 1, timezone)
    with cli.ledger() as ledger:
        report = ledger.usage_report(
            kind,
            since=first,
            until=last,
            timezone=timezone,
            provider=provider,
            task=task,
            wave=wave,
            project=project,
            breakdown=breakdown,
        )
    if cli.json:
        print_object(
            timezone=report.timezone,
            prices=None,
            rows=[_plain(row) for row in report.rows],
            totals=_plain(report.totals),
        )
        return 0
    if not report.rows:
        window = " ".join(f"{word} {value}" for word, value in (("since", since), ("until", until)) if value)
        window = f"in the last {DAYS_SHOWN} days" if recent else window
        note(f"No usage was recorded{' ' + window if window else ''} (time zone {report.timezone}).")
    else:
        _table(cli, kind, report)
        if recent:
            note(f"the last {DAYS_SHOWN} days; --since shows earlier ones, --json has all")
    return 0


def _days_ago(count: int, timezone: str | None) -> str:
    """Return a day before today, in the zone that days are cut in. Raises InvalidError for an unknown zone."""
    from datetime import UTC, datetime, timedelta

    from turnlog.clock import now_ms
    from turnlog.queries.usage import resolve_zone

    now = datetime.fromtimestamp(now_ms() / 1000, UTC).astimezone(resolve_zone(timezone)[0])
    return (now.date() - timedelta(days=count)).isoformat()


def _plain(row: UsageRow) -> dict[str, object]:
    """Return a row as JSON; members that do not apply are left out."""
    value = {name: item for name, item in plain(row).items() if item is not None or name not in {"native", "models"}}
    if row.models is not None:
        value["models"] = [_plain(model) for model in row.models]
    return value


def _table(cli: Cli, kind: str, report: UsageReport) -> None:
    head = [
        Column(_TITLES[kind], least=12),
        Column("INPUT", right=True),
        Column("OUTPUT", right=True),
        Column("CACHE READ", right=True, drop=1),
        Column("CACHE WRITE", right=True, drop=3),
        Column("COST", right=True),
        Column("CALLS", right=True, drop=4),
        Column("FINAL", right=True, drop=5),
        Column("GAPS", right=True, drop=2),
    ]
    rows = []
    for row in report.rows:
        name = short_id(row.key) if kind == "session" else one_line(row.key)
        rows.append(_cells(name, row, ""))
        rows += [_cells(f"  {one_line(model.key)}", model, "2") for model in row.models or ()]
    if kind != "total":
        rows.append(_cells("total", report.totals, "1"))
    print_table(cli, head, rows)
    totals = report.totals
    note(f"time zone {report.timezone} · cost as reported by the providers")
    if totals.cost.unpriced_calls:
        note(f"≥ {plural(totals.cost.unpriced_calls, 'stream')} of usage without a reported cost")
    for gap in totals.gaps:
        note(f"≥ {gap.count} × {one_line(gap.kind)}: {MEANING.get(gap.kind, 'a gap of a kind not known here')}")


def _cells(name: str, row: UsageRow, style: str) -> list[Cell | str]:
    tokens, gaps = row.tokens, sum(gap.count for gap in row.gaps)
    low = bool(gaps) or row.final_streams < row.streams
    low_cost = low or row.cost.unpriced_calls > 0
    counts = (tokens.input, tokens.output, tokens.cache_read, tokens.cache_write)
    input_, output, read, write = (count_cell(value, low=low)._replace(style=style) for value in counts)
    return [
        Cell(name, style=style),
        input_,
        output,
        read,
        write,
        Cell(dollars(row.cost.reported_usd, low=low_cost), style=style),
        Cell(UNKNOWN if row.calls is None else f"{row.calls:,}", style=style),
        Cell(f"{row.final_streams}/{row.streams}", style=style),
        Cell(str(gaps), style="33" if gaps else style),
    ]
