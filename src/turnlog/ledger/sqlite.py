"""SQLite through apsw: WAL, ``synchronous=FULL``, immediate write transactions.

One writer connection per process is guarded by a lock; reads use a small pool. Never open the same file through
another copy of SQLite in this process (the standard sqlite3 module, SQLAlchemy, pandas): its close would drop our
POSIX locks and delete the WAL.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import apsw

from turnlog.errors import InvalidError, NoLedgerError, OldLedgerError, UnavailableError
from turnlog.ledger.backend import Params, Question, Row, named_queries
from turnlog.ledger.migrate import latest, migrations, new_ledger
from turnlog.ledger.sqlite_batches import several, together
from turnlog.ledger.sqlite_errors import VALUE_ERRORS, translated, value_error
from turnlog.ledger.sqlite_still import REFUSALS, Still

APPLICATION_ID: Final = 0x7475726E
"""``turn`` in ASCII: tells our files from anybody else's."""

BUSY_MS: Final = 10_000
LOCK_WAIT_S: Final = 15.0
_POOL: Final = 4
_IDENTITY: Final = "ledger_id"
_POLL_S: Final = 0.05
"""How often a change is looked for: 20 times a second cost less than a thousandth of a core."""
_MERGE: Final = "INSERT INTO passage_words (passage_words, rank) VALUES ('merge', -2000)"


class SqliteTx:
    """Named queries on one connection inside one transaction."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._queries = named_queries("sqlite")
        self._insert_native = self._queries["insert_native"]

    def all(self, name: str, /, **params: Any) -> list[Row]:
        try:
            return list(self._connection.execute(self._queries[name], params))
        except VALUE_ERRORS as error:
            raise value_error(error) from error

    def one(self, name: str, /, **params: Any) -> Row | None:
        try:
            return next(iter(self._connection.execute(self._queries[name], params)), None)
        except VALUE_ERRORS as error:
            raise value_error(error) from error

    def expect(self, asked: Iterable[Question]) -> None:
        """Do nothing: nobody is far away."""

    def run(self, name: str, /, **params: Any) -> int:
        try:
            self._connection.execute(self._queries[name], params)
        except VALUE_ERRORS as error:
            raise value_error(error) from error
        return self._connection.changes()

    def each(self, name: str, asked: Sequence[Params], /) -> list[list[Row]]:
        execute, statement = self._connection.execute, self._queries[name]
        try:
            return [list(execute(statement, params)) for params in asked]
        except VALUE_ERRORS as error:
            raise value_error(error) from error

    def many(self, name: str, rows: Iterable[Row], /) -> None:
        try:
            self._connection.executemany(self._queries[name], rows)
        except VALUE_ERRORS as error:
            raise value_error(error) from error

    def insert_native(self, row: Row) -> int | None:
        try:
            for (seq,) in self._connection.execute(self._insert_native, row):
                return int(seq)
        except VALUE_ERRORS as error:
            raise value_error(error) from error
        return None

    def insert_natives(self, rows: Sequence[Row]) -> list[int | None]:
        return [self.insert_native(row) for row in rows]

    def insert_receipts(self, rows: Sequence[Row]) -> list[int | None]:
        found: list[int | None] = []
        for chunk in together(rows):
            statement = several(self._queries["insert_receipts"], len(chunk))
            try:
                told = list(self._connection.execute(statement, tuple(itertools.chain.from_iterable(chunk))))
            except VALUE_ERRORS as error:
                raise value_error(error) from error
            seqs = {row[:5]: row[5] for row in told}
            found += [seqs.pop(row[:5], None) for row in chunk]  # of two equal ones the first is new
        return found


class SqliteBackend:
    """A ledger in one SQLite file. Safe for several threads and several processes."""

    shared = False

    def __init__(
        self, path: Path, *, read_only: bool = False, busy_ms: int = BUSY_MS, lock_wait_s: float = LOCK_WAIT_S
    ) -> None:
        self.path = path.absolute()
        self.url = f"sqlite:///{self.path}"
        self._read_only = read_only
        self._busy_ms = busy_ms
        self._lock_wait_s = lock_wait_s
        self._guard = threading.RLock()
        self._idle: list[apsw.Connection] = []
        self._idle_guard = threading.Lock()
        self._closed = False
        self._still: Still | None = None
        self._watcher: apsw.Connection | None = None
        self._writer: apsw.Connection | None = self._open_first()
        _OPEN.add(self)

    # --- opening

    def _open_first(self) -> apsw.Connection:
        if not self._read_only:
            _prepare_file(self.path)
        elif not self.path.exists():
            raise NoLedgerError(f"no ledger at {self.path}")
        try:
            return self._opened()
        except UnavailableError as error:
            if not (self._read_only and isinstance(error.__cause__, REFUSALS) and os.access(self.path, os.R_OK)):
                raise
        self._still = Still(self.path)
        return self._opened()

    def _opened(self) -> apsw.Connection:
        connection = self._connect()
        try:
            with translated(self.path):
                self._check_and_migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> apsw.Connection:
        name, flags = str(self.path), apsw.SQLITE_OPEN_READONLY if self._read_only else apsw.SQLITE_OPEN_READWRITE
        if self._still is not None:
            name, flags = self._still.name, flags | apsw.SQLITE_OPEN_URI
        with translated(self.path):
            connection = apsw.Connection(name, flags=flags)
            connection.setbusytimeout(self._busy_ms)
            connection.execute("PRAGMA foreign_keys = ON")
            # Without it, SQLite plans a statement anew for each value bound to it once ANALYZE has run: seen to be
            # six times slower on the reads behind a list.
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            # SQLite's lower() knows ASCII only.
            connection.create_scalar_function("casefold", _casefold, 1, deterministic=True)
            # SQLite's 2 MB are less than the pages behind one list of a big ledger, and a bulk append would write its
            # index pages and read them again within one transaction.
            connection.execute("PRAGMA cache_size = -16000")
            if not self._read_only:
                connection.execute("PRAGMA synchronous = FULL")
                # 32 MB of log: a big import would else write the same index pages to the file again and again.
                connection.execute("PRAGMA wal_autocheckpoint = 8000")
            return connection

    def _check_and_migrate(self, connection: apsw.Connection) -> None:
        newest = latest("sqlite")
        version = self._recognise(connection, newest)
        if version == newest:
            return
        if self._read_only:
            raise OldLedgerError(f"{self.path} has schema {version}, which needs an upgrade to {newest}")
        self._use_wal(connection)
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = self._recognise(connection, newest)  # another process may have been faster
            done = version
            if version == 0:
                new = new_ledger()  # four times as fast as the steps, whose result it is
                connection.execute(new.sql)
                done = new.number
            for step in migrations("sqlite") if done < newest else ():
                if step.number > done:
                    connection.execute(step.sql)
            if version == 0:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute("INSERT INTO ledger_meta VALUES (?, ?)", (_IDENTITY, os.urandom(16).hex()))
            connection.execute(f"PRAGMA user_version = {newest}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _recognise(self, connection: apsw.Connection, newest: int) -> int:
        """Return the schema of our file, 0 for one that nobody has put anything into. Raises for what is not ours.

        Not "has no pages": a process that died, or is still busy, between the switch to WAL and its first commit
        leaves a page without anything in it.
        """
        with connection:  # one snapshot: another process may be creating it at this moment
            version = int(connection.pragma("user_version") or 0)
            application = int(connection.pragma("application_id") or 0)
            objects = int(next(connection.execute("SELECT count(*) FROM sqlite_schema"))[0])
        if application != APPLICATION_ID and (application, version, objects) != (0, 0, 0):
            raise InvalidError(
                f"{self.path} is a database, but not a turnlog ledger", hint="name another file with --ledger"
            )
        if version > newest:
            raise UnavailableError(
                f"{self.path} has schema {version}; this turnlog knows {newest}", hint="upgrade turnlog"
            )
        return version

    def _use_wal(self, connection: apsw.Connection) -> None:
        deadline = time.monotonic() + self._busy_ms / 1000
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except apsw.BusyError:  # SQLite does not wait here by itself when two processes switch at once
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)
            else:
                return

    # --- transactions

    @contextlib.contextmanager
    def read(self) -> Iterator[SqliteTx]:
        connection = self._take()
        try:
            with self._still.reading() if self._still else contextlib.nullcontext(), translated(self.path):
                connection.execute("BEGIN")
                try:
                    yield SqliteTx(connection)
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
        finally:
            self._give(connection)

    @contextlib.contextmanager
    def write(self, *, wait_ms: int | None = None) -> Iterator[SqliteTx]:
        if self._read_only:
            raise _read_only()
        with self._guard, translated(self.path):
            self._check_open()
            if self._writer is None:
                self._writer = self._connect()
            connection = self._writer
            # IMMEDIATE: the check and the insert of a receipt see the same state (R1.6), and seq = commit order.
            if wait_ms is not None:
                connection.setbusytimeout(wait_ms)
            try:
                connection.execute("BEGIN IMMEDIATE")
            finally:
                if wait_ms is not None:
                    connection.setbusytimeout(self._busy_ms)
            try:
                yield SqliteTx(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _check_open(self) -> None:
        if self._closed:
            raise UnavailableError("the ledger is closed", hint="open it again with open_ledger()")

    def forget_inherited(self) -> None:
        """Begin anew in the child of a fork: SQLite's connections do not survive one, nor do locks others held."""
        _INHERITED.extend(each for each in (*self._idle, self._watcher, self._writer) if each is not None)
        self._guard = threading.RLock()
        self._idle_guard = threading.Lock()
        self._idle, self._watcher, self._writer = [], None, None

    def _take(self) -> apsw.Connection:
        self._check_open()
        with self._idle_guard:
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def _give(self, connection: apsw.Connection) -> None:
        with self._idle_guard:
            if not self._closed and len(self._idle) < _POOL:
                self._idle.append(connection)
                return
        connection.close()

    # --- the rest of the seam

    @contextlib.contextmanager
    def session_lock(self, session_id: str) -> Iterator[None]:
        if self._read_only:
            raise _read_only()
        folder = self.path.with_name(self.path.name + ".session-locks")
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            # The file is never unlinked: with a second file of the same name two holders could exist.
            descriptor = os.open(
                folder / hashlib.sha256(session_id.encode()).hexdigest(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise UnavailableError(
                f"cannot lock session {session_id} in {folder}: {error.strerror}",
                hint="mend the folder's permissions; a ledger file is one user's, PostgreSQL is for several",
            ) from error
        try:
            deadline = time.monotonic() + self._lock_wait_s
            pause = 0.002
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise UnavailableError(
                            f"session {session_id} is busy: another process holds its lock",
                            hint="try again when the other command has ended",
                        ) from None
                    time.sleep(pause)
                    pause = min(pause * 2, 0.05)
            yield
        finally:
            os.close(descriptor)

    def change_token(self) -> int:
        with self._idle_guard, translated(self.path):
            self._check_open()
            if self._still is not None:
                self._still.check()
            if self._watcher is None:
                self._watcher = self._connect()
            return int(self._watcher.pragma("data_version") or 0)

    def pause(self) -> None:
        time.sleep(_POLL_S)

    def backup(self, target: Path) -> None:
        if target.exists():
            raise InvalidError(f"{target} exists already", hint="name a file that does not exist")
        partial = target.with_name(target.name + ".partial")
        try:
            _prepare_file(partial)
            with translated(partial):
                copy = apsw.Connection(str(partial), flags=apsw.SQLITE_OPEN_READWRITE)
                try:
                    source = self._take()
                    try:
                        # In a snapshot: without it, each commit of another process begins the copy anew.
                        with source, copy.backup("main", source, "main") as job:
                            next(source.execute("SELECT count(*) FROM ledger_meta"))
                            while not job.done:
                                job.step(1000)
                    finally:
                        self._give(source)
                    copy.execute("PRAGMA journal_mode = DELETE")  # one self-contained file
                finally:
                    copy.close()
            descriptor = os.open(partial, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            partial.rename(target)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink()

    def integrity(self) -> list[str]:
        connection = self._take()
        try:
            found: list[str] = []
            try:
                found += [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
                found += [f"foreign key: {row}" for row in connection.execute("PRAGMA foreign_key_check")]
            except (apsw.CorruptError, apsw.NotADBError) as error:
                found.append(str(error))
            return [line for line in found if line != "ok"]
        finally:
            self._give(connection)

    def size(self) -> int:
        found = 0
        for name in (self.path, self.path.with_name(self.path.name + "-wal")):
            with contextlib.suppress(FileNotFoundError):
                found += name.stat().st_size
        return found

    def compact(self) -> None:
        if self._read_only:
            raise _read_only()
        with self._guard, translated(self.path):
            self._check_open()
            if self._writer is None:
                self._writer = self._connect()
            # Dropped words stay in the full-text index until its parts are merged; others write between the steps.
            while True:
                before = self._writer.total_changes()
                self._writer.execute(_MERGE)
                if self._writer.total_changes() - before < 2:  # noqa: PLR2004 - nothing but the command itself
                    break
            self._writer.execute("VACUUM")
            # The copy went through the log, which would stay as long as the ledger is.
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        with self._guard:
            if self._closed:
                return
            self._closed = True
            with self._idle_guard:
                idle, self._idle = self._idle, []
            for connection in (*idle, self._watcher, self._writer):
                if connection is not None:
                    connection.close()


_OPEN: Final[weakref.WeakSet[SqliteBackend]] = weakref.WeakSet()
_INHERITED: Final[list[apsw.Connection]] = []
"""Connections of a parent process. Never closed here: that could release the parent's locks or take its WAL away."""


def _after_fork() -> None:
    for backend in list(_OPEN):
        backend.forget_inherited()


os.register_at_fork(after_in_child=_after_fork)


def _casefold(*args: apsw.SQLiteValue) -> apsw.SQLiteValue:
    return args[0].casefold() if isinstance(args[0], str) else args[0]


def _read_only() -> UnavailableError:
    return UnavailableError("the ledger is open for reading only", hint="open it without read_only")


def _prepare_file(path: Path) -> None:
    """Create the file 0600 in a folder 0700 before SQLite does it with the umask's mode; -wal and -shm follow it."""
    try:
        for folder in reversed([each for each in path.parents if not each.exists()]):
            folder.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise UnavailableError(
            f"cannot open {path}: {error.strerror}", hint="name another file with --ledger, or mend its permissions"
        ) from error
