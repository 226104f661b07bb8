"""Writes what readers took from sources into the ledger: the batch side of the single door.

A receipt that contradicts a first one is kept as an observation and loses nothing else (D9). A completion or output of
a file that says the same as the wire did, in other words, is known: a second witness, not a conflict.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import orjson

from turnlog.harness.reading import ROLES, Facts, Found, Noted, Reading, Source, Trouble
from turnlog.intake.agree import agree
from turnlog.intake.projects import project
from turnlog.intake.pump import Chunk, Task
from turnlog.ledger.imports import Advance, Conversation, ImportTx, Row, SourceRow
from turnlog.receipts import canonical, decode
from turnlog.redact import strip_terminal

_ROLE: Final = {role: number for number, role in enumerate(ROLES)}
_DAY_MS: Final = 86_400_000


class Problem(msgspec.Struct, frozen=True):
    """Bytes of a file that could not be used."""

    file: str
    offset: int
    kind: str
    detail: str = ""


class Counts(msgspec.Struct):
    """What an import did so far."""

    files: int = 0
    lines: int = 0
    bytes: int = 0
    new: int = 0
    known: int = 0
    inherited: int = 0
    dropped: int = 0
    sessions: set[str] = msgspec.field(default_factory=set)
    problems: list[Problem] = msgspec.field(default_factory=list)


class _Rows:
    """What is stored at the end of a batch, all of a kind at once."""

    def __init__(self) -> None:
        self.aliases: set[tuple[str, str, str]] = set()
        self.modelled: dict[str, Conversation] = {}
        self.sources: set[tuple[str, int]] = set()
        self.places: list[tuple[int, int, int, str | None]] = []
        self.sightings: list[tuple[str, str, int, str | None, int]] = []
        self.pieces: list[tuple[int, int, int, bytes]] = []
        self.passages: list[tuple[int, str | None, int, int | None, int, int, int, str | None, str]] = []


class Writer:
    """Writes chunks. One object for one import; ``counts`` adds up."""

    def __init__(self, decoders: dict[str, int]) -> None:
        self.counts = Counts()
        self._decoders = decoders
        self._rows: dict[int, int] = {}  # source rows of tasks
        self._lost: set[int] = set()  # tasks that another process does
        self._conversations: dict[tuple[str, str], Conversation] = {}
        self._latest: dict[str, int] = {}  # the newest instant seen in a conversation
        self._first: dict[tuple[int, str], int] = {}  # the earliest one that a task tells of it

    def write(self, tx: ImportTx, batch: Sequence[tuple[Task, Chunk]]) -> None:
        """Store chunks; those of which another process has read the part of the source already are left out.

        One kind of statement after the other: the connection forgets a compiled statement that was not among the last
        hundred executed, and those with triggers take two milliseconds to compile. The full-text index comes last: it
        writes what it holds in memory to disk at each later statement that could fail half-way.
        """
        taken = []
        for task, chunk in batch:
            source = self._advance(tx, task, chunk)
            if source is not None:
                taken.append((task, chunk, source))
        rows = _Rows()
        for task, chunk, source in taken:
            for facts in chunk.reading.facts:
                self._learn(tx, task, source, facts, rows)
        for task, chunk, source in taken:
            self._receipts(tx, task, source, chunk.reading.found, rows)
        for task, chunk, _ in taken:
            for noted in chunk.reading.noted:
                self._note(tx, task, noted)
        for task, chunk, source in taken:
            self._troubles(tx, task, source, chunk)
            if task.archive and self._passages(tx, task, source, chunk.reading, rows):
                rows.pieces += [(source, *piece) for piece in chunk.pieces]
            self._count(chunk)
        self._store(tx, rows)

    def _store(self, tx: ImportTx, rows: _Rows) -> None:
        tx.aliases(rows.aliases)
        tx.sources_of(rows.sources)
        for conversation in rows.modelled.values():
            tx.newest_model(conversation)
        tx.places(rows.places)
        if rows.sightings:
            self.counts.inherited += tx.sightings(rows.sightings)
        tx.pieces(rows.pieces)
        if rows.passages:
            tx.passages(rows.passages)

    def _count(self, chunk: Chunk) -> None:
        self.counts.lines += chunk.reading.lines
        self.counts.bytes += chunk.end - chunk.start
        self.counts.inherited += chunk.reading.inherited
        self.counts.dropped += chunk.reading.dropped
        self.counts.files += chunk.last

    def _advance(self, tx: ImportTx, task: Task, chunk: Chunk) -> int | None:
        """Move a source on and return its row; None when another process was faster, which then does the rest."""
        if task.number in self._lost:
            return None
        row = self._rows.get(task.number, task.row)
        if row is None:
            place = task.source
            row = tx.add_source(place.provider, place.path, place.kind, place.thread, archived=task.archive)
            if row is None:
                self._lost.add(task.number)
                return None
        self._rows[task.number] = row
        done = chunk.last and chunk.error is None and not chunk.waits
        seen = task.seen
        moved = tx.advance(
            row,
            Advance(
                start=chunk.start,
                end=chunk.end,
                path=task.source.path,
                kind=task.source.kind,
                thread=task.source.thread,
                device=seen.device,
                inode=seen.inode,
                size=seen.size if done else 0,
                modified=seen.modified if done else None,
                head=chunk.head,
                head_size=chunk.head_size,
                tail=chunk.tail,
                lines=chunk.reading.lines,
                state=chunk.state,
                cursor=chunk.cursor,
                decoder=self._decoders[task.source.provider],
            ),
        )
        if not moved:
            self._lost.add(task.number)
            return None
        return row

    def failed(self, tx: ImportTx, source: Source, row: SourceRow | None, trouble: Trouble) -> None:
        """Store that a source could not even be looked at."""
        known = None if row is None else row.id
        if known is None:
            known = tx.add_source(source.provider, source.path, source.kind, source.thread, archived=True)
        if known is not None:
            detail = trouble.detail[:500]
            tx.problems(known, trouble.offset, [(trouble.offset, trouble.kind, 0, detail, None, int(trouble.usage))])
        self.counts.problems.append(Problem(source.path, trouble.offset, trouble.kind, trouble.detail[:500]))

    # --- conversations

    def _learn(self, tx: ImportTx, task: Task, source: int, facts: Facts, rows: _Rows) -> None:
        provider = task.source.provider
        conversation = self._conversation(tx, task, facts.session, facts)
        if facts.at is not None:
            self._latest.setdefault(conversation.session_id, facts.at)
            key = (task.number, conversation.session_id)
            self._first[key] = min(facts.at, self._first.get(key, facts.at))
        tx.learn(
            conversation,
            at=facts.at,
            first=self._first.get((task.number, conversation.session_id)),
            cwd=facts.cwd,
            root=facts.root,
            remote=facts.remote,
            model=facts.model,
            version=facts.version,
            title=facts.title,
            title_rank=facts.title_rank,
            parent=facts.parent,
            parent_turn=facts.parent_turn,
            relation=facts.relation,
            repo=project(facts.cwd, facts.root),
        )
        if facts.model is not None:
            rows.modelled[conversation.session_id] = conversation
        rows.aliases |= {(provider, alias, conversation.session_id) for alias in facts.aliases}
        rows.sources.add((conversation.session_id, source))

    def _conversation(self, tx: ImportTx, task: Task, native: str, facts: Facts | None = None) -> Conversation:
        key = (task.source.provider, native)
        found = self._conversations.get(key)
        if found is None:
            found = tx.conversation(*key) or tx.create(
                *key,
                at=facts.at if facts and facts.at is not None else task.seen.modified // 10**6,
                cwd=(facts.cwd if facts else None) or "",
                model=facts.model if facts else None,
                interactive=facts is None or facts.relation != "subagent",
            )
            self._conversations[key] = found
            self.counts.sessions.add(found.session_id)
        return found

    def _at(self, conversation: Conversation, task: Task, at: int | None) -> int:
        """Return when something happened by its source, else the last instant known before it in the conversation."""
        if at is None:
            return self._latest.get(conversation.session_id, task.seen.modified // 10**6)
        if at <= task.seen.modified // 10**6 + _DAY_MS:  # a time in the future is no measure for others
            self._latest[conversation.session_id] = at
        return at

    # --- receipts

    def _receipts(self, tx: ImportTx, task: Task, source: int, found: Iterable[Found], rows: _Rows) -> None:
        for receipt in found:
            conversation = self._conversation(tx, task, receipt.session)
            at = self._at(conversation, task, receipt.at)
            row = Row(receipt.thread, receipt.turn, receipt.kind, receipt.payload, at)
            seq, other = tx.receipt(conversation, row)
            if seq is not None:
                self.counts.new += 1
                rows.places.append((seq, source, receipt.offset, receipt.call))
            else:
                self.counts.known += 1
                if other is not None and not agree(row.kind, decode(row.text), decode(other)):
                    self._conflict(tx, conversation, row)
            if receipt.call is not None:
                rivals = None
                if receipt.rivals:
                    names = [f"{task.source.provider}:{name}" for name in receipt.rivals]
                    rivals = orjson.dumps(names).decode()
                rows.sightings.append((receipt.call, conversation.session_id, at, rivals, receipt.weight))
            rows.sources.add((conversation.session_id, source))

    def _conflict(self, tx: ImportTx, conversation: Conversation, row: Row) -> None:
        digest = hashlib.sha256(row.text.encode()).hexdigest()
        evidence = {"kind": row.kind, "thread": row.thread, "turn": row.turn, "payload": decode(row.text)}
        name = f"conflict:{row.kind}:{row.thread}:{row.turn}:{digest}"
        tx.observe(conversation, name, canonical(evidence), row.at, (row.thread, row.turn))

    def _note(self, tx: ImportTx, task: Task, noted: Noted) -> None:
        conversation = self._conversation(tx, task, noted.session)
        at = self._at(conversation, task, noted.at)
        turn = None if noted.turn is None else (noted.session, noted.turn)
        tx.observe(conversation, noted.source, noted.evidence, at, turn)

    # --- text and problems

    def _passages(self, tx: ImportTx, task: Task, source: int, reading: Reading, rows: _Rows) -> bool:
        """Add what was said; False when all of it was removed from the ledger before, so that nothing is kept of it."""
        kept = not reading.spoken
        for spoken in reading.spoken:
            conversation = self._conversation(tx, task, spoken.session)
            if conversation.holds(spoken.at):
                continue
            kept = True
            native = conversation.native
            rows.passages += [
                (
                    native,
                    spoken.turn,
                    _ROLE[passage.role],
                    spoken.at,
                    source,
                    spoken.offset,
                    part,
                    spoken.key,
                    _plain(passage.text),
                )
                for part, passage in enumerate(spoken.passages)
                if passage.text
            ]
        return kept

    def _troubles(self, tx: ImportTx, task: Task, source: int, chunk: Chunk) -> None:
        provider = task.source.provider
        rows = []
        for trouble in chunk.reading.troubles:
            native = trouble.session or task.source.thread
            known = self._conversations.get((provider, native)) if native else None
            if known is None and native:
                known = tx.conversation(provider, native)
            session = known.session_id if known else None
            rows.append(
                (trouble.offset, trouble.kind, trouble.length, trouble.detail[:500], session, int(trouble.usage))
            )
            self.counts.problems.append(Problem(task.source.path, trouble.offset, trouble.kind, trouble.detail[:500]))
        tx.problems(source, chunk.start, rows)


def _plain(text: str) -> str:
    """Take terminal escapes out of what is indexed: a coloured word is found by its letters."""
    return strip_terminal(text) if "\x1b" in text else text
