"""The only source of wall-clock time: integer unix milliseconds, UTC.

Order is always by ``seq``, never by time: clocks go back.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache

Now = Callable[[], int]
"""What a component takes to be told the time: a function that gives unix milliseconds."""


@cache
def _rfc3339() -> re.Pattern[str]:
    """Compiled when it is first needed: everything imports this module."""
    return re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII)


def now_ms() -> int:
    """Return the wall clock as unix milliseconds."""
    return time.time_ns() // 1_000_000


def to_rfc3339(instant: int) -> str:
    """Format unix milliseconds as RFC 3339 in UTC with millisecond precision."""
    seconds, millis = divmod(instant, 1000)
    try:
        base = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()  # strftime cuts years below 1000
    except (OverflowError, ValueError, OSError):
        return f"{instant}ms"  # outside the calendar: say the number rather than invent a date
    return f"{base}.{millis:03d}Z"


def from_rfc3339(text: object) -> int | None:
    """Parse an RFC 3339 instant to unix milliseconds; None when it is not one (a time without zone is not)."""
    if not isinstance(text, str) or not _rfc3339().fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text.upper().replace(" ", "T")))
    except ValueError:
        return None
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000
