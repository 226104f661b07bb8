"""Verbs of importing: sources and how far they were read, what they told, and their archive, in one transaction.

A batch is all or nothing: the position of a source moves in the transaction that stores what lay before it, so a
process that is killed loses nothing and repeats nothing. Two processes that read one source do not wait for each other:
whoever finds it moved on gives its reading up.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import orjson

from turnlog.clock import Now
from turnlog.ledger import homes
from turnlog.ledger.backend import Backend, Tx
from turnlog.ledger.sessions import NewSession, Sessions
from turnlog.receipts import decode, receipt_key

_KEYS: Final = uuid.UUID("8d0c6d0e-6f0e-5c58-9a38-0d9b6b1c3f5a")
"""Namespace of the artifact keys of imported conversations."""


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


class Conversation(msgspec.Struct):
    """Where receipts of a provider's conversation go. ``own`` = imported; else turnlog drove it.

    ``pruned_to``: its receipts up to this instant (unix ms) were removed, and are not taken again.
    """

    session_id: str
    native: int
    capture: int
    own: bool
    pruned_to: int | None = None

    def holds(self, at: int | None) -> bool:
        """Tell whether what happened at an instant was removed from here."""
        return self.pruned_to is not None and at is not None and at <= self.pruned_to


class Row(msgspec.Struct, frozen=True):
    """A native receipt of an import: ``text`` is its canonical payload."""

    thread: str
    turn: str
    kind: str
    text: str
    at: int


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


class ImportTx:
    """The verbs inside a batch."""

    def __init__(self, tx: Tx, now: int, sessions: Sessions, home: str | None = None) -> None:
        self._tx = tx
        self._now = now
        self._sessions = sessions
        self._home = home

    # --- sources

    def add_source(self, provider: str, path: str, kind: str, thread: str | None, *, archived: bool) -> int | None:
        """Return the id of a new source; None when there is one of this path already."""
        row = self._tx.one(
            "insert_source",
            provider=provider,
            path=path,
            kind=kind,
            thread=thread,
            archived=int(archived),
            now=self._now,
            home=self._home,
        )
        return None if row is None else int(row[0])

    def advance(self, source: int, step: Advance) -> bool:
        """Move a source on; False when it does not stand at ``step.start`` any more."""
        return bool(self._tx.run("advance_source", id=source, now=self._now, **msgspec.structs.asdict(step)))

    def touch(self, source: int, device: int | None, inode: int | None, size: int, modified: int | None) -> None:
        """Remember what the file system says of a source without anything new."""
        self._tx.run("touch_source", id=source, device=device, inode=inode, size=size, modified=modified)

    def missing(self, source: int) -> None:
        """Note that a source's file is gone."""
        self._tx.run("source_missing", id=source, now=self._now)

    def readable(self, source: int) -> None:
        """Note that a source can be looked at again."""
        self._tx.run("source_readable", id=source)

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

    def problems(self, source: int, start: int, rows: Iterable[tuple[int, str, int, str, str | None, int]]) -> None:
        """Store (offset, kind, length, detail, session, usage) of a reading that began at ``start``."""
        self._tx.run("delete_problems", id=source, start=start)
        self._tx.many("insert_problems", [(source, *row, self._now) for row in rows])

    # --- conversations

    def conversation(self, provider: str, native: str) -> Conversation | None:
        """Return where receipts of a provider's conversation go: the session that drove it, else the imported one."""
        found = self._tx.one("conversation", provider=provider, native=native)
        if found is None:
            found = self._tx.one("conversation_by_alias", provider=provider, native=native)
        if found is None:
            found = self._tx.one("conversation_by_id", id=f"{provider}:{native}")
        if found is None:
            return None
        row = found[1]
        if row is None:
            row = self._native(found[0], provider, native)
        removed = self._tx.one("pruned_to", session=found[0])
        return Conversation(found[0], row, found[2], bool(found[4]), None if removed is None else removed[0])

    def create(
        self, provider: str, native: str, *, at: int, cwd: str, model: str | None, interactive: bool
    ) -> Conversation:
        """Create the session of an imported conversation: one capture, no exec, no task (architecture §4)."""
        session_id = f"{provider}:{native}"
        session = self._sessions.create_in(
            self._tx,
            NewSession(
                id=session_id,
                artifact_key=uuid.uuid5(_KEYS, session_id).hex,
                title="Untitled",
                title_source="generated",
                kind="conversation",
                interactive=interactive,
                created_at=at,
                cwd=cwd,
                repo=None,
                provider=provider,
                model=model,
                skill=None,
                task_id=None,
                wave_id=None,
                work_source=None,
                primary_scope=None,
                caller=None,
                published=False,
                exec_id=None,
                thread=native,
            ),
        )
        return Conversation(session_id, self._native(session_id, provider, native), session.captured, own=True)

    def _native(self, session_id: str, provider: str, native: str) -> int:
        row = self._tx.one("insert_native_session", session=session_id, provider=provider, native=native)
        assert row is not None  # noqa: S101 - an insert returns its row
        return int(row[0])

    def learn(
        self,
        conversation: Conversation,
        *,
        at: int | None,
        first: int | None,
        cwd: str | None,
        root: str | None,
        remote: str | None,
        model: str | None,
        version: str | None,
        title: str | None,
        title_rank: int,
        parent: str | None,
        parent_turn: str | None,
        relation: str | None,
        repo: str | None,
    ) -> None:
        """Add facts to a conversation; an imported one shows them, a driven one keeps what turnlog knows.

        ``first`` is the earliest instant that their source tells of it, if it is known.
        """
        row = self._tx.one(
            "learn_native_session",
            id=conversation.native,
            at=at,
            first=first,
            cwd=cwd,
            root=root,
            remote=remote,
            model=model,
            version=version,
            title=title,
            rank=title_rank,
            parent=parent,
            parent_turn=parent_turn,
            relation=relation,
        )
        if row is not None and conversation.own:
            self._tx.run(
                "learn_session",
                session=conversation.session_id,
                title=row[0],
                at=row[2],
                cwd=row[3],
                model=row[4],
                repo=repo,
            )

    def newest_model(self, conversation: Conversation) -> None:
        """Let the newest call tell the model of a conversation of several sources: they may be read in any order."""
        row = self._tx.one("latest_usage", session=conversation.session_id)
        told = None if row is None else decode(row[0])
        model = told.get("model") if isinstance(told, dict) else None
        if isinstance(model, str):
            self._tx.run("set_native_model", id=conversation.native, model=model)
            if conversation.own:
                self._tx.run("set_session_model", session=conversation.session_id, model=model)

    def aliases(self, rows: Iterable[tuple[str, str, str]]) -> None:
        """Store (provider, alias, session)."""
        self._tx.many("insert_aliases", rows)

    def sources_of(self, rows: Iterable[tuple[str, int]]) -> None:
        """Store which sources tell of a session."""
        self._tx.many("insert_session_sources", rows)

    # --- receipts

    def receipt(self, conversation: Conversation, row: Row) -> tuple[int | None, str | None]:
        """Append a receipt; returns its seq when new.

        Else None, with the text of the first receipt of its key if that says something else.
        """
        session = conversation.session_id
        if conversation.holds(row.at):
            return None, None
        if row.kind == "started":
            seq = self._start(conversation, row)
            return seq, None
        key = receipt_key(row.kind, row.text)
        seq = self._tx.insert_native((session, row.thread, row.turn, row.kind, key, row.at, row.text))
        if seq is not None or row.kind == "usage":
            return seq, None
        found = self._tx.one("find_receipt", session=session, thread=row.thread, turn=row.turn, kind=row.kind, key=key)
        first = None if found is None else str(found[1])
        return None, None if first == row.text else first

    def _start(self, conversation: Conversation, row: Row) -> int | None:
        task = wave = exec_id = generation = None
        capture = conversation.capture
        if not conversation.own:
            found = self._tx.one("start_attribution", session=conversation.session_id, thread=row.thread, turn=row.turn)
            if found is not None:
                _, _, task, wave, capture, exec_id, generation = found
        inserted = self._tx.one(
            "insert_started",
            session=conversation.session_id,
            thread=row.thread,
            turn=row.turn,
            generation=generation,
            exec=exec_id,
            task=task,
            wave=wave,
            at=row.at,
            payload=row.text,
            capture=capture,
        )
        return None if inserted is None else int(inserted[0])

    def observe(
        self, conversation: Conversation, source: str, evidence: str, at: int, turn: tuple[str, str] | None
    ) -> None:
        """Keep an observation on the capture of a turn (thread, turn), else on the current one; the first one stays."""
        if conversation.holds(at):
            return
        row = self._tx.one(
            "capture_of_turn",
            session=conversation.session_id,
            thread=turn[0] if turn else "",
            turn=turn[1] if turn else "",
        )
        if row is None:
            return
        key = row[0]
        capture = self._tx.one("capture_by_key", key=key)
        text = orjson.dumps(
            {"evidence": decode(evidence), "input_id": key, "source": source}, option=orjson.OPT_SORT_KEYS
        ).decode()
        self._tx.one(
            "insert_observed",
            session=conversation.session_id,
            key=f"{key}:{source}",
            exec=None,
            task=None,
            wave=None,
            at=at,
            payload=text,
            capture=None if capture is None else capture[0],
        )

    def places(self, rows: Iterable[tuple[int, int, int, str | None]]) -> None:
        """Store (seq, source, offset, call)."""
        self._tx.many("insert_places", rows)

    def sightings(self, rows: Sequence[tuple[str, str, int, str | None, int]]) -> int:
        """Store (call, session, at, rivals as JSON, weight) and settle who owns the calls.

        Returns how many sightings turned out to be copies.

        Copies are rows that do not count: of the sightings of one call without rivals the earliest counts, then the
        heaviest, then the smallest session id; one with rivals counts if none of them has the call.
        """
        self._tx.many("insert_sightings", rows)
        by_call: dict[str, list[tuple[str, int, str | None, int, int]]] = {}
        calls = orjson.dumps(sorted({row[0] for row in rows})).decode()
        for call, session, at, rivals, weight, owned in self._tx.all("sightings", calls=calls):
            by_call.setdefault(call, []).append((session, at, rivals, weight, owned))
        copied = 0
        for call, seen in by_call.items():
            sessions = {each[0] for each in seen}
            free = [(at, -weight, session) for session, at, rivals, weight, _ in seen if rivals is None]
            for session, _, rivals, _, owned in seen:
                counts = session == min(free)[2] if rivals is None else sessions.isdisjoint(orjson.loads(rivals))
                if counts != bool(owned):
                    self._tx.run("own_call", call=call, session=session, owned=int(counts))
                    copied += not counts
        return copied

    # --- archive and text

    def pieces(self, rows: Iterable[tuple[int, int, int, bytes]]) -> None:
        """Store (source, start, size, compressed bytes)."""
        self._tx.many("insert_pieces", rows)

    def passages(self, rows: Sequence[tuple[int, str | None, int, int | None, int, int, int, str | None, str]]) -> None:
        """Store (native session, turn, role, at, source, offset, part, key, text) and index the text.

        Text with a key replaces what was said of that before, in whatever source.
        """
        newest = {row[7]: (row[4], row[5]) for row in rows if row[7] is not None}
        if newest:
            rows = [row for row in rows if row[7] is None or newest[row[7]] == (row[4], row[5])]
        keys = orjson.dumps(sorted(newest)).decode()
        old = [(found[0],) for found in self._tx.all("passages_of_keys", keys=keys)] if newest else []
        self._tx.many("drop_passages", old)
        last = self._tx.one("last_passage")
        first = 1 if last is None else int(last[0]) + 1
        self._tx.many("insert_passages", [(number, *row[:8]) for number, row in enumerate(rows, first)])
        self._tx.many("drop_words", old)
        self._tx.many("insert_words", [(number, row[8]) for number, row in enumerate(rows, first)])
