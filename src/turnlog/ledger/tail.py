"""Follow the receipts of all conversations from a cursor on, without ever skipping one.

On SQLite the cursor is a seq: one writer at a time makes it the order of commits. On PostgreSQL an older transaction
may commit later with a smaller seq; so the order is (transaction, seq) there, and a read stops before the oldest
transaction that is still under way. A cursor names its database: in another one the same numbers would mean something
else.
"""

from __future__ import annotations

import re
import threading
import time
from typing import Final

from turnlog.errors import InvalidError, OldLedgerError, StaleError, UnavailableError
from turnlog.ledger.backend import Backend, Tx
from turnlog.ledger.rows import RawEvent

_CURSOR: Final = re.compile(r"([a-z0-9-]+):([0-9]{1,19}):([0-9]{1,19})", re.ASCII)


class Tail:
    """What was recorded in one ledger since."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def read(self, cursor: str | None, limit: int) -> tuple[list[RawEvent], str]:
        """Return up to ``limit`` receipts behind the cursor (None: from the first on), and the cursor behind them.

        As ``page`` without filters.
        """
        rows, after = self.page(cursor, limit)
        return [row for _, row in rows], after

    def page(
        self, cursor: str | None, limit: int, *, session: str | None = None, kind: str | None = None
    ) -> tuple[list[tuple[str, RawEvent]], str]:
        """Return up to ``limit`` receipts behind the cursor (None: from the first on), and the cursor behind the page.

        Each comes with the cursor behind itself; those of one conversation come in the order of seq. ``session`` and
        ``kind`` let only these through. O(limit), with ``session`` O(its receipts), with ``kind`` O(receipts passed).
        Raises InvalidError for what is no cursor, StaleError for one of another ledger or of a later state of this one.
        """
        if limit <= 0:
            raise InvalidError(f"a limit must be positive, not {limit}")
        with self._backend.read() as tx:
            home, moved, horizon, end = tail_place(tx)
            transaction, seq = (0, 0) if cursor is None else parse_cursor(cursor, home, horizon, end)
            given = {"tx": transaction, "seq": seq, "moved": moved, "horizon": horizon, "kind": kind, "limit": limit}
            rows = tx.all("tail", **given) if session is None else tx.all("tail_of_session", session=session, **given)
        found = [(f"{home}:{row[0]}:{row[1]}", RawEvent(*row[1:])) for row in rows]
        if len(rows) < limit and (session is not None or kind is not None):
            # Everything that can be told now was looked at: it is not read again for the next page.
            return found, _end(home, horizon, end)
        return found, found[-1][0] if found else f"{home}:{transaction}:{seq}"

    def end(self) -> str:
        """Return the cursor behind everything recorded so far: what commits from now on lies behind it."""
        with self._backend.read() as tx:
            home, _, horizon, end = tail_place(tx)
        return _end(home, horizon, end)

    def wait(self, token: int, timeout_s: float, stop: threading.Event) -> None:
        """Return when the ledger is not as it was at ``token`` (of ``Store.change_token``), in time, or at ``stop``."""
        deadline = time.monotonic() + timeout_s
        while self._backend.change_token() == token and time.monotonic() < deadline and not stop.is_set():
            self._backend.pause()


def _end(home: str, horizon: int, end: int) -> str:
    # What is still under way commits later; what of it is seen already may be told once more, but none is skipped.
    return f"{home}:{horizon}:{0 if horizon else end}"


def tail_place(tx: Tx) -> tuple[str, int, int, int]:
    """Return which ledger this is, up to where rows were restored, the horizon of transactions, and the last seq."""
    row = tx.one("tail_place")
    if row is None or row[0] is None:
        raise UnavailableError("the ledger does not say which it is", hint="run `turnlog verify`")
    stored, home, moved, horizon, end = row
    if stored != home:
        raise OldLedgerError("the ledger was restored or moved, and nobody has written to it since")
    return f"{home}", int(moved), int(horizon), int(end)


def parse_cursor(cursor: str, home: str, horizon: int, end: int) -> tuple[int, int]:
    """Return the transaction and the seq of a cursor. Raises InvalidError, StaleError."""
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise InvalidError(f"{cursor[:80]!r} is not a cursor", hint="use the one that an earlier read gave")
    transaction, seq = int(found[2]), int(found[3])
    if found[1] != home or transaction > horizon or (horizon == 0 and seq > end):
        raise StaleError(
            "this cursor belongs to another ledger, or to a later state of this one", hint="begin without a cursor"
        )
    return transaction, seq
