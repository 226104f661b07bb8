"""The public facade: one ``Ledger`` over store, usage and history. Synchronous; usable from several threads."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from turnlog import config
from turnlog.api.drivers import Drivers
from turnlog.api.imports import Imports
from turnlog.api.limits import Limits
from turnlog.api.moving import Moving
from turnlog.api.reads import Reads
from turnlog.api.receipts import Receipts
from turnlog.api.retention import Retention
from turnlog.api.sessions import Sessions
from turnlog.api.text import Text
from turnlog.api.watch import Watch
from turnlog.api.work import Work
from turnlog.clock import Now, now_ms
from turnlog.errors import InvalidError
from turnlog.ledger import open_store

__all__ = ["Ledger", "open_ledger"]


def open_ledger(url: str | None = None, *, read_only: bool = False, now: Now = now_ms) -> Ledger:
    """Open a ledger (contract §1); without URL the default one. ``now`` gives unix milliseconds (for tests).

    Creates the file (0600) and its folder (0700) unless ``read_only``, which never migrates and never writes.
    Raises InvalidError for a URL or file that is no ledger, UnavailableError when it cannot be opened.
    """
    if sys.platform == "win32":
        raise InvalidError("turnlog runs on Linux and macOS", hint="use it inside WSL")
    return Ledger(open_store(config.load().ledger if url is None else url, read_only=read_only, now=now))


class Ledger(Work, Sessions, Drivers, Receipts, Imports, Limits, Reads, Text, Watch, Retention, Moving):
    """One ledger of receipts. Unknown ids: single reads give None, lists are empty, writes raise MissingError."""

    def close(self) -> None:
        """Close it; idempotent."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
