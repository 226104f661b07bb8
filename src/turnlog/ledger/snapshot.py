"""Several verbs over one consistent read, which may be told in advance what it will be asked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NoReturn

from turnlog.clock import Now
from turnlog.errors import UnavailableError
from turnlog.ledger.backend import Backend, Question, Tx
from turnlog.ledger.store import Store


class Snapshot(Store):
    """A store whose verbs all see one state of the ledger. It cannot write."""

    def __init__(self, backend: Backend, tx: Tx, now: Now) -> None:
        super().__init__(_OneRead(backend, tx), now)
        self._tx = tx

    def expect(
        self,
        *,
        sessions: Iterable[str] = (),
        inputs: Iterable[str] = (),
        orphans: Iterable[tuple[str, str | None, str | None]] = (),
    ) -> None:
        """Say of what details follow: conversations, inputs (artifact key), turns without one (session, thread, turn).

        Where the ledger is far away all are then asked for in one round trip.
        """
        whole = {"wave": None, "project": None, "task": None}
        asked: list[Question] = []
        for session in sessions:
            asked.append(("session", {"id": session}))
            asked += [(name, {"session": session}) for name in ("copied_receipts", "copied_calls")]
        for key in inputs:
            asked += [("capture_facts", {"key": key}), ("input_summary", {"key": key, **whole})]
        for session, thread, turn in orphans:
            asked.append(("orphaned_history", {"session": session, "thread": thread, "turn": turn, **whole}))
        self._tx.expect(asked)


@contextlib.contextmanager
def snapshot(store: Store) -> Iterator[Snapshot]:
    """Begin a consistent read of a ledger. Nothing that it gives may be used after its end, except what was read."""
    with store._backend.read() as tx:  # noqa: SLF001 - a store and its snapshots are one
        yield Snapshot(store._backend, tx, store.now)  # noqa: SLF001


class _OneRead:
    """A backend that has one transaction, which has begun, and gives it to each who reads."""

    def __init__(self, backend: Backend, tx: Tx) -> None:
        self._backend = backend
        self._tx = tx
        self.url = backend.url
        self.shared = backend.shared

    def read(self) -> AbstractContextManager[Tx]:
        return contextlib.nullcontext(self._tx)

    def write(self, *, wait_ms: int | None = None) -> NoReturn:
        raise _reading()

    def session_lock(self, session_id: str) -> NoReturn:
        raise _reading()

    def change_token(self) -> int:
        return self._backend.change_token()

    def pause(self) -> None:
        self._backend.pause()

    def backup(self, target: Path) -> NoReturn:
        raise _reading()

    def integrity(self) -> list[str]:
        return self._backend.integrity()

    def size(self) -> int:
        return self._backend.size()

    def compact(self) -> NoReturn:
        raise _reading()

    def close(self) -> None:
        """Leave the ledger open: it is another's."""


def _reading() -> UnavailableError:
    return UnavailableError("a snapshot of the ledger is for reading only", hint="write to the ledger itself")
