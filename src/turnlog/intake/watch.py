"""Waits for changes below folders: by the system's notifications where it has them, else by looking now and then."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

DEBOUNCE_MS: Final = 300
"""Changes closer together than this are told of once."""

TICK_MS: Final = 1_000
"""What changed before the system began to notify is seen so long after it did."""

RESCAN_MS: Final = 30_000
"""Everything is looked at this often, in case a notification was lost."""


def changes(places: Iterable[Path], stop: threading.Event | None = None) -> Iterator[None]:
    """Yield at once, and then whenever something below ``places`` may have changed, until ``stop`` is set.

    A place that comes or goes is seen some ``TICK_MS`` later, at one system call for each place in that time: to be
    notified of it, everything beside it would have to be watched. Yields at least every ``RESCAN_MS``. Network file
    systems send no notifications: WATCHFILES_FORCE_POLLING=1 makes it look at the files instead.
    """
    from watchfiles import watch

    places = tuple(places)
    ending = stop or threading.Event()
    yield
    ticks = 0
    while not ending.is_set():
        existing = _existing(places)
        if not existing:
            ending.wait(TICK_MS / 1000)
            ticks += 1
            if ticks % (RESCAN_MS // TICK_MS) == 0:
                yield
            continue
        ticks = 0
        for found in watch(
            *existing,
            watch_filter=None,
            debounce=DEBOUNCE_MS,
            rust_timeout=TICK_MS,
            yield_on_timeout=True,
            stop_event=ending,
            raise_interrupt=True,
        ):
            ticks += 1
            moved = _existing(places) != existing
            if not (found or moved) and ticks % (RESCAN_MS // TICK_MS) != 1:
                continue
            yield
            if moved:
                break


def _existing(places: Iterable[Path]) -> list[Path]:
    """Return the places that are there. One that may not be looked at is none of them."""
    found = []
    for place in places:
        with contextlib.suppress(OSError):
            if place.exists():
                found.append(place)
    return found
