"""The suite's hooks for SQLite, and a raw connection that goes through the ledger's own copy of the library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from turnlog import Ledger
from turnlog.ledger.sqlite import SqliteBackend
from turnlog.ledger.store import Store
from turnlog.testing.store_suite import StoreSetup


class SqliteSetup(StoreSetup):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / "ledger.db"

    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def raw_sql(self, statement: str, params: Mapping[str, Any] = {}) -> Sequence[tuple[Any, ...]]:
        with raw(self.path) as connection:
            return list(connection.execute(statement, params))

    def impatient(self) -> Ledger:
        return Ledger(Store(SqliteBackend(self.path, busy_ms=20, lock_wait_s=0.02), self.clock))


@contextmanager
def raw(path: Path) -> Iterator[apsw.Connection]:
    """A connection of a person with an SQLite client (foreign keys are off there, as by default)."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.setbusytimeout(5_000)
        yield connection
    finally:
        connection.close()
