"""A driver's lease: how long it may go on without reaching the ledger, and its renewal.

Other machines may replace a driver that gave no sign for a whole lease by the database's clock (claim.py). The driver
itself counts by a clock that no change of time moves and that runs while the machine sleeps, from before it asked; so
it knows of its end before anybody else can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
from anyio import to_thread

from turnlog import process
from turnlog.errors import UnavailableError

RETRY_S: Final = 0.2

_USED: Final = 0.75
"""The part of its lease after which a driver that reached nobody is cut off; in the rest it ends its turn."""

_LAST_TRY_S: Final = 2.0
"""A process that was stopped or asleep that long wakes up with its lease gone: it may ask once more who drives."""


class Lease:
    """The lease of one driver; it begins with the claim. ``renew`` asks the ledger (blocking), under the fence."""

    def __init__(self, renew: Callable[[], None], seconds: float) -> None:
        self._renew = renew
        self._seconds = seconds
        self._heard_ms = process.uptime_ms()
        self.cut_off = False

    @property
    def pause_s(self) -> float:
        """How long to wait between two renewals at most."""
        return self._seconds / 6

    def silent_s(self) -> float:
        """Return for how long the ledger was not reached."""
        return (process.uptime_ms() - self._heard_ms) / 1000

    def left_s(self) -> float:
        """Return for how long the driver may go on without reaching the ledger; 0 or less: it may not."""
        return self._seconds * _USED - self.silent_s()

    async def renewed(self) -> bool:
        """Renew the lease, trying again while the ledger is away. False: it is used up. Raises StaleError."""
        return await self._ask(self.left_s()) or await self._ask(min(_LAST_TRY_S, self._seconds / 12))

    async def _ask(self, patience_s: float) -> bool:
        with anyio.move_on_after(patience_s):
            while True:
                asked_ms = process.uptime_ms()
                try:
                    # A connection into nowhere may hang: the call is left behind, its late success does no harm.
                    await to_thread.run_sync(self._renew, abandon_on_cancel=True)
                except UnavailableError:
                    await anyio.sleep(min(RETRY_S, patience_s))
                    continue
                self._heard_ms = asked_ms
                return True
        return False
