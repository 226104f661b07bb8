"""What every part of the facade stands on."""

from __future__ import annotations

from turnlog.errors import InvalidError
from turnlog.ledger import Store


class Part:
    """A part of ``Ledger``: methods of one noun over the same store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.url = store.url


def positive(limit: int | None) -> int | None:
    """Return a limit; None means all. Raises InvalidError when it is not positive."""
    if limit is not None and limit <= 0:
        raise InvalidError("a limit must be positive", hint="None means all")
    return limit
