"""What ``turnlog usage`` shows: tables with their coverage, JSON, CSV (contract §2)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import to_builtins

from turnlog.clock import to_rfc3339
from turnlog.errors import InvalidError
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.gaps import MEANING
from turnlog.surfaces.cli.output import Cell, Column, count_cell, plain, print_object, print_table
from turnlog.surfaces.cli.usage_fresh import current, import_rest, nothing_found
from turnlog.surfaces.cli.when import bound
from turnlog.surfaces.cli.words import UNKNOWN, dollars, local_time, note, number, one_line, plural, short_id

if TYPE_CHECKING:
    from turnlog.api import Ledger
    from turnlog.queries.limits import Limit
    from turnlog.queries.reporting import Seen
    from turnlog.usage.report import UsageReport, UsageRow

TITLES: Final = {
    "daily": "DAY",
    "weekly": "WEEK OF",
    "monthly": "MONTH",
    "blocks": "FROM",
    "session": "SESSION",
    "model": "MODEL",
    "project": "PROJECT",
    "task": "TASK",
    "total": "",
}
"""The kinds of report, with the title of their first column."""

DAYS_SHOWN: Final = 30
"""What a person sees of the daily report unless told otherwise (contract §2)."""

LIMITS_MS: Final = 8 * 86_400_000
"""How old a rate limit may be to be shown: the longest windows are weeks."""

_TOKENS: Final = ("input", "output", "total_input", "cache_read", "cache_write", "cache_write_1h", "reasoning")


class Asked(NamedTuple):
    """What a command line asks for."""

    kind: str = "total"
    since: str | None = None
    until: str | None = None
    timezone: str | None = None
    provider: str | None = None
    project: str | None = None
    task: str | None = None
    wave: str | None = None
    breakdown: bool = False
    prices: Path | None = None
    csv: bool = False
    no_import: bool = False


def show(cli: Cli, asked: Asked) -> int:
    """Print a report. Raises InvalidError for what cannot be asked, MissingError for a filter that names nothing."""
    if asked.kind not in TITLES:
        raise InvalidError(f"no usage report {asked.kind!r}", hint=f"choose one of {', '.join(TITLES)}")
    if asked.csv and cli.json:
        raise InvalidError("--csv and --json exclude each other", hint="choose one")
    first, last = bound(asked.since), bound(asked.until)
    recent = asked.kind == "daily" and not (cli.json or asked.csv) and first is None and last is None
    if recent:
        first = _days_ago(DAYS_SHOWN - 1, asked.timezone)
    projects = asked.kind == "project" or asked.project is not None
    ledger, seen, left = current(cli, read_disk=not asked.no_import, projects=projects)
    try:
        with contextlib.ExitStack() as open_:
            if not left:
                open_.enter_context(ledger)
            # Else it is left as it is to the import that follows: closing writes the log back, at the disk's speed.
            task, wave, project, told = asked.task, asked.wave, asked.project, list[str]()
            if (task, wave, project, asked.provider) != (None, None, None, None):
                from turnlog.surfaces.cli.filters import narrowed, provider_filter

                provider_filter(ledger, asked.provider)
                task, wave, project = narrowed(
                    ledger, task=task, wave=wave, project=project, places=lambda: _places(ledger, seen)
                )
            window: dict[str, Any] = {"since": first, "until": last, "timezone": asked.timezone, "seen": seen}
            filters: dict[str, Any] = {"provider": asked.provider, "project": project, "task": task}
            report = ledger.usage_report(
                asked.kind, wave=wave, breakdown=asked.breakdown, prices=asked.prices, **filters, **window
            )
            if wave is not None:
                from turnlog.surfaces.cli.usage_nested import nested_usage

                told += nested_usage(ledger, wave, {**filters, **window})
            person = not (asked.csv or cli.json)
            limits = ledger.last_limits() if person else []
            empty = person and not report.rows and asked == Asked(kind=asked.kind)
            empty = empty and not (recent and ledger.usage_report("total", seen=seen).rows)
        _print(cli, asked, report, limits if asked.provider is None else [], recent=recent)
        for line in told:
            note(line)
        if empty and cli.url.startswith("sqlite:"):
            nothing_found()
        elif empty:
            note("a team's ledger holds what is told to it: `turnlog ledger push URL` tells it what one machine has")
        sys.stdout.flush()
    finally:
        if left:
            import_rest(ledger.url, left)
    return 0


def _places(ledger: Ledger, seen: Seen | None) -> Iterator[str]:
    """Yield the repositories and folders of conversations, also of those that are not imported yet."""
    yield from ledger.places()
    if seen is not None:
        yield from (each.project for each in seen.facts.values() if each.project)


def _print(cli: Cli, asked: Asked, report: UsageReport, limits: list[Limit], *, recent: bool) -> None:
    """Print a report; ``recent``: of the days that a person sees unless told otherwise."""
    if asked.csv:
        _csv(report)
        _unseen(report)  # its columns cannot say so
    elif cli.json:
        print_object(
            timezone=report.timezone,
            prices=None if report.prices is None else plain(report.prices),
            rows=[_plain(row) for row in report.rows],
            totals=_plain(report.totals),
            unseen_gaps=list(report.unseen_gaps),
        )
    elif not report.rows:
        words = (("since", asked.since), ("until", asked.until))
        window = f"in the last {DAYS_SHOWN} days" if recent else " ".join(f"{w} {v}" for w, v in words if v)
        note(f"No usage was recorded{' ' + window if window else ''} (time zone {report.timezone}).")
        _gaps(report.totals)
        _unseen(report)
    else:
        _table(cli, report)
        if limits:
            _limits(limits)
        if recent:
            note(f"the last {DAYS_SHOWN} days; --since shows earlier ones, --json has all")


def _limits(limits: list[Limit]) -> None:
    """Show the last known rate limits: of those windows that programs told of lately."""
    from turnlog.clock import now_ms
    from turnlog.surfaces.cli.limits import limit_notes

    now = now_ms()
    for line in limit_notes((each for each in limits if now - each.at < LIMITS_MS), now):
        note(line)


def _days_ago(count: int, timezone: str | None) -> str:
    """Return a day before today, in the zone that days are cut in. Raises InvalidError for an unknown zone."""
    from datetime import timedelta

    from turnlog.clock import now_ms
    from turnlog.queries.zones import day_of, resolve_zone

    return (day_of(now_ms(), resolve_zone(timezone)[0]) - timedelta(days=count)).isoformat()


def _plain(row: UsageRow) -> dict[str, Any]:
    """Return a row as JSON, as ``plain`` gives it but faster; members that do not apply are left out."""
    return _shown(to_builtins(row))


def _shown(value: dict[str, Any]) -> dict[str, Any]:
    for name in ("native", "window", "models"):
        if value[name] is None:
            del value[name]
    if "window" in value:
        value["window"] = {name: to_rfc3339(at) for name, at in value["window"].items()}
    if "models" in value:
        value["models"] = [_shown(each) for each in value["models"]]
    return value


# --- for people


def _table(cli: Cli, report: UsageReport) -> None:
    kind = report.by
    head = [
        Column(TITLES[kind], least=18),
        *([Column("TO", drop=6)] if kind == "blocks" else []),
        Column("INPUT", right=True),
        Column("OUTPUT", right=True),
        Column("CACHE READ", right=True, drop=1),
        Column("CACHE WRITE", right=True, drop=3),
        Column("REPORTED", right=True, drop=2),
        Column("ESTIMATED", right=True),
        Column("CALLS", right=True, drop=5),
        Column("FINAL", right=True, drop=6),
        Column("GAPS", right=True, drop=4),
    ]
    rows = []
    for row in report.rows:
        rows.append(_cells(report, _name(kind, row), row, ""))
        rows += [_cells(report, f"  {one_line(model.key)}", model, "2") for model in row.models or ()]
    if kind != "total":
        rows.append(_cells(report, "total", report.totals, "1"))
    print_table(cli, head, rows)
    told = "no prices" if report.prices is None else f"estimates by {_prices(report)}"
    note(f"time zone {report.timezone} · {told}; what providers reported stands apart")
    unpriced = report.totals.cost.unpriced_calls
    if unpriced:
        note(f"≥ {plural(unpriced, 'call')} without a price and without a reported cost")
    low = report.totals.cost.low_estimates
    if low:
        note(f"≥ {plural(low, 'estimate')} of which something that costs more is unknown")
    _gaps(report.totals)
    _unseen(report)


def _prices(report: UsageReport) -> str:
    prices = report.prices
    if prices is None:
        return UNKNOWN
    version = prices.version if prices.source in prices.version else f"{prices.source} {prices.version}"
    earlier = f" (some by {', '.join(map(one_line, prices.earlier))})" if prices.earlier else ""
    return f"{one_line(version)}{earlier}"


def _gaps(totals: UsageRow) -> None:
    for gap in totals.gaps:
        note(f"≥ {gap.count} × {one_line(gap.kind)}: {MEANING.get(gap.kind, 'a gap of a kind not known here')}")


def _unseen(report: UsageReport) -> None:
    if report.unseen_gaps:
        kinds = ", ".join(report.unseen_gaps)
        note(f"≥ not all gaps were looked for yet ({kinds}): they show after the import")


def _name(kind: str, row: UsageRow) -> str:
    if kind == "session":
        return short_id(row.key)
    if kind == "blocks" and row.window is not None:
        return local_time(row.window.starts_at)
    return one_line(row.key)


def _cells(report: UsageReport, name: str, row: UsageRow, style: str) -> list[Cell | str]:
    tokens, gaps, unseen = row.tokens, sum(gap.count for gap in row.gaps), bool(report.unseen_gaps)
    low = bool(gaps) or unseen or row.final_streams < row.streams
    unpriced = row.cost.unpriced_calls > 0
    counts = (tokens.input, tokens.output, tokens.cache_read, tokens.cache_write)
    input_, output, read, write = (count_cell(value, low=low)._replace(style=style) for value in counts)
    until = Cell(local_time(row.window.last_at) if row.window else "", style=style)
    return [
        Cell(name, style=style),
        *([until] if report.by == "blocks" else []),
        input_,
        output,
        read,
        write,
        Cell(dollars(row.cost.reported_usd, low=low or unpriced), style=style),
        Cell(dollars(row.cost.estimated_usd, low=low or unpriced or row.cost.low_estimates > 0), style=style),
        Cell(UNKNOWN if row.calls is None else f"{row.calls:,}", style=style),
        Cell(f"{row.final_streams}/{row.streams}", style=style),
        Cell(number(gaps, low=unseen), style="33" if gaps else style),
    ]


# --- for programs


def _csv(report: UsageReport) -> None:
    """Print RFC 4180: the members of the JSON rows by their path; what is unknown is empty, never 0."""
    from csv import writer

    head = ["key"]
    if report.by == "session":
        head += ["native.provider", "native.id"]
    if report.by == "blocks":
        head += [f"window.{name}" for name in ("starts_at", "ends_at", "first_at", "last_at")]
    detailed = any(row.models is not None for row in report.rows)
    if detailed:
        head.append("model")
    head += [f"tokens.{name}" for name in _TOKENS]
    head += ["calls", "streams", "final_streams", "gaps"]
    head += [f"cost.{name}" for name in ("reported_usd", "estimated_usd", "unpriced_calls", "low_estimates")]
    out = writer(sys.stdout, lineterminator="\r\n")
    out.writerow(head)
    for row in report.rows:
        # With a breakdown the models' lines alone: a sum of the column is then still the total.
        for each in row.models or [row]:
            value = plain(each)
            flat: dict[str, object] = {"key": one_line(row.key), "model": one_line(each.key) if row.models else None}
            flat["gaps"] = ";".join(f"{gap.kind}={gap.count}" for gap in each.gaps)
            flat |= {name: value[name] for name in ("calls", "streams", "final_streams")}
            whole = plain(row)
            for part, members in (("native", whole["native"]), ("window", whole["window"])):
                flat |= {f"{part}.{name}": item for name, item in (members or {}).items()}
            for part in ("tokens", "cost"):
                flat |= {f"{part}.{name}": item for name, item in value[part].items()}
            out.writerow(["" if flat.get(name) is None else flat[name] for name in head])
