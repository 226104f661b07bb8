"""What programs were told of their rate limits, as receipts keep it."""

from __future__ import annotations

from turnlog.ledger.backend import Backend


class Limits:
    """Reads of observations ``limits:<at>``."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def last(self) -> list[tuple[str, int, str]]:
        """Return (provider, unix ms, payload text) of each provider's newest one: O(providers), never a scan."""
        found: list[tuple[str, int, str]] = []
        with self._backend.read() as tx:
            name = ""
            while (row := tx.one("next_limits_provider", after=name)) is not None:
                name = row[0]
                newest = tx.one("last_limits", provider=name)
                if newest is not None:
                    found.append((name, newest[0], newest[1]))
        return found
