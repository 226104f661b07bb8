"""Last known rate limits in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from turnlog.surfaces.cli.words import local_time, one_line

if TYPE_CHECKING:
    from turnlog.queries.limits import Limit, LimitWindow

_LENGTHS: Final = ((1_440, "day"), (60, "hour"), (1, "minute"))


def limit_notes(limits: Iterable[Limit], now: int) -> Iterator[str]:
    """Yield a line for each provider, for ``now`` (unix ms): of a window that began anew since, nothing is known."""
    for limit in limits:
        windows = ", ".join(_window(each, now) for each in limit.windows)
        plan = f" ({one_line(limit.plan)})" if limit.plan else ""
        yield f"limits of {one_line(limit.provider)}{plan} as of {local_time(limit.at)}: {windows}"


def _window(window: LimitWindow, now: int) -> str:
    length = _length(window.window_minutes)
    if window.resets_at is not None and window.resets_at <= now:
        return f"{length} began anew {local_time(window.resets_at)}"
    until = "" if window.resets_at is None else f" until {local_time(window.resets_at)}"
    return f"{window.used_percent:g}% of {length} used{until}"


def _length(minutes: int | None) -> str:
    if not minutes:
        return "a window"
    size, word = next((size, word) for size, word in _LENGTHS if minutes % size == 0)
    count = minutes // size
    return f"{count} {word}{'' if count == 1 else 's'}"
