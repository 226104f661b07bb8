"""A SQLite ledger that may be read, in a folder that may not be written: on a read-only mount, or somebody else's.

SQLite keeps its readers' marks in a file beside the ledger, which cannot be made there. A ledger that nobody writes can
be read without: as it lies. Whether somebody did write meanwhile is looked at after every reading.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import apsw

from turnlog.errors import CorruptError, UnavailableError

REFUSALS: Final = (apsw.ReadOnlyError, apsw.CantOpenError)
"""What SQLite raises where it cannot make its file."""


class Still:
    """A ledger that is read as it lies. Raises UnavailableError where that would not be all of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(f"{path.name}-wal")
        if _size(self._log):
            raise UnavailableError(
                f"{path} cannot be read where it lies: a part of it is in its log, and its folder cannot be written",
                hint="`turnlog ledger backup FILE` by its owner makes a copy that can; name that with --ledger",
            )
        self._stamp = self._look()

    @property
    def name(self) -> str:
        """How SQLite is told not to look for anything beside the file."""
        return f"file:{quote(str(self._path))}?immutable=1"

    def check(self) -> None:
        """Raise UnavailableError when somebody has written since it was opened. Two system calls."""
        if _size(self._log) or self._look() != self._stamp:
            raise UnavailableError(f"{self._path} was written while it was read", hint="ask again")

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Let nothing stand that was read while somebody wrote, nor a damage that only seemed to be one."""
        try:
            yield
        except CorruptError:
            self.check()
            raise
        self.check()

    def _look(self) -> tuple[int, int, int, int]:
        found = os.stat(self._path)  # noqa: PTH116 - after every reading
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
