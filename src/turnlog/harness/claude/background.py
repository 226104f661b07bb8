"""Tasks that go on beside Claude's turns, and the turns of its own in which they report (seen on 2.1.332).

When a task has ended, Claude first lists it no more and begins the turn about it some moments later. In between nothing
runs, and nothing else says that there is more to come.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

REPORTING: Final = 3.0
"""Seconds that Claude may take, while it does nothing else, to begin with the report of a task: it may have none."""


class Background:
    """The tasks of one process. ``seen``: there was one."""

    def __init__(self) -> None:
        self.seen = False
        self._tasks: set[str] = set()
        self._reports = 0
        self._since = 0.0

    def listed(self, tasks: Collection[str]) -> None:
        """Claude says which tasks run now."""
        self._reports += len(self._tasks.difference(tasks))
        self._tasks = set(tasks)
        self._since = time.monotonic()
        self.seen = self.seen or bool(tasks)

    def begun(self) -> None:
        """A turn began; it may be a report."""
        self._reports = max(0, self._reports - 1)

    def ended(self) -> None:
        """A turn ended: a report that came meanwhile is told next, if it was not told in that turn."""
        self._since = time.monotonic()

    def runs(self) -> bool:
        """Tell whether a task runs."""
        return bool(self._tasks)

    def reports(self) -> bool:
        """Tell whether a task ended just now, and Claude has yet to begin with what it reported."""
        return self._reports > 0 and time.monotonic() - self._since < REPORTING

    def forget(self) -> None:
        """Another process goes on: what ran in the old one is gone."""
        self._tasks, self._reports, self.seen = set(), 0, False
