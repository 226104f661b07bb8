"""Small looks into rollout records: members of the right type or None, ids, instants. Imports nothing slow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from turnlog.harness.salvage import instant

_SECONDS_BELOW: Final = 100_000_000_000
"""Smaller numbers are unix seconds (until the year 5138), larger ones milliseconds; both are written."""

_LAST: Final = 253_402_300_800_000
"""The end of the year 9999 in unix milliseconds."""


def text(holder: Mapping[str, Any], name: str) -> str | None:
    """Return a member that is a string and not empty, else None."""
    value = holder.get(name)
    return value if isinstance(value, str) and value else None


def inner(holder: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a member that is an object, else an empty one."""
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


def number(holder: Mapping[str, Any], name: str) -> int | None:
    """Return a member that is an integer, else None."""
    value = holder.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def moment(value: object) -> int | None:
    """Return an instant in unix milliseconds: of unix seconds, of milliseconds, or of RFC 3339; else None."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 < value < _LAST:
            return None
        return int(value * 1000) if value < _SECONDS_BELOW else int(value)
    return instant(value)


def made_at(identifier: str) -> int | None:
    """Return when a version 7 UUID was made, in unix milliseconds; None for any other id."""
    if len(identifier) != 36 or identifier[14] != "7":  # noqa: PLR2004 - the length and place that RFC 9562 gives
        return None
    try:
        return int(identifier[:8] + identifier[9:13], 16)
    except ValueError:
        return None
