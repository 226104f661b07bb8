"""The store: every verb on a ledger, over one backend. Knows no provider."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from turnlog.clock import Now, now_ms
from turnlog.ledger.backend import Backend
from turnlog.ledger.drivers import Drivers
from turnlog.ledger.events import Events
from turnlog.ledger.imports import Imports
from turnlog.ledger.limits import Limits
from turnlog.ledger.lists import Lists
from turnlog.ledger.retention import Retention
from turnlog.ledger.rollups import Rollups
from turnlog.ledger.search import Text
from turnlog.ledger.sessions import Sessions
from turnlog.ledger.tail import Tail
from turnlog.ledger.verify import verify
from turnlog.ledger.work import Work
from turnlog.model import Problem

if TYPE_CHECKING:
    from turnlog.ledger.copying import Copies
    from turnlog.ledger.pushing import Pushes


class Store:
    """Verbs grouped by noun; each runs in one transaction of its own."""

    def __init__(self, backend: Backend, now: Now = now_ms) -> None:
        self._backend = backend
        self.now = now
        self.url = backend.url
        self.events = Events(backend, now)
        self.sessions = Sessions(backend, now)
        self.drivers = Drivers(backend, now)
        self.work = Work(backend, now)
        self.lists = Lists(backend)
        self.tail = Tail(backend)
        self.limits = Limits(backend)
        self.rollups = Rollups(backend)
        self.text = Text(backend)
        self.imports = Imports(backend, now, self.sessions)
        self.retention = Retention(backend, now)

    # Few commands move a ledger: what that needs is loaded when it is asked for.

    @cached_property
    def copies(self) -> Copies:
        """Verbs of copying a whole ledger."""
        from turnlog.ledger.copying import Copies

        return Copies(self._backend)

    @cached_property
    def pushes(self) -> Pushes:
        """Verbs of telling another ledger what is new in this one."""
        from turnlog.ledger.pushing import Pushes

        return Pushes(self._backend, self.now)

    def verify(self) -> list[Problem]:
        """Check the ledger against itself."""
        return verify(self._backend)

    def change_token(self) -> int:
        """Return a number that differs when another connection has committed since the last call."""
        return self._backend.change_token()

    def backup(self, target: Path) -> None:
        """Copy the ledger to a new file while others write."""
        self._backend.backup(target)

    def size(self) -> int:
        """Return how many bytes the ledger takes."""
        return self._backend.size()

    def compact(self) -> None:
        """Give the space of what was dropped back to the system where that is not done by itself (``Backend``)."""
        self._backend.compact()

    def close(self) -> None:
        """Close the ledger; idempotent."""
        self._backend.close()
