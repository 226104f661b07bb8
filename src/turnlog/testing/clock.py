"""A clock that stands still until a test moves it."""

from __future__ import annotations


class FakeClock:
    """Unix milliseconds on demand: ``open_ledger(url, now=FakeClock())``."""

    def __init__(self, now: int = 1_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, milliseconds: int) -> int:
        """Move by ``milliseconds`` (backwards too: real clocks do) and return the new time."""
        self.now += milliseconds
        return self.now
