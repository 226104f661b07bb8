"""``turnlog watch``: receipts of all conversations as they are recorded."""

from __future__ import annotations

import select
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.output import SCHEMA_VERSION, json_text, plain
from turnlog.surfaces.cli.state import STYLES
from turnlog.surfaces.cli.words import UNKNOWN, local_time, one_line, report_failure, short_id

if TYPE_CHECKING:
    from turnlog.queries.tail import Page, Received

INTERRUPTED_EXIT: Final = 130
STARTS: Final = {"start", "0"}
_PHRASE: Final = 160
_TURN: Final = 14


def watch(
    cli: Cli,
    start: Annotated[
        str, typer.Option("--from", metavar="CURSOR", help="Begin behind this cursor; `start`: at the first receipt.")
    ] = "now",
    session: Annotated[str | None, typer.Option(metavar="SESSION", help="Only this conversation.")] = None,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="Only captured, requested, started, usage, output, completed …")
    ] = None,
) -> int:
    """Print receipts as they are recorded, by whatever process; with --json one object on each line.

    Nothing is left out: every line has its cursor, from which a later watch goes on.

    Example: turnlog --json watch --from start --kind completed | head
    """
    cursor: str | None = None
    try:
        # A server tells of receipts only whoever has left a note there; a file is never written for this.
        with cli.ledger(write=not cli.url.startswith("sqlite:")) as ledger:
            only = None if session is None else ledger.find_session(session).id
            cursor = None if start in STARTS else ledger.tail_end() if start == "now" else start
            for page in ledger.follow(cursor, session=only, kind=kind):
                cursor = page.cursor
                if not page.receipts and _left():
                    return 0
                _print(cli, page)
    except KeyboardInterrupt:
        hint = f"`turnlog watch --from {cursor}` goes on here" if cursor else "nothing is half-written"
        return report_failure("interrupted", hint, "interrupted", INTERRUPTED_EXIT, as_json=cli.json)
    return 0


def _left() -> bool:
    """Tell whether whoever read the output is gone: nothing else says so while there is nothing to write."""
    try:
        waiting = select.poll()
        waiting.register(sys.stdout.fileno(), 0)
        return any(told & (select.POLLERR | select.POLLHUP) for _, told in waiting.poll(0))
    except (OSError, ValueError):
        return False


def _print(cli: Cli, page: Page) -> None:
    for each in page.receipts:
        if cli.json:
            _write(json_text({"schema_version": SCHEMA_VERSION, **_plain(each)}))
        else:
            print(_line(cli, each))
    if page.receipts:
        sys.stdout.flush()


def _write(text: str) -> None:
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        print(text)
    else:  # JSON is UTF-8 whatever the locale says
        buffer.write(text.encode() + b"\n")


def _plain(received: Received) -> dict[str, Any]:
    members = plain(received)
    if received.problem is None:
        del members["problem"]
    return dict(members)


def _line(cli: Cli, received: Received) -> str:
    turn = UNKNOWN if received.turn is None else one_line(received.turn)
    if len(turn) > _TURN:
        turn = f"…{turn[1 - _TURN :]}"
    kind = f"{one_line(received.kind):<9}"
    style = STYLES.get(_status(received), "") if cli.color else ""
    if style:
        kind = f"\x1b[{style}m{kind}\x1b[0m"
    at = local_time(received.observed_at, seconds=True)
    return f"{at}  {short_id(received.session_id):<12}  {turn:<{_TURN}}  {kind}  {_phrase(received)}".rstrip()


def _status(received: Received) -> str:
    payload = received.payload
    told = payload.get("status") if received.kind == "completed" and isinstance(payload, dict) else None
    return told if isinstance(told, str) else ""


def _phrase(received: Received) -> str:
    if received.problem is not None:
        return f"({one_line(received.problem)})"
    from turnlog.surfaces.cli.phrases import say

    return one_line(say(received.kind, received.payload), _PHRASE)
