"""Being told by the server when receipts are committed (LISTEN), for as long as somebody waits for them.

Only a hint, to be quick: whoever waits looks by itself, too. The server tells nobody unless a watcher has said that it
listens, because commits that tell others wait for each other.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from typing import Final

import psycopg

from turnlog.ledger.postgres_tx import Connection

TOLD_S: Final = 0.2
"""How often whoever is told looks by itself."""

UNTOLD_S: Final = 0.05
"""How often whoever is not told looks."""

_LEASE_S: Final = 60.0
_LISTEN: Final = (
    "INSERT INTO watchers (id, until) VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET until = excluded.until"
)
_LEAVE: Final = "DELETE FROM watchers WHERE id = %s OR until < %s"


class Listener:
    """One connection that listens. Not for several threads."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._id = uuid.uuid4().hex
        self._renew_at = 0.0
        self._told = True
        connection.execute("LISTEN turnlog")

    def wait(self) -> bool:
        """Wait until told of something, or for a moment; False when the connection is lost."""
        try:
            self._renew()
            for _ in self.connection.notifies(timeout=TOLD_S if self._told else UNTOLD_S, stop_after=1):
                pass
        except psycopg.Error:
            return False
        return True

    def close(self) -> None:
        """Say that nobody listens any more, and forget those who went without saying so."""
        with contextlib.suppress(psycopg.Error):
            if self._told:
                self.connection.execute(_LEAVE, (self._id, int(time.time() * 1000)))
        self.connection.close()

    def _renew(self) -> None:
        if not self._told or time.monotonic() < self._renew_at:
            return
        self._renew_at = time.monotonic() + _LEASE_S / 2
        try:
            self.connection.execute(_LISTEN, (self._id, int((time.time() + _LEASE_S) * 1000)))
        except psycopg.errors.InsufficientPrivilege:  # a role that only reads is not told
            self._told = False
