"""Lengths of time and instants as people write them: ``90``, ``5m``, ``7d``, ``2026-03-01``, ``20260301``, RFC 3339."""

from __future__ import annotations

import re
from typing import Final

from turnlog.errors import InvalidError

_LENGTH: Final = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?\s*$", re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_DAY: Final = re.compile(r"^\d{4}-\d\d-\d\d$", re.ASCII)
_COMPACT: Final = re.compile(r"^((?:19|20)\d\d)(\d\d)(\d\d)$", re.ASCII)
"""A day without dashes. As a number of seconds it would be most of a year, which nobody asks for."""

_LONGEST_S: Final = 1e10
"""Some 300 years: longer ones are typing errors, and no clock counts them."""


def seconds(text: str) -> float:
    """Return a length of time in seconds; without a unit it is seconds. Raises InvalidError."""
    found = _LENGTH.match(text)
    value = float(found[1]) * _SECONDS[found[2] or "s"] if found else 0.0
    if not 0 < value < _LONGEST_S:
        raise InvalidError(f"{text!r} is not a length of time", hint="write it like 90, 90s, 5m, 2h or 7d")
    return value


def bound(text: str | None) -> str | int | None:
    """Return a bound of a report: a day stays one (the report knows its zone), else unix milliseconds."""
    if text is None:
        return None
    text = _dashed(text)
    if _DAY.match(text):
        return text
    if text.strip().isdecimal():
        raise InvalidError(f"{text!r} has no unit", hint=f"write {text.strip()}d for days, or a day like 2026-03-01")
    return instant(text)


def instant(text: str) -> int:
    """Return unix milliseconds of an RFC 3339 instant, a local day, or a length of time ago. Raises InvalidError."""
    from turnlog.clock import from_rfc3339, now_ms

    text = _dashed(text)
    known = from_rfc3339(text)
    if known is not None:
        return known
    if _DAY.match(text):
        from datetime import datetime

        try:
            return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            raise InvalidError(f"no such day: {text}", hint="write YYYY-MM-DD") from None
    if _LENGTH.match(text):
        return now_ms() - int(seconds(text) * 1000)
    raise InvalidError(
        f"{text!r} is not an instant", hint="write a length of time like 7d, a day like 2026-03-01, or RFC 3339"
    )


def _dashed(text: str) -> str:
    """Return a day that was written without dashes with them; anything else as it is."""
    return _COMPACT.sub(r"\1-\2-\3", text)
