"""Days, weeks and months of a time zone."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Final

import msgspec

from turnlog.clock import from_rfc3339
from turnlog.errors import InvalidError

_DAY: Final = timedelta(days=1)


class Period(msgspec.Struct, frozen=True):
    """A named stretch of time: ``begin`` ≤ at < ``end``, unix ms."""

    key: str
    begin: int
    end: int


def resolve_zone(name: str | None) -> tuple[tzinfo | None, str]:
    """Return a time zone and its name; None means the local one. Raises InvalidError for an unknown name."""
    if name is None or name == "local":
        local = os.environ.get("TZ", "").removeprefix(":")
        if not local:
            parts = str(Path("/etc/localtime").resolve()).partition("zoneinfo/")
            local = parts[2] or datetime.now().astimezone().tzname() or "local"
        return None, local
    if name == "UTC":
        return UTC, name
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name), name
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidError(f"no time zone {name!r}", hint="use a name like Europe/Berlin or UTC") from error


def day_of(at: int, zone: tzinfo | None) -> date:
    """Return the day of an instant (unix ms, within the calendar)."""
    return datetime.fromtimestamp(at / 1000, UTC).astimezone(zone).date()


def begin_of(day: date, zone: tzinfo | None) -> int:
    """Return when a day begins, unix ms."""
    if zone is None:
        return int(datetime(day.year, day.month, day.day).timestamp() * 1000)  # noqa: DTZ001 - local midnight
    return int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() * 1000)


def daily(at: int, zone: tzinfo | None) -> Period:
    """Return the day of an instant; its key is YYYY-MM-DD."""
    day = day_of(at, zone)
    return Period(day.isoformat(), begin_of(day, zone), begin_of(day + _DAY, zone))


def weekly(at: int, zone: tzinfo | None) -> Period:
    """Return the week of an instant: it begins with a Monday, whose date is its key."""
    day = day_of(at, zone)
    monday = day - _DAY * day.weekday()
    return Period(monday.isoformat(), begin_of(monday, zone), begin_of(monday + 7 * _DAY, zone))


def monthly(at: int, zone: tzinfo | None) -> Period:
    """Return the month of an instant; its key is YYYY-MM."""
    first = day_of(at, zone).replace(day=1)
    following = (first + 31 * _DAY).replace(day=1)
    return Period(f"{first:%Y-%m}", begin_of(first, zone), begin_of(following, zone))


PERIODS: Final[dict[str, Callable[[int, tzinfo | None], Period]]] = {
    "daily": daily,
    "weekly": weekly,
    "monthly": monthly,
}


def bound(value: str | int | None, zone: tzinfo | None, *, end: bool) -> int | None:
    """Return a bound in unix ms: a day of the zone (the end of it for ``end``), RFC 3339, or unix ms as they are."""
    if value is None or isinstance(value, int):
        return value
    instant = from_rfc3339(value)
    if instant is not None:
        return instant
    try:
        day = date.fromisoformat(value)
        return begin_of(day + _DAY if end else day, zone)
    except (ValueError, OverflowError) as error:
        raise InvalidError(f"not a day: {value!r}", hint="write YYYY-MM-DD") from error
