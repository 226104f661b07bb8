"""5-hour windows of work. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

HOUR_MS: Final = 3_600_000
WINDOW_MS: Final = 5 * HOUR_MS


class Block(msgspec.Struct, frozen=True):
    """A window: begins with the (UTC) hour of its first call and ends five hours later. Unix ms."""

    start: int
    end: int
    first: int
    last: int


def blocks(spans: Iterable[tuple[int, int]]) -> list[Block]:
    """Cut work into windows: O(spans). ``spans``: (first, last) instants of calls, within a quarter.

    A call outside the window, or five hours after the one before, opens the next.
    """
    found: list[Block] = []
    for first, last in sorted(spans):
        now = found[-1] if found else None
        if now is None or first >= now.end or first - now.last >= WINDOW_MS:
            start = first - first % HOUR_MS
            found.append(Block(start, start + WINDOW_MS, first, last))
        elif last > now.last:
            found[-1] = Block(now.start, now.end, now.first, last)
    return found
