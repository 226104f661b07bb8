"""Verbs of retention: which transcripts are old, dropping them source by source, removing the receipts of one session.

Each source is dropped in one transaction with the note that it was, and so are the receipts of a session together with
what stands for them: whoever is killed half-way leaves a ledger that is right, and goes on when asked again.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import orjson

from turnlog.clock import Now
from turnlog.errors import ConflictError, MissingError
from turnlog.ledger.backend import Backend, Row, Tx
from turnlog.ledger.rollups import RollupTx
from turnlog.receipts import canonical

EndsLine = Callable[[bytes, int], bool]
"""Tells whether an archived piece (compressed bytes, size) ends with a line."""


class Driving(msgspec.Struct, frozen=True, array_like=True):
    """Who drives a session: ``exec`` None is nobody. Instants are unix ms."""

    exec: str | None
    heartbeat_at: int | None
    completed_at: int | None
    boot: str | None
    pid: int | None
    started_at: int | None


class Prunable(msgspec.Struct, frozen=True):
    """A conversation with nothing newer than what was asked; ``number`` is its own in the passages."""

    number: int
    session_id: str
    driving: Driving


class Dropped(msgspec.Struct, frozen=True):
    """What was dropped of a source, or would be: archived ``pieces`` with ``bytes`` stored, passages, of whom."""

    pieces: int = 0
    bytes: int = 0
    passages: int = 0
    conversations: tuple[int, ...] = ()


class Stone(msgspec.Struct, frozen=True):
    """What stands for removed receipts of a session. ``observed_at`` is unix ms."""

    seq: int
    key: str
    observed_at: int


class Removable(msgspec.Struct, frozen=True):
    """A receipt of a session that can be removed."""

    seq: int
    kind: str
    observed_at: int


class Retention:
    """What is kept for how long, in one ledger."""

    def __init__(self, backend: Backend, now: Now) -> None:
        self._backend = backend
        self._now = now

    # --- transcripts

    def conversations(self, *, before: int | None, provider: str | None, session: str | None) -> list[Prunable]:
        """Return conversations that were last heard of before an instant (unix ms; None: any).

        O(their turns and passages).
        """
        with self._backend.read() as tx:
            rows = tx.all("prunable_conversations", before=before, provider=provider, session=session)
        return [Prunable(row[0], row[1], Driving(*row[2:])) for row in rows]

    def sources(self, conversations: Collection[int], *, before: int | None, provider: str | None) -> list[int]:
        """Return the sources of which something of these conversations is kept, and old ones of no conversation."""
        with self._backend.read() as tx:
            rows = tx.all("prunable_sources", natives=_numbers(conversations), before=before, provider=provider)
        return [row[0] for row in rows]

    def look(self, source: int, conversations: Collection[int], ends_line: EndsLine) -> Dropped:
        """Return what ``drop`` would drop of a source."""
        with self._backend.read() as tx:
            return _plan(tx, source, conversations, ends_line)[0]

    def drop(
        self, sources: Iterable[int], conversations: Collection[int], ends_line: EndsLine, *, most: int
    ) -> list[Dropped]:
        """Drop archived bytes and text of conversations from sources, in one durable transaction.

        Lines of other conversations stay. Takes sources until more than ``most`` bytes are dropped. Returns what was
        dropped of each source taken. O(pieces and passages of the sources).
        """
        found: list[Dropped] = []
        with self._backend.write() as tx:
            for source in sources:
                told, starts = _plan(tx, source, conversations, ends_line)
                if told.pieces or told.passages:
                    _drop(tx, source, told, starts, self._now())
                found.append(told)
                if sum(each.bytes for each in found) > most:
                    break
        return found

    def kept_sources(self) -> set[int]:
        """Return the sources that cannot be read again from their archive: what was pruned, and what came from it."""
        with self._backend.read() as tx:
            return {row[0] for row in tx.all("kept_sources")}

    def text_pruned(self, session: str | None = None) -> int | None:
        """Return when text of a conversation, or of any, was pruned last (unix ms)."""
        with self._backend.read() as tx:
            row = tx.one("text_pruned", session=session)
        return None if row is None else row[0]

    def driving(self) -> list[Driving]:
        """Return everybody who drives a session and has not ended."""
        with self._backend.read() as tx:
            return [Driving(*row) for row in tx.all("driving_now")]

    # --- receipts of a session

    def stones(self, session: str) -> list[Stone]:
        """Return what stands for removed receipts of a session, oldest first."""
        with self._backend.read() as tx:
            return [Stone(*row) for row in tx.all("tombstones_of_session", session=session)]

    @contextlib.contextmanager
    def session(self, session: str) -> Iterator[SessionTx]:
        """Begin to remove a session's receipts: nobody can begin to drive it meanwhile. Raises MissingError."""
        with self._backend.session_lock(session), self._backend.write() as tx:
            tx.one("driver", id=session)  # where conversations are locked one by one, this one is from here on
            yield SessionTx(tx, session, self._now())

    @contextlib.contextmanager
    def look_at(self, session: str) -> Iterator[SessionTx]:
        """Begin to look at what removing a session's receipts would remove. Raises MissingError."""
        with self._backend.read() as tx:
            yield SessionTx(tx, session, self._now())


class SessionTx:
    """The verbs on one session's receipts inside one transaction. ``now`` is unix ms."""

    def __init__(self, tx: Tx, session: str, now: int) -> None:
        self._tx = tx
        self._session = session
        self.now = now
        self.rollups = RollupTx(tx)
        row = tx.one("driver_process", session=session)
        if row is None:
            raise MissingError(f"no session {session}")
        self.driving = Driving(*row)

    def stones(self) -> list[Stone]:
        """Return what stands for receipts that were removed earlier."""
        return [Stone(*row) for row in self._tx.all("tombstones_of_session", session=self._session)]

    def removable(self) -> list[Removable]:
        """Return the receipts that can be removed, newest first."""
        return [Removable(*row) for row in self._tx.all("removable_receipts", session=self._session)]

    def calls(self) -> dict[int, str]:
        """Return the calls that usage receipts tell of, by seq."""
        return {row[0]: row[1] for row in self._tx.all("calls_of_receipts", session=self._session)}

    def remove(self, receipts: Sequence[Removable], stones: Iterable[tuple[str, int, str, Any]]) -> None:
        """Remove receipts (newest first) and keep ``stones`` in their place: (artifact key, capture, source, evidence).

        O(receipts). Raises ConflictError where such a stone is there.
        """
        tx = self._tx
        for key, capture, source, evidence in stones:
            row = tx.one(
                "insert_observed",
                session=self._session,
                key=f"{key}:{source}",
                exec=None,
                task=None,
                wave=None,
                at=self.now,
                payload=canonical({"input_id": key, "source": source, "evidence": evidence}),
                capture=capture,
            )
            if row is None:
                raise ConflictError(f"input {key} already holds another observation of source {source}")
        seqs = [(each.seq,) for each in receipts]
        # One by one from the newest on: a turn's row is then folded again but a few times.
        tx.many("remove_receipts", seqs)
        tx.many("remove_places", seqs)
        tx.run("remove_requests", session=self._session)
        until = max((each.observed_at for each in receipts), default=0)
        tx.run("note_removed", session=self._session, until=until, now=self.now)


def _plan(tx: Tx, source: int, conversations: Collection[int], ends_line: EndsLine) -> tuple[Dropped, list[int]]:
    """Return what is to be dropped of a source, and where the pieces of it begin."""
    told = {row[0] for row in tx.all("conversations_of_source", id=source)}
    mine = told.intersection(conversations)
    natives = _numbers(mine)
    pieces = tx.all("pieces_of_source", id=source)
    if told != mine:
        lines = [row[0] for row in tx.all("lines_of_others", id=source, natives=natives)]
        pieces = list(_without_others(tx, source, pieces, lines, ends_line))
    row = tx.one("count_passages", id=source, natives=natives)
    passages = 0 if row is None else int(row[0])
    return Dropped(len(pieces), sum(each[2] for each in pieces), passages, tuple(sorted(mine))), [
        each[0] for each in pieces
    ]


def _without_others(
    tx: Tx, source: int, pieces: Iterable[Row], lines: Sequence[int], ends_line: EndsLine
) -> Iterator[Row]:
    """Yield the pieces in which no line of others lies, whole or in part."""
    before: Row | None = None  # the piece before, if it is kept
    for piece in pieces:
        at = bisect_left(lines, piece[0])
        keep = at < len(lines) and lines[at] < piece[0] + piece[1]
        if not keep and before is not None and before[0] + before[1] == piece[0]:
            held = tx.one("piece_at", source=source, at=before[0])
            keep = held is not None and not ends_line(bytes(held[2]), held[1])
        before = piece if keep else None
        if not keep:
            yield piece


def _drop(tx: Tx, source: int, told: Dropped, starts: Iterable[int], now: int) -> None:
    natives = _numbers(told.conversations)
    # First: where imports and this wait for each other, it is here.
    tx.run("prune_source", id=source, now=now)
    tx.run("prune_words", id=source, natives=natives)
    tx.run("prune_passages", id=source, natives=natives)
    tx.many("prune_pieces", [(source, start) for start in starts])
    tx.run("prune_conversations", natives=natives, now=now)


def _numbers(values: Iterable[int]) -> str:
    return orjson.dumps(sorted(values)).decode()
