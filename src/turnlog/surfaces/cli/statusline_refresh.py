"""Computes what the status line shows, in a process of its own: ``python -m … FILE SESSION [LEDGER]``.

It is started with the lock of a refresh in its hands and has it until it ends, however it ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from turnlog.errors import NoLedgerError, TurnlogError
from turnlog.surfaces.cli.context import Cli, Globals

if TYPE_CHECKING:
    from turnlog.api import Ledger
    from turnlog.usage.report import UsageRow

MOST_S: Final = 600
"""Nothing may hold the lock for ever."""

_SESSIONS_MOST: Final = 200


def main(argv: list[str]) -> int:
    """Compute and store the row once; 1 when the ledger could not be read."""
    signal.alarm(MOST_S)
    with suppress(OSError):
        os.nice(10)
    path, session, ledger = Path(argv[0]), argv[1] or None, argv[2] if len(argv) > 2 else None  # noqa: PLR2004
    try:
        row = compute(Cli(Globals(ledger=ledger)), session)
    except TurnlogError:
        return 1  # what is shown stays, and its age can be seen
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        partial.write_text(json.dumps(row), encoding="utf-8")
        partial.replace(path)
    except OSError:
        return 1
    return 0


def compute(cli: Cli, session: str | None) -> dict[str, Any]:
    """Return today's sums, those of today's conversations (and of ``session``) by their native id, and rate limits.

    Reads what is new on disk first, into a ledger that is a file: what this machine has on disk goes into a team's only
    when that is asked for. A ledger that does not exist is not made: nothing is known then. Raises TurnlogError.
    """
    started = int(time.time() * 1000)
    day = time.strftime("%Y-%m-%d")
    row: dict[str, Any] = {"at": started, "day": day, "timezone": None, "today": None, "sessions": {}, "limits": []}
    try:
        cli.ledger().close()
    except NoLedgerError:
        return row
    with cli.ledger(write=True) as ledger:
        if cli.url.startswith("sqlite:"):
            with suppress(TurnlogError):  # what the ledger knows is shown all the same
                ledger.import_histories()
        report = ledger.usage_report("total", since=day)
        row["timezone"] = report.timezone
        row["today"] = sums(report.totals)
        row["sessions"] = _sessions(ledger, day, session)
        row["limits"] = [msgspec.to_builtins(limit) for limit in ledger.last_limits()]
    return row


def _sessions(ledger: Ledger, day: str, asked: str | None) -> dict[str, Any]:
    today = [row.key for row in ledger.usage_report("session", since=day).rows]
    wanted = set(today[-_SESSIONS_MOST:])
    found: dict[str, Any] = {}
    for row in ledger.usage_report("session").rows if wanted or asked else ():
        native = row.native.id if row.native and row.native.id else row.key.partition(":")[2]
        if row.key in wanted or native == asked:
            found[native or row.key] = sums(row)
    if asked is not None:
        found.setdefault(asked, None)  # nothing is known of it: asking again at once would not help
    return found


def sums(row: UsageRow) -> dict[str, Any]:
    """Return what a status line shows of a report's row. ``tokens`` is all input and output; None = nobody knows."""
    known = [value for value in (row.tokens.total_input, row.tokens.output) if value is not None]
    gaps = bool(row.gaps) or row.final_streams < row.streams
    return {
        "tokens": sum(known) if known else None,
        "low": gaps,
        "reported_usd": row.cost.reported_usd,
        "estimated_usd": row.cost.estimated_usd,
        "unpriced_calls": row.cost.unpriced_calls,
        "cost_low": gaps or row.cost.unpriced_calls > 0,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
