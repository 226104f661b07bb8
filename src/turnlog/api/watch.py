"""Following what is recorded, across all conversations."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from turnlog.api.base import Part
from turnlog.queries import tail
from turnlog.queries.tail import Page


class Watch(Part):
    """Following what is recorded, across all conversations."""

    def tail_end(self) -> str:
        """Return the cursor behind everything recorded so far."""
        return self._store.tail.end()

    def tail(
        self, cursor: str | None = None, *, session: str | None = None, kind: str | None = None, limit: int = tail.PAGE
    ) -> Page:
        """Return up to ``limit`` receipts of all conversations behind a cursor (None: from the first on), in order.

        ``session`` (an exact id) and ``kind`` let only these through. Raises InvalidError for what is no cursor or
        kind, StaleError for a cursor of another ledger. O(limit) without filters.
        """
        return tail.page(self._store, cursor, session=session, kind=kind, limit=limit)

    def follow(
        self,
        cursor: str | None = None,
        *,
        session: str | None = None,
        kind: str | None = None,
        stop: threading.Event | None = None,
    ) -> Iterator[Page]:
        """Yield pages of receipts as they are committed, until ``stop`` is set; ``cursor`` and errors as of ``tail``.

        No receipt is left out and none comes twice. An empty page comes when nothing new has for a second.
        """
        return tail.follow(self._store, cursor, session=session, kind=kind, stop=stop)
