"""What a search reads first: what is new in the histories on disk, as a usage report does.

A little is imported on the spot. Much is imported by a process of its own; the search does without it and says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.errors import NoLedgerError, UnavailableError
from turnlog.surfaces.cli import usage_fresh
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.usage_fresh import import_behind
from turnlog.surfaces.cli.words import note, plural

if TYPE_CHECKING:
    from turnlog.api import Ledger


def current(cli: Cli, *, read_disk: bool) -> tuple[Ledger, int]:
    """Open the ledger, brought up to date where that is quick; return it and how many bytes are left to import.

    Into a PostgreSQL ledger nothing is imported. O(files) system calls, and reading what is new.
    """
    if not read_disk or not cli.url.startswith("sqlite:"):
        return cli.ledger(), 0
    try:
        ledger = cli.ledger(write=True)
    except UnavailableError as error:
        if isinstance(error, NoLedgerError):
            raise
        note(f"histories were not read: {error.message}")
        return cli.ledger(), 0
    try:
        done, left = ledger.catch_up(most=usage_fresh.AT_ONCE)
        if done is not None and done.problems:
            problems = plural(len(done.problems), "problem")
            note(f"{problems} in {done.files:,} files that were read; `turnlog import` shows them")
    except BaseException:
        ledger.close()
        raise
    if left:
        how = "is imported in the background" if import_behind(ledger.url) else "is being imported"
        note(f"{left / 1e6:,.0f} MB of history {how}; this search lacks it; `turnlog import` reads it now")
    return ledger, left
