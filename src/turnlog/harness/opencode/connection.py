"""Opening OpenCode's database so that nothing is written beside it, also while OpenCode runs (promise 8).

A database in WAL mode keeps two more files beside it while somebody uses it. Opened in the plain way, SQLite would make
them where they are missing, and write into the shared index where they are not. So:

* log and index are there: SQLite reads both, the index without writing to it.
* no log: the main file is all there is. It is read without locks, and every look checks that no log has appeared.
* a log without its index, or a journal of a write that was cut off: only SQLite can say what holds. It may do so with
  a private copy.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import apsw

from turnlog.errors import UnavailableError
from turnlog.harness.opencode.shelf import DamagedError

BUSY_MS: Final = 2000
_MAGIC: Final = b"SQLite format 3\x00"
_WAL_VERSION: Final = 2
_HEADER: Final = 20
_VERSIONS: Final = slice(18, 20)
TRIES: Final = 4


class Opened:
    """A connection that only reads. ``guarded``: nobody may begin to write while it is used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._guarded = False
        with translated(path):
            self.connection = self._open()

    def check(self) -> None:
        """Raise UnavailableError if somebody began to write what is read without locks."""
        if self._guarded and (_beside(self.path, "-wal").exists() or _stamp(self.path) != self._seen):
            raise UnavailableError(f"{self.path} is being written by a program that just started", hint="import again")

    def close(self) -> None:
        """Close the connection and remove the private copy, if one was needed."""
        self.connection.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def _open(self) -> apsw.Connection:
        wal = _in_wal_mode(self.path)
        for _ in range(TRIES):
            self._seen = _stamp(self.path)
            self._guarded = wal and not _beside(self.path, "-wal").exists()
            if wal and not self._guarded and not _beside(self.path, "-shm").exists():
                break
            try:
                return _connect(self.path, "immutable=1" if self._guarded else "readonly_shm=1")
            except (apsw.CantOpenError, apsw.ReadOnlyError):
                continue  # the program that wrote it just ended, and took the log along; or its journal must be undone
        return self._copied()

    def _copied(self) -> apsw.Connection:
        self._scratch = tempfile.TemporaryDirectory(prefix="turnlog-")
        copy = Path(self._scratch.name) / self.path.name
        try:
            for ending in ("", "-wal", "-journal"):
                source = _beside(self.path, ending)
                if source.exists():
                    shutil.copyfile(source, _beside(copy, ending))
        except OSError as error:
            self._scratch.cleanup()
            raise UnavailableError(f"cannot copy {self.path}: {error.strerror}", hint="free some space") from error
        connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.execute("PRAGMA query_only = 1")
        return connection


def _in_wal_mode(path: Path) -> bool:
    """Tell by its head whether a database is in WAL mode. A file without a byte is one that SQLite is about to make.

    SQLite reads it: a file that this process opens and closes itself would lose the locks of every other connection.
    """
    if not _stamp(path)[1]:
        return False
    connection = _connect(path, "immutable=1", touch=False)
    try:
        _, head = connection.read("main", 0, 0, _HEADER)
    finally:
        connection.close()
    if not head.startswith(_MAGIC):
        raise UnavailableError(f"{path} is not an SQLite database", hint="it is left out")
    return _WAL_VERSION in head[_VERSIONS]


def _connect(path: Path, option: str, *, touch: bool = True) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"file:{quote(str(path))}?mode=ro&{option}", flags=flags)
    connection.set_busy_timeout(BUSY_MS)
    if touch:
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchall()
        except apsw.Error:
            connection.close()
            raise
    return connection


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into UnavailableError; damage of some rows into DamagedError."""
    try:
        yield
    except apsw.Error as error:
        if isinstance(error, apsw.BusyError | apsw.LockedError):
            raise UnavailableError(f"{path} is locked by another program", hint="import again later") from error
        if isinstance(error, apsw.NotADBError):
            raise UnavailableError(f"{path} is not an SQLite database", hint="it is left out") from error
        if isinstance(error, apsw.CorruptError):
            raise DamagedError(f"{path} is damaged: {error}", hint="what can be read of it is taken") from error
        raise UnavailableError(f"cannot read {path}: {error}", hint="check its permissions and its disk") from error
    except UnicodeDecodeError as error:
        raise DamagedError(f"{path} holds a name that is not UTF-8", hint="what can be read of it is taken") from error


def _unreadable(path: Path, error: OSError) -> UnavailableError:
    return UnavailableError(f"cannot read {path}: {error.strerror}", hint="check its permissions")


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from error
    return found.st_mtime_ns, found.st_size
