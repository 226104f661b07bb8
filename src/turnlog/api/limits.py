"""Rate limits as programs were told them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.api.base import Part

if TYPE_CHECKING:
    from turnlog.queries.limits import Limit


class Limits(Part):
    """Rate limits as programs were told them."""

    def last_limits(self) -> list[Limit]:
        """Return the last known rate limits of each provider, by name: O(providers)."""
        from turnlog.queries.limits import last_limits

        return last_limits(self._store)
