"""Verbs of importing: sources and how far they were read, what they told, and their archive, in one transaction.

A batch is all or nothing: the position of a source moves in the transaction that stores what lay before it, so a
process that is killed loses nothing and repeats nothing. Two processes that read one source do not wait for each other:
whoever finds it moved on gives its reading up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import orjson

from turnlog.clock import Now
from turnlog.ledger import homes
from turnlog.ledger.backend import Backend, Tx
from turnlog.ledger.import_calls import CallsTx
from turnlog.ledger.import_conversations import Conversation, ConversationsTx, import_key
from turnlog.ledger.import_places import PlacesTx
from turnlog.ledger.sessions import Sessions
from turnlog.receipts import canonical, receipt_key

__all__ = [
    "Advance",
    "Conversation",
    "ImportTx",
    "Imports",
    "NewSource",
    "Observation",
    "Problems",
    "Row",
    "SourceRow",
    "import_key",
]


class SourceRow(msgspec.Struct, frozen=True, array_like=True):
    """A source as the ledger knows it; instants are unix ms, ``modified_at`` is the file system's nanoseconds."""

    id: int
    provider: str
    path: str
    kind: str
    thread: str | None
    device: int | None
    inode: int | None
    size: int
    modified_at: int | None
    head: str | None
    head_size: int
    read_to: int
    tail: str | None
    lines: int
    state: bytes | None
    cursor: bytes | None
    decoder: int
    archived: bool
    missing_at: int | None


class Advance(msgspec.Struct, frozen=True, kw_only=True):
    """A source was read from ``start`` to ``end``; the rest is what was seen of the file."""

    start: int
    end: int
    path: str
    kind: str
    thread: str | None
    device: int | None
    inode: int | None
    size: int
    modified: int | None
    head: str | None
    head_size: int
    tail: str | None
    lines: int
    state: bytes | None
    cursor: bytes | None
    decoder: int


class NewSource(msgspec.Struct, frozen=True):
    """A source that is read for the first time."""

    provider: str
    path: str
    kind: str
    thread: str | None
    archived: bool


Problems = tuple[int, int, Sequence[tuple[int, str, int, str, str | None, int]]]
"""A source, where a reading of it began, and the (offset, kind, length, detail, session, usage) that it met."""


class Row(msgspec.Struct, frozen=True):
    """A native receipt of an import: ``text`` is its canonical payload."""

    thread: str
    turn: str
    kind: str
    text: str
    at: int


class Observation(msgspec.Struct, frozen=True):
    """Something to keep on the capture of a turn (thread, turn), else on the current one.

    ``evidence`` is canonical JSON.
    """

    conversation: Conversation
    source: str
    evidence: str
    at: int
    turn: tuple[str, str] | None


class Imports:
    """Importing into one ledger."""

    def __init__(self, backend: Backend, now: Now, sessions: Sessions) -> None:
        self._backend = backend
        self._now = now
        self._sessions = sessions

    def sources(self, path: str | None = None) -> list[SourceRow]:
        """Return the sources that are still read, by path: O(sources)."""
        with self._backend.read() as tx:
            rows = tx.all("sources", path=path, home=self._home())
        return [msgspec.convert(row, SourceRow, strict=False) for row in rows]

    def marks(self) -> dict[str, tuple[int | None, int | None, int, int | None]]:
        """Return (device, inode, size, modified at) of the sources that are there, by path, as they were read.

        O(sources), and several times as fast as ``sources``: to find out that nothing is new.
        """
        with self._backend.read() as tx:
            rows = tx.all("source_marks", home=self._home())
        return {row[0]: (row[1], row[2], row[3], row[4]) for row in rows}

    def last_piece(self, source: int) -> tuple[int, int, bytes] | None:
        """Return (start, size, compressed bytes) of a source's last archived piece."""
        with self._backend.read() as tx:
            row = tx.one("last_piece", id=source)
        return None if row is None else (row[0], row[1], bytes(row[2]))

    def pieces(self, source: int, start: int = 0) -> Iterator[tuple[int, int, bytes]]:
        """Yield (start, size, compressed bytes) from the piece that holds ``start`` on, one at a time."""
        at: int | None = start
        while at is not None:
            with self._backend.read() as tx:
                row = tx.one("pieces", id=source, start=at)
            if row is None or row[0] + row[1] <= at:
                return
            yield row[0], row[1], bytes(row[2])
            at = row[0] + row[1]

    def problems(self, session: str | None = None, limit: int = 1000) -> list[tuple[str, int, str, int, str]]:
        """Return (path, offset, kind, length, detail) of bytes that could not be used."""
        with self._backend.read() as tx:
            rows = tx.all("source_problems", session=session, limit=limit)
        return [(row[0], row[1], row[2], row[3], row[4]) for row in rows]

    def wanting(self) -> list[tuple[int, str]]:
        """Return (source, conversation): the source is read again when the conversation's own one is there."""
        with self._backend.read() as tx:
            return [(row[0], row[1]) for row in tx.all("wanting")]

    def unreadable(self) -> set[int]:
        """Return the sources that could not be looked at, or not any further: O(problems)."""
        with self._backend.read() as tx:
            return {int(row[0]) for row in tx.all("unreadable_sources")}

    def receipt(self, session: str, thread: str, turn: str, kind: str) -> str | None:
        """Return the text of a turn's ``completed`` or ``output`` if it was read from a file."""
        with self._backend.read() as tx:
            row = tx.one(
                "receipt_of_file", session=session, thread=thread, turn=turn, kind=kind, key=receipt_key(kind, "")
            )
        return None if row is None else str(row[0])

    def aliased(self, word: str) -> list[str]:
        """Return the sessions that are also called ``word`` or ``<provider>:<name>``: O(aliases)."""
        with self._backend.read() as tx:
            return [str(row[0]) for row in tx.all("sessions_of_alias", word=word)]

    @contextlib.contextmanager
    def batch(self) -> Iterator[ImportTx]:
        """Begin a batch: one durable transaction."""
        with self._backend.write() as tx:
            yield ImportTx(tx, self._now(), self._sessions, self._home())

    def _home(self) -> str | None:
        """Return whose paths are meant; None in a ledger of one machine."""
        return homes.home_id() if self._backend.shared else None


class ImportTx(CallsTx, ConversationsTx, PlacesTx):
    """The verbs inside a batch."""

    def __init__(self, tx: Tx, now: int, sessions: Sessions, home: str | None = None) -> None:
        self._tx = tx
        self._now = now
        self._sessions = sessions
        self._home = home

    # --- sources

    def add_sources(self, rows: Sequence[NewSource]) -> list[int | None]:
        """Return the ids of new sources; None for one of whose path there is one already."""
        same = {"now": self._now, "home": self._home}
        told = self._tx.each("insert_source", [{**msgspec.structs.asdict(row), **same} for row in rows])
        return [int(found[0][0]) if found else None for found in told]

    def add_source(self, row: NewSource) -> int | None:
        """Return the id of a new source; None when there is one of this path already."""
        return self.add_sources([row])[0]

    def advance(self, steps: Sequence[tuple[int, Advance]]) -> list[bool]:
        """Move sources on; False for one that does not stand at its step's ``start`` any more."""
        asked = [{"id": source, "now": self._now, **msgspec.structs.asdict(step)} for source, step in steps]
        return [bool(moved) for moved in self._tx.each("advance_source", asked)]

    def touch(self, source: int, device: int | None, inode: int | None, size: int, modified: int | None) -> None:
        """Remember what the file system says of a source without anything new."""
        self._tx.run("touch_source", id=source, device=device, inode=inode, size=size, modified=modified)

    def missing(self, source: int) -> None:
        """Note that a source's file is gone."""
        self._tx.run("source_missing", id=source, now=self._now)

    def readable(self, source: int) -> None:
        """Note that a source can be looked at again."""
        self._tx.run("source_readable", id=source)

    def unpruned_since(self, source: int) -> int | None:
        """Return when a source was read first (unix ms); None when something of it was pruned."""
        row = self._tx.one("unpruned_since", id=source)
        return None if row is None else int(row[0])

    def want(self, rows: Sequence[tuple[int, str]]) -> None:
        """Note of sources that they would tell more if the conversation beside them had its own source there."""
        self._tx.each("want", [{"id": source, "thread": thread} for source, thread in rows])

    def replace(self, source: int) -> None:
        """Note that another file has taken a source's path."""
        self._tx.run("replace_source", id=source, now=self._now)

    def rewind(self, row: SourceRow) -> bool:
        """Set a source back to its first byte, to be read from its archive; False when somebody moved it meanwhile."""
        if not self._tx.run("rewind_source", id=row.id, end=row.read_to):
            return False
        self._tx.run("delete_words", id=row.id)
        self._tx.run("delete_passages", id=row.id)
        self._tx.run("delete_problems", id=row.id, start=0)
        return True

    def problems(self, told: Sequence[Problems]) -> None:
        """Store the problems of readings, in the order in which their sources were read."""
        starts: dict[int, int] = {}
        kept: dict[int, list[tuple[Any, ...]]] = {}
        for source, start, rows in told:
            starts[source] = min(start, starts.get(source, start))
            kept[source] = [*(row for row in kept.get(source, ()) if row[0] < start), *rows]
        self._tx.each("delete_problems", [{"id": source, "start": start} for source, start in starts.items()])
        self._tx.many("insert_problems", [(source, *row, self._now) for source, rows in kept.items() for row in rows])

    # --- receipts

    def receipts(self, rows: Sequence[tuple[Conversation, Row]]) -> list[tuple[int | None, str | None]]:
        """Append receipts in this order, all at once: O(rows). Returns for each its seq when it is new.

        Else None, with the text of the first receipt of its key if that says something else.
        """
        taken = [(number, *each) for number, each in enumerate(rows) if not each[0].holds(each[1].at)]
        seqs = self._tx.insert_receipts(self._columns([(conversation, row) for _, conversation, row in taken]))
        stored: list[tuple[int | None, str | None]] = [(None, None)] * len(rows)
        known = []
        for (number, conversation, row), seq in zip(taken, seqs, strict=True):
            stored[number] = seq, None
            if seq is None and row.kind not in {"started", "usage"}:  # one start is as good as another
                known.append((number, conversation, row))
        found = self._tx.each("find_receipt", [_key_of(conversation, row) for _, conversation, row in known])
        for (number, _, row), told in zip(known, found, strict=True):
            if told and told[0][1] != row.text:
                stored[number] = None, str(told[0][1])
        return stored

    def _columns(self, rows: Sequence[tuple[Conversation, Row]]) -> list[tuple[Any, ...]]:
        driven = [
            {"session": conversation.session_id, "thread": row.thread, "turn": row.turn}
            for conversation, row in rows
            if row.kind == "started" and not conversation.own
        ]
        attributions = iter(self._tx.each("start_attribution", driven))
        columns = []
        for conversation, row in rows:
            task = wave = exec_id = generation = capture = None
            if row.kind == "started":
                capture = conversation.capture
                if not conversation.own and (found := next(attributions)):
                    _, _, task, wave, capture, exec_id, generation = found[0]
            key = receipt_key(row.kind, row.text)
            told = (conversation.session_id, row.thread, row.turn, row.kind, key, row.at, row.text)
            columns.append((*told, generation, exec_id, task, wave, capture))
        return columns

    def observe(self, rows: Sequence[Observation]) -> None:
        """Keep observations in this order, all at once: O(rows). The first one of its name on a capture stays."""
        rows = [row for row in rows if not row.conversation.holds(row.at)]
        turns = dict.fromkeys((row.conversation.session_id, *(row.turn or ("", ""))) for row in rows)
        asked = [{"session": session, "thread": thread, "turn": turn} for session, thread, turn in turns]
        keys = dict(zip(turns, self._tx.each("capture_of_turn", asked), strict=True))
        named = list(dict.fromkeys(told[0][0] for told in keys.values() if told))
        captures = dict(zip(named, self._tx.each("capture_by_key", [{"key": key} for key in named]), strict=True))
        columns = []
        for row in rows:
            told = keys[row.conversation.session_id, *(row.turn or ("", ""))]
            if not told:
                continue
            key = told[0][0]
            # Its members in the order of canonical text, which the evidence is.
            value = {"evidence": orjson.Fragment(row.evidence), "input_id": key, "source": row.source}
            text = orjson.dumps(value).decode()
            capture = captures[key][0][0] if captures[key] else None
            origin = (None, None, None, None)  # generation, exec, task, wave
            session = row.conversation.session_id
            columns.append((session, None, None, "observed", f"{key}:{row.source}", row.at, text, *origin, capture))
        self._tx.insert_receipts(columns)

    def sightings(self, rows: Sequence[tuple[str, str, int, str | None, int]]) -> int:
        """Store sightings of calls and settle who owns those (see ``CallsTx.settle``); returns how many are copies.

        That an id was used again is observed in every session that has it.
        """
        settled = self.settle(rows)
        asked = [{"session": session} for _, session, _ in settled.reused]
        seen = []
        for (name, session, at), removed in zip(settled.reused, self._tx.each("pruned_to", asked), strict=True):
            evidence = canonical({"provider": name.partition(":")[0], "call": name})
            known = Conversation(session, 0, 0, own=True, pruned_to=removed[0][0] if removed else None)
            seen.append(Observation(known, f"reused_id:{name}", evidence, at, None))
        if seen:
            self.observe(seen)
        return settled.copied


def _key_of(conversation: Conversation, row: Row) -> dict[str, str]:
    return {
        "session": conversation.session_id,
        "thread": row.thread,
        "turn": row.turn,
        "kind": row.kind,
        "key": receipt_key(row.kind, row.text),
    }
