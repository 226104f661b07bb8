"""Rate limits as programs were told them."""

from __future__ import annotations

from turnlog.api.base import Part
from turnlog.queries.limits import Limit, last_limits


class Limits(Part):
    """Rate limits as programs were told them."""

    def last_limits(self) -> list[Limit]:
        """Return the last known rate limits of each provider, by name: O(providers)."""
        return last_limits(self._store)
