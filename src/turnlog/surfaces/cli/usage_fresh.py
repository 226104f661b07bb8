"""What a usage report reads first: what is new in the histories on disk.

A little is imported on the spot. Much (a first use, mostly) is counted by a parallel look at the files that writes
nothing, so that the answer is there at once, while a process of its own imports it for the next time.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from turnlog.errors import NoLedgerError, UnavailableError
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.words import note, one_line, plural

if TYPE_CHECKING:
    from turnlog.api import Ledger
    from turnlog.queries.reporting import Seen
    from turnlog.usage.prices import Book

AT_ONCE: Final = 48 << 20
"""Bytes that are imported before a report: about a second."""


def current(cli: Cli, *, read_disk: bool, projects: bool) -> tuple[Ledger, Seen | None, int]:
    """Open the ledger, brought up to date where that is quick; else with what a look at the files told beside it.

    Returns also how many bytes are left for ``import_rest`` (0 = none), which the report should not have to share the
    processors with. ``projects``: the repositories of conversations are asked for. Into a PostgreSQL ledger nothing is
    imported.
    """
    if not read_disk or not cli.url.startswith("sqlite:"):
        # What this machine has on disk goes into a team's ledger only when that is asked for.
        return _known(cli), None, 0
    if _unborn(cli.url) and (first := _first(cli, projects=projects)) is not None:
        return first
    try:
        ledger = cli.ledger(write=True)
    except UnavailableError as error:
        if isinstance(error, NoLedgerError):
            raise
        note(f"histories were not read: {error.message}")
        return _known(cli), None, 0
    try:
        done, left = ledger.catch_up(most=AT_ONCE)
        if done is not None and done.problems:
            problems = plural(len(done.problems), "problem")
            note(f"{problems} in {done.files:,} files that were read; `turnlog import` shows them")
        if not left:
            return ledger, None, 0
        seen = ledger.look_at_histories(projects=projects)
    except BaseException:
        ledger.close()
        raise
    return ledger, seen, left


def _unborn(url: str) -> bool:
    """Tell whether a ledger is a file that is not there yet, so that everything on disk is new."""
    scheme, _, rest = url.partition("://")
    return scheme == "sqlite" and rest.startswith("/") and not os.path.lexists(os.path.expanduser(rest[1:]))  # noqa: PTH111


def _first(cli: Cli, *, projects: bool) -> tuple[Ledger, Seen, int] | None:
    """Answer from the files alone, and make the ledger while others look at them; None where there is little to read.

    Nothing that only the report needs is imported before they begin.
    """
    from turnlog.intake import readers
    from turnlog.intake.scan import discover, looking

    found = discover(readers(), os.environ)
    if found.bytes <= AT_ONCE:
        return None
    with looking(found, prices=_book) as begun:
        import subprocess  # noqa: F401 - for ``import_rest``: now the others are at work, then all would wait for it

        try:
            ledger = cli.ledger(write=True)
        except NoLedgerError:
            raise
        except UnavailableError:
            return None  # the way of every other report says why
        try:
            seen = ledger.look_at_histories(begun, projects=projects)
        except BaseException:
            ledger.close()
            raise
    return ledger, seen, found.bytes


def _book() -> Book | None:
    from turnlog.queries.pricing import find_book

    return find_book()


def import_rest(url: str, size: int) -> None:
    """Begin to import what a report was counted from without it (bytes), and say so."""
    started = import_behind(url)
    how = "is imported in the background" if started else "is being imported"
    note(f"{size / 1e6:,.0f} MB of history {how}; this report was counted from the files")


def _known(cli: Cli) -> Ledger:
    """Open the ledger: for reading if its roll-ups are up to date, else so that they can be kept."""
    ledger = cli.ledger()
    if ledger.usage_current():
        return ledger
    try:
        writing = cli.ledger(write=True)
    except UnavailableError:
        return ledger
    ledger.close()
    return writing


def nothing_found() -> None:
    """Say where histories were looked for, and what to do next."""
    from turnlog.intake import readers

    for reader in readers():
        places = ", ".join(one_line(place) for place in reader.usual(os.environ))
        note(f"looked for {reader.provider} in {places}")
    note("`turnlog import --root DIR` reads another folder; `turnlog run PROMPT` begins a conversation")


def import_behind(url: str) -> bool:
    """Start an import into a ledger in a process of its own, which holds a lock until it ends.

    False = none was started: one runs already, or none can be.
    """
    import fcntl
    import hashlib
    import subprocess
    from pathlib import Path

    from turnlog.config import own_folder

    folder = own_folder("cache")
    name = f"import-{hashlib.sha256(url.encode()).hexdigest()[:16]}.lock"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        subprocess.Popen(
            # -P: the working directory is no place to import from.
            [sys.executable, "-P", "-m", "turnlog", "--ledger", url, "import"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=[descriptor],
            cwd=Path(sys.prefix),
        )
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
