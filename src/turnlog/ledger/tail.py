"""Follow the receipts of all conversations from a cursor on, without ever skipping one.

On SQLite the cursor is a seq: one writer at a time makes it the order of commits. On PostgreSQL an older transaction
may commit later with a smaller seq; so the order is (transaction, seq) there, and a read stops before the oldest
transaction that is still under way. A cursor names its database: in another one the same numbers would mean something
else.
"""

from __future__ import annotations

import re
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

        Receipts of one conversation come in the order of seq. O(limit). Raises InvalidError for what is no cursor,
        StaleError for one of another ledger or of a later state of this one.
        """
        if limit <= 0:
            raise InvalidError(f"a limit must be positive, not {limit}")
        with self._backend.read() as tx:
            home, moved, horizon, end = _place(tx)
            transaction, seq = (0, 0) if cursor is None else _parse(cursor, home, horizon, end)
            rows = tx.all("tail", tx=transaction, seq=seq, moved=moved, horizon=horizon, limit=limit)
        if rows:
            transaction, seq = rows[-1][0], rows[-1][1]
        return [RawEvent(*row[1:]) for row in rows], f"{home}:{transaction}:{seq}"

    def end(self) -> str:
        """Return the cursor behind everything recorded so far: what commits from now on lies behind it."""
        with self._backend.read() as tx:
            home, _, horizon, end = _place(tx)
        # What is still under way commits later; what of it is seen already may be told once more, but none is skipped.
        return f"{home}:{horizon}:{0 if horizon else end}"


def _place(tx: Tx) -> tuple[str, int, int, int]:
    row = tx.one("tail_place")
    if row is None or row[0] is None:
        raise UnavailableError("the ledger does not say which it is", hint="run `turnlog verify`")
    stored, home, moved, horizon, end = row
    if stored != home:
        raise OldLedgerError("the ledger was restored or moved, and nobody has written to it since")
    return f"{home}", int(moved), int(horizon), int(end)


def _parse(cursor: str, home: str, horizon: int, end: int) -> tuple[int, int]:
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise InvalidError(f"{cursor[:80]!r} is not a cursor", hint="use the one that an earlier read gave")
    transaction, seq = int(found[2]), int(found[3])
    if found[1] != home or transaction > horizon or (horizon == 0 and seq > end):
        raise StaleError(
            "this cursor belongs to another ledger, or to a later state of this one", hint="begin without a cursor"
        )
    return transaction, seq
