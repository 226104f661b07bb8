"""Waits for changes below folders: by the system's notifications where it has them, else by looking now and then."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

DEBOUNCE_MS: Final = 300
"""Changes closer together than this are told of once."""

TICK_MS: Final = 1_000
"""What changed before the system began to notify is seen so long after it did."""

RESCAN_MS: Final = 30_000
"""Folders that do not exist yet are looked for this often; so is everything, in case a notification was lost."""


def changes(places: Iterable[Path], stop: threading.Event | None = None) -> Iterator[None]:
    """Yield at once, and then whenever something below ``places`` may have changed, until ``stop`` is set.

    Yields at least every ``RESCAN_MS``. Network file systems send no notifications: WATCHFILES_FORCE_POLLING=1 makes
    it look at the files instead.
    """
    from watchfiles import watch

    ending = stop or threading.Event()
    yield
    while not ending.is_set():
        existing = [place for place in places if place.exists()]
        if not existing:
            ending.wait(RESCAN_MS / 1000)
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
            if not found and ticks % (RESCAN_MS // TICK_MS) != 1:
                continue
            yield
            if len([place for place in places if place.exists()]) != len(existing):
                break
