"""``turnlog activity``: what was recorded lately, newest first (7.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from turnlog.errors import InvalidError
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.output import Cell, Column, plain, print_object, print_table, time_cell
from turnlog.surfaces.cli.state import STYLES
from turnlog.surfaces.cli.when import instant
from turnlog.surfaces.cli.words import UNKNOWN, local_time, note, one_line, short_id

if TYPE_CHECKING:
    from turnlog.history.work import Activity

MOST: Final = 200
_DETAIL: Final = 80
_HEAD: Final = (
    Column("TIME", drop=1),
    Column("WHAT"),
    Column("WORK", drop=3, least=10),
    Column("SESSION", drop=2),
    Column("TITLE", least=24),
)
_WORDS: Final = {
    "input_captured": "asked",
    "provider_history_recorded": "history",
    "bound": "bound",
    "conversation_closed": "closed",
    "pr_recorded": "pull request",
}


def activity(
    cli: Cli,
    since: Annotated[str, typer.Option(metavar="WHEN", help="7d, 2026-03-01 or RFC 3339; `all` for all time.")] = "7d",
    limit: Annotated[int, typer.Option(metavar="N", help=f"At most N, up to {MOST}.")] = 50,
    cursor: Annotated[str | None, typer.Option(metavar="CURSOR", help="Continue after this (`next`).")] = None,
) -> int:
    """List what was recorded lately: work, inputs, ends of turns, histories found, binds, requests, what was closed.

    Example: turnlog activity --since 7d
    """
    if not 0 < limit <= MOST:
        raise InvalidError(f"--limit must be from 1 to {MOST}", hint="--cursor continues where a page ends")
    start = 0 if since == "all" else instant(since)
    with cli.ledger() as ledger:
        found, following = ledger.activity(since=start, limit=limit, cursor=cursor)
    if cli.json:
        print_object(activity=[_plain(each) for each in found], next=following)
        return 0
    if not found:
        note(f"Nothing was recorded {'at any time' if start == 0 else f'since {local_time(start)}'}.")
        return 0
    print_table(cli, _HEAD, [_cells(each) for each in found])
    if following:
        note(f"more: --cursor {following}")
    return 0


def _plain(fact: Activity) -> dict[str, Any]:
    from turnlog.clock import to_rfc3339

    return {**plain(fact), "at": to_rfc3339(fact.at)}


def _cells(fact: Activity) -> list[Cell | str]:
    from turnlog.history.work import name_work

    return [
        time_cell(fact.at),
        Cell(_what(fact), style=STYLES.get(fact.outcome or "", "")),
        one_line(name_work(fact.task, fact.task_identifier, fact.wave, fact.wave_name)),
        UNKNOWN if fact.session is None else short_id(fact.session),
        _title(fact),
    ]


def _what(fact: Activity) -> str:
    if fact.kind in {"work_created", "work_retired"}:
        return f"{fact.subject} {'created' if fact.kind == 'work_created' else 'retired'}"
    if fact.kind == "input_completion_recorded":
        return one_line(fact.outcome or "ended")
    if fact.subject == "request":
        return f"{fact.kind.removesuffix('_issued')}: {one_line(fact.outcome or UNKNOWN).replace('_', ' ')}"
    return _WORDS.get(fact.kind, one_line(fact.kind))


def _title(fact: Activity) -> str:
    """Return the title, with what a request said or what a pull request is called."""
    words = [one_line(fact.title)] if fact.title else []
    if fact.detail and (fact.subject in {"request", "pr"} or not words):
        words.append(one_line(fact.detail, _DETAIL))
    return ": ".join(words) or UNKNOWN
