"""The seam below the store's verbs: a backend gives transactions over its own hand-written, named SQL.

The verbs (events.py, drivers.py, …) say what happens inside one transaction; a backend says how it is begun, what
it locks and how its errors read. Every backend has a query of each name in ``sql/<backend>/queries/*.sql``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, Protocol

Row = tuple[Any, ...]
Params = dict[str, Any]
Question = tuple[str, Params]
"""The name of a query, and its parameters."""

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


class Tx(Protocol):
    """Named queries inside one transaction."""

    def all(self, name: str, /, **params: Any) -> list[Row]:
        """Return every row of a query."""
        ...

    def one(self, name: str, /, **params: Any) -> Row | None:
        """Return the first row of a query, or None."""
        ...

    def expect(self, asked: Iterable[Question]) -> None:
        """Say which questions ``all`` and ``one`` will put next, in any order, so that a read may ask them at once.

        A hint: answers are the same without it. One that is not put after all has only cost something.
        """
        ...

    def run(self, name: str, /, **params: Any) -> int:
        """Execute a statement; return the number of rows it changed."""
        ...

    def each(self, name: str, asked: Sequence[Params], /) -> list[list[Row]]:
        """Put a query, or a statement that changes something, once for each of these parameters, in this order.

        Returns the rows that each gives. One question for all of them where the database is far away: O(asked).
        """
        ...

    def many(self, name: str, rows: Iterable[Row], /) -> None:
        """Execute a statement once for each row of positional values."""
        ...

    def insert_native(self, row: Row) -> int | None:
        """Insert one native receipt (the hot path of bulk appends); return its seq, or None when its key is known."""
        ...

    def insert_natives(self, rows: Sequence[Row]) -> list[int | None]:
        """Insert native receipts in this order; return what ``insert_native`` returns for each."""
        ...

    def insert_receipts(self, rows: Sequence[Row]) -> list[int | None]:
        """Insert receipts, starts among them, in this order; return for each its seq, or None when its key is known.

        A row is (session, thread, turn, kind, key, observed at, payload, provider generation, exec, task, wave, capture
        seq); all behind the payload is None where the kind has none.
        """
        ...


class Backend(Protocol):
    """One database that holds a ledger."""

    url: str
    """How the ledger was named, without secrets."""

    shared: bool
    """Whether several machines may write into it: a path is then one of theirs."""

    def read(self) -> AbstractContextManager[Tx]:
        """Begin a consistent read."""
        ...

    def write(self, *, wait_ms: int | None = None) -> AbstractContextManager[Tx]:
        """Begin a write that excludes other writers of the same rows; commits durably or leaves nothing (R1.6).

        Waits ``wait_ms`` for others, else as long as the backend does; then raises UnavailableError.
        """
        ...

    def session_lock(self, session_id: str) -> AbstractContextManager[None]:
        """Hold the conversation's lock across processes (D10); waits 15 s, then UnavailableError."""
        ...

    def change_token(self) -> int:
        """Return a number that differs when another connection has committed since the last call."""
        ...

    def pause(self) -> None:
        """Wait for some time, at most 0.2 s; less when another connection commits and the backend is told of that."""
        ...

    def backup(self, target: Path) -> None:
        """Copy the ledger to a new file while others write."""
        ...

    def integrity(self) -> list[str]:
        """Return what the database itself finds wrong with its storage."""
        ...

    def size(self) -> int:
        """Return how many bytes the ledger takes on disk."""
        ...

    def compact(self) -> None:
        """Give space that is no longer used back to the system, if that does not happen by itself.

        May keep others from writing for as long as the whole ledger takes to be copied. Raises UnavailableError when
        others use it, or the disk is too full.
        """
        ...

    def close(self) -> None:
        """Close every connection; idempotent."""
        ...


def sql_folder(backend: str) -> str:
    """Return the folder of a backend's SQL. It lies beside this file: no database is ever asked from within an archive.

    Opening a ledger waits for it, and the library's own way to find a package's files takes longer than to read them.
    """
    return os.path.join(os.path.dirname(__file__), "sql", backend)  # noqa: PTH118, PTH120


@cache
def named_queries(backend: str) -> dict[str, str]:
    """Load the named queries of a backend: ``-- name: x``, one line of purpose, the statement."""
    found: dict[str, str] = {}
    folder = f"{sql_folder(backend)}/queries"
    for entry in sorted(os.listdir(folder)):  # noqa: PTH208
        with open(f"{folder}/{entry}", encoding="utf-8") as file:  # noqa: PTH123
            parts = _NAME.split(file.read())
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            found[name] = body.strip().rstrip(";")
    return found
