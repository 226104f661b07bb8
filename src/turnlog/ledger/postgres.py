"""PostgreSQL through psycopg: many machines, one ledger.

Reads see one snapshot (REPEATABLE READ); writes are READ COMMITTED under an advisory lock of each conversation they
touch, so writers of different conversations never wait for each other. Fences are conditional updates; the lock of a
driving process is an advisory lock of a connection of its own, which ends with the process.

Nothing is replayed: what comes first on a connection that died while it was idle is tried again on a new one, and that
is a BEGIN or a read.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import psycopg
from psycopg import errors
from psycopg.rows import TupleRow

from turnlog.errors import InvalidError, UnavailableError
from turnlog.ledger.postgres_connection import SILENCE_S, connect
from turnlog.ledger.postgres_errors import translated
from turnlog.ledger.postgres_schema import LOOK, is_ready, prepare_schema
from turnlog.ledger.postgres_tx import Connection, PostgresTx, lock_key
from turnlog.ledger.postgres_url import Place
from turnlog.ledger.postgres_watch import UNTOLD_S, Listener

T = TypeVar("T")

BUSY_MS: Final = 10_000
LOCK_WAIT_S: Final = 15.0
_POOL: Final = 4

_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE: Final = "BEGIN"

_SNAPSHOT: Final = "SELECT ('x' || left(md5(pg_current_snapshot()::text), 15))::bit(60)::bigint"

_SIZE: Final = """
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
WHERE relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('ledger_meta')) AND relkind = 'r'
"""

_INTEGRITY: Final = """
SELECT format('trigger %s of table %s is disabled: lists do not follow their facts', t.tgname, c.relname)
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('ledger_meta'))
  AND t.tgenabled NOT IN ('O', 'A')
UNION ALL
SELECT format('index %s of table %s is not valid', i.relname, c.relname)
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class c ON c.oid = x.indrelid
WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('ledger_meta')) AND NOT x.indisvalid
ORDER BY 1
"""


class PostgresBackend:
    """A ledger in one PostgreSQL database. Safe for several threads, processes and machines."""

    shared = True

    def __init__(
        self,
        url: str,
        *,
        read_only: bool = False,
        busy_ms: int = BUSY_MS,
        lock_wait_s: float = LOCK_WAIT_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        """Connect, and make or upgrade the schema unless ``read_only``.

        A server that says nothing for ``silence_s``, and then lets nobody in within the URL's ``connect_timeout`` (10
        s), is given up. Raises InvalidError for what is no turnlog ledger, UnavailableError when it cannot be had.
        """
        self._place = Place(url)
        self.url = self._place.url
        self._read_only = read_only
        self._busy_ms = busy_ms
        self._lock_wait_s = lock_wait_s
        self._silence_s = silence_s
        self._guard = threading.Lock()
        self._idle: list[Connection] = []
        self._idle_locks: list[Connection] = []
        self._listener: Listener | None = None
        self._closed = False
        with translated(self._place):
            self._idle.append(self._open())
        _OPEN.add(self)

    # --- connections

    def _open(self) -> Connection:
        """Connect for the first time. One look tells most often that the ledger is there and up to date."""
        try:
            connection, told = self._new(self._busy_ms, LOOK)
        except errors.ProgrammingError:  # there is none, another's, or an older one
            connection, told = self._new(self._busy_ms)
        if is_ready(told):
            return connection
        try:
            prepare_schema(connection, self.url, read_only=self._read_only)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self, lock_ms: int) -> Connection:
        return self._new(lock_ms)[0]

    def _new(self, lock_ms: int, also: str = "") -> tuple[Connection, list[TupleRow]]:
        return connect(self._place, lock_ms, self._silence_s, also)

    def _take(self) -> tuple[Connection, bool]:
        """Return a connection, and whether it was idle before."""
        with self._guard:
            if self._closed:
                raise UnavailableError("the ledger is closed", hint="open it again with open_ledger()")
            if self._idle:
                return self._idle.pop(), True
        return self._connect(self._busy_ms), False

    def _give(self, connection: Connection, idle: list[Connection]) -> None:
        with self._guard:
            if not self._closed and not connection.closed and len(idle) < _POOL:
                idle.append(connection)
                return
        connection.close()

    def _first(self, action: Callable[[Connection], T]) -> tuple[Connection, T]:
        """Take a connection and do something with it that may be tried again, if it died while it was idle."""
        connection, was_idle = self._take()
        try:
            return connection, action(connection)
        except psycopg.Error:
            if not connection.broken or not was_idle:
                self._end(connection)
                raise
            connection.close()
        except BaseException:
            connection.close()
            raise
        # The server was restarted, or the network cut, while nobody used it: the others are as dead.
        with self._guard:
            idle, self._idle[:] = list(self._idle), []
        for each in idle:
            each.close()
        connection = self._connect(self._busy_ms)
        try:
            return connection, action(connection)
        except BaseException:
            connection.close()
            raise

    def _end(self, connection: Connection) -> None:
        """Give a connection back; what is not committed is given up."""
        try:
            if not connection.closed and connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()
        self._give(connection, self._idle)

    # --- transactions

    @contextlib.contextmanager
    def read(self) -> Iterator[PostgresTx]:
        with translated(self._place):
            tx = PostgresTx(self._first, _READ, locks=False)
            try:
                yield tx
            finally:
                if tx.connection is not None:
                    self._end(tx.connection)

    @contextlib.contextmanager
    def write(self, *, wait_ms: int | None = None) -> Iterator[PostgresTx]:
        if self._read_only:
            raise _read_only()
        opening = _WRITE if wait_ms is None else f"{_WRITE}; SET LOCAL lock_timeout = {max(int(wait_ms), 1)}"
        with translated(self._place):
            tx = PostgresTx(self._first, opening, locks=True)
            try:
                yield tx
                tx.commit()
            finally:
                if tx.connection is not None:
                    self._end(tx.connection)

    # --- the rest of the seam

    @contextlib.contextmanager
    def session_lock(self, session_id: str) -> Iterator[None]:
        if self._read_only:
            raise _read_only()
        key = lock_key("driver", session_id)
        with translated(self._place):
            connection = self._locked(session_id, key)
        try:
            yield
        finally:
            try:
                connection.execute(f"SELECT pg_advisory_unlock({key})")
            except psycopg.Error:
                connection.close()  # the lock ended with the connection; the tuple still fences
            self._give(connection, self._idle_locks)

    def _locked(self, session_id: str, key: int) -> Connection:
        """Return a connection of its own that holds the lock: one of the pool could starve its holder's writes."""
        with self._guard:
            if self._closed:
                raise UnavailableError("the ledger is closed", hint="open it again with open_ledger()")
            connection = self._idle_locks.pop() if self._idle_locks else None
        wait_ms = max(int(self._lock_wait_s * 1000), 1)
        for fresh in (connection is None, True):
            if connection is None:
                connection = self._connect(wait_ms)
            try:
                connection.execute(f"SELECT pg_advisory_lock({key})")
            except errors.LockNotAvailable:
                self._give(connection, self._idle_locks)
                raise UnavailableError(
                    f"session {session_id} is busy: another process holds its lock",
                    hint="try again when the other command has ended",
                ) from None
            except BaseException as error:
                connection.close()
                if fresh or not isinstance(error, psycopg.OperationalError):
                    raise
                connection = None
            else:
                return connection
        raise AssertionError  # the second round is with a fresh connection, and either returns or raises

    def change_token(self) -> int:
        # The transactions that are still under way are part of it: one may end after others that began later.
        with translated(self._place):
            connection, row = self._first(lambda connection: connection.execute(_SNAPSHOT).fetchone())
            self._end(connection)
            return int(row[0]) if row else 0

    def pause(self) -> None:
        if self._read_only:
            time.sleep(UNTOLD_S)
            return
        with self._guard:
            listener, self._listener = self._listener, None
        if listener is None:
            with translated(self._place):
                listener = Listener(self._connect(self._busy_ms))
        lasting = listener.wait()
        with self._guard:
            if lasting and not self._closed:
                listener, self._listener = self._listener, listener
        if listener is not None:
            listener.close()

    def backup(self, target: Path) -> None:
        raise InvalidError(
            "a PostgreSQL ledger is backed up by the server's own tools",
            hint="pg_dump --format=custom, or `turnlog ledger copy` into a file",
        )

    def integrity(self) -> list[str]:
        with translated(self._place):
            connection, rows = self._first(lambda connection: connection.execute(_INTEGRITY).fetchall())
            self._end(connection)
            return [str(row[0]) for row in rows]

    def size(self) -> int:
        with translated(self._place):
            connection, row = self._first(lambda connection: connection.execute(_SIZE).fetchone())
            self._end(connection)
            return int(row[0]) if row else 0

    def compact(self) -> None:
        """Do nothing: the server's autovacuum makes the space free for what comes next."""

    def close(self) -> None:
        with self._guard:
            self._closed = True
            connections = [*self._idle, *self._idle_locks]
            self._idle.clear()
            self._idle_locks.clear()
            listener, self._listener = self._listener, None
        for connection in connections:
            connection.close()
        if listener is not None:
            listener.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def forget_inherited(self) -> None:
        """Begin anew in the child of a fork: the connections are the parent's, and so are locks that threads held."""
        _INHERITED.extend((*self._idle, *self._idle_locks))
        if self._listener is not None:
            _INHERITED.append(self._listener.connection)
        self._guard = threading.Lock()
        self._idle, self._idle_locks, self._listener = [], [], None


_OPEN: Final[weakref.WeakSet[PostgresBackend]] = weakref.WeakSet()
_INHERITED: Final[list[Connection]] = []
"""Connections of a parent process. Never closed here: the server would hear it and end the parent's."""


def _after_fork() -> None:
    for backend in list(_OPEN):
        backend.forget_inherited()


os.register_at_fork(after_in_child=_after_fork)


def _read_only() -> UnavailableError:
    return UnavailableError("the ledger is open for reading only", hint="open it without read_only")
