"""Writes what readers took from sources into the ledger: the batch side of the single door.

A receipt that contradicts a first one is kept as an observation and loses nothing else (D9). A completion or output of
a file that says the same as the wire did, in other words, is known: a second witness, not a conflict.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import orjson

from turnlog.harness.reading import ROLES, Facts, Found, Noted, Source, Trouble
from turnlog.intake.agree import agree
from turnlog.intake.held import Held, Piece
from turnlog.intake.projects import project
from turnlog.intake.pump import Chunk, Task
from turnlog.ledger.import_conversations import Conversation, NewConversation
from turnlog.ledger.import_facts import Told
from turnlog.ledger.imports import Advance, ImportTx, NewSource, Observation, Problems, Row, SourceRow
from turnlog.receipts import canonical, decode
from turnlog.redact import strip_terminal

_ROLE: Final = {role: number for number, role in enumerate(ROLES)}
_DAY_MS: Final = 86_400_000

_Name = tuple[str, str]
"""A provider, and its id of a conversation."""

_Taken = tuple[Task, Chunk, int]
"""A chunk that is ours, and the row of its source."""


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
        self.known: list[tuple[Conversation, Row, int, int]] = []
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
        self._held = Held()
        self._conversations: dict[_Name, Conversation] = {}
        self._asked: dict[_Name, Conversation] = {}  # those of a batch that were there
        self._latest: dict[tuple[int, str], int] = {}  # the newest instant that a task tells of a conversation
        self._first: dict[tuple[int, str], int] = {}  # the earliest one that a task tells of it

    def write(self, tx: ImportTx, batch: Sequence[tuple[Task, Chunk]]) -> None:
        """Store chunks; those of which another process has read the part of the source already are left out.

        One kind of statement after the other: the connection forgets a compiled statement that was not among the last
        hundred executed, and those with triggers take two milliseconds to compile. The full-text index comes last: it
        writes what it holds in memory to disk at each later statement that could fail half-way.
        """
        taken = self._advance(tx, batch)
        self._meet(tx, taken)
        rows = _Rows()
        tx.learn([each for task, chunk, source in taken for each in self._facts(task, source, chunk, rows)], project)
        observed = self._receipts(tx, taken, rows)
        observed += [self._note(task, noted) for task, chunk, _ in taken for noted in chunk.reading.noted]
        tx.observe(observed)
        tx.problems([self._troubles(task, source, chunk) for task, chunk, source in taken])
        tx.want([(source, chunk.reading.wanted) for _, chunk, source in taken if chunk.reading.wanted is not None])
        for task, chunk, source in taken:
            if task.archive:
                rows.pieces += [(source, *piece) for piece in self._passages(tx, task, source, chunk, rows)]
            self._count(chunk)
        self._store(tx, rows)

    def _store(self, tx: ImportTx, rows: _Rows) -> None:
        tx.aliases(rows.aliases)
        tx.sources_of(rows.sources)
        tx.newest_models(list(rows.modelled.values()))
        tx.places(rows.places)
        tx.known_places(rows.known)
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

    def _advance(self, tx: ImportTx, batch: Sequence[tuple[Task, Chunk]]) -> list[_Taken]:
        """Move sources on; return the chunks that are ours with the rows of their sources.

        Where another process was faster it does the rest of the source. Sources move all at once, each by one chunk.
        """
        rounds: list[list[int]] = []
        depth: dict[int, int] = {}
        for number, (task, _) in enumerate(batch):
            at = depth[task.number] = depth.get(task.number, -1) + 1
            if at == len(rounds):
                rounds.append([])
            rounds[at].append(number)
        moved: set[int] = set()
        for numbers in rounds:
            self._add_sources(tx, [batch[number][0] for number in numbers])
            ours = [number for number in numbers if batch[number][0].number not in self._lost]
            steps = [(self._rows[batch[number][0].number], self._step(*batch[number])) for number in ours]
            for number, was_moved in zip(ours, tx.advance(steps), strict=True):
                if was_moved:
                    moved.add(number)
                else:
                    self._lost.add(batch[number][0].number)
        return [(task, chunk, self._rows[task.number]) for n, (task, chunk) in enumerate(batch) if n in moved]

    def _add_sources(self, tx: ImportTx, tasks: Iterable[Task]) -> None:
        new = []
        for task in tasks:
            if task.number in self._lost or task.number in self._rows:
                continue
            if task.row is None:
                new.append(task)
            else:
                self._rows[task.number] = task.row
        rows = tx.add_sources([_new(task.source, archived=task.archive) for task in new])
        for task, row in zip(new, rows, strict=True):
            if row is None:
                self._lost.add(task.number)
            else:
                self._rows[task.number] = row

    def _step(self, task: Task, chunk: Chunk) -> Advance:
        done = chunk.last and chunk.error is None and not chunk.waits
        seen = task.seen
        return Advance(
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
        )

    def failed(self, tx: ImportTx, source: Source, row: SourceRow | None, trouble: Trouble) -> None:
        """Store that a source could not even be looked at."""
        known = None if row is None else row.id
        if known is None:
            known = tx.add_source(_new(source, archived=True))
        if known is not None:
            row_of = (trouble.offset, trouble.kind, 0, trouble.detail[:500], None, int(trouble.usage))
            tx.problems([(known, trouble.offset, [row_of])])
        self.counts.problems.append(Problem(source.path, trouble.offset, trouble.kind, trouble.detail[:500]))

    # --- conversations

    def _meet(self, tx: ImportTx, taken: Iterable[_Taken]) -> None:
        """Find the conversations of chunks, and make those of which something is told for the first time."""
        told: dict[_Name, tuple[Task, Facts | None]] = {}
        only_asked: set[_Name] = set()  # they are named, but nothing is told of them
        for task, chunk, _ in taken:
            for facts in chunk.reading.facts:
                told.setdefault((task.source.provider, facts.session), (task, facts))
        for task, chunk, _ in taken:
            reading = chunk.reading
            names = [each.session for each in reading.found] + [each.session for each in reading.noted]
            if task.archive:
                names += [each.session for each in reading.spoken]
            for name in dict.fromkeys(names):
                told.setdefault((task.source.provider, name), (task, None))
            only_asked.update(_owner(task, trouble) for trouble in reading.troubles)
        new = [name for name in told if name not in self._conversations]
        self._asked = tx.conversations([*new, *sorted(only_asked - self._conversations.keys() - told.keys())])
        missing = [name for name in new if name not in self._asked]
        made = tx.create([_first_told(name, *told[name]) for name in missing])
        found = {name: self._asked[name] for name in new if name in self._asked}
        found.update(zip(missing, made, strict=True))
        self._conversations |= found
        self.counts.sessions.update(conversation.session_id for conversation in found.values())

    def _facts(self, task: Task, source: int, chunk: Chunk, rows: _Rows) -> Iterator[tuple[Conversation, Told]]:
        provider = task.source.provider
        for facts in chunk.reading.facts:
            conversation = self._conversations[provider, facts.session]
            key = (task.number, conversation.session_id)
            if facts.at is not None:
                self._latest.setdefault(key, facts.at)
                self._first[key] = min(facts.at, self._first.get(key, facts.at))
            if facts.model is not None:
                rows.modelled[conversation.session_id] = conversation
            rows.aliases |= {(provider, alias, conversation.session_id) for alias in facts.aliases}
            rows.sources.add((conversation.session_id, source))
            yield (
                conversation,
                Told(
                    at=facts.at,
                    first=self._first.get(key),
                    cwd=facts.cwd,
                    root=facts.root,
                    remote=facts.remote,
                    model=facts.model,
                    version=facts.version,
                    title=facts.title,
                    title_rank=facts.title_rank,
                    title_at=facts.title_at,
                    parent=facts.parent,
                    parent_turn=facts.parent_turn,
                    relation=facts.relation,
                ),
            )

    def _at(self, conversation: Conversation, task: Task, at: int | None) -> int:
        """Return when something happened by its source, else the last instant known before it in the conversation."""
        key = (task.number, conversation.session_id)
        if at is None:
            return self._latest.get(key, task.seen.modified // 10**6)
        if at <= task.seen.modified // 10**6 + _DAY_MS:  # a time in the future is no measure for others
            self._latest[key] = at
        return at

    # --- receipts

    def _receipts(self, tx: ImportTx, taken: Iterable[_Taken], rows: _Rows) -> list[Observation]:
        """Append receipts; return what is to be kept of those that contradict a first one."""
        told: list[tuple[Conversation, Row]] = []
        places: list[tuple[int, Found]] = []
        for task, chunk, source in taken:
            for receipt in chunk.reading.found:
                conversation = self._conversations[task.source.provider, receipt.session]
                at = self._at(conversation, task, receipt.at)
                told.append((conversation, Row(receipt.thread, receipt.turn, receipt.kind, receipt.payload, at)))
                places.append((source, receipt))
                if receipt.call is not None:
                    rivals = None
                    if receipt.rivals:
                        names = [f"{task.source.provider}:{name}" for name in receipt.rivals]
                        rivals = orjson.dumps(names).decode()
                    rows.sightings.append((receipt.call, conversation.session_id, at, rivals, receipt.weight))
                rows.sources.add((conversation.session_id, source))
        stored = tx.receipts(told)
        conflicts = []
        for (conversation, row), (source, receipt), (seq, other) in zip(told, places, stored, strict=True):
            if seq is not None:
                self.counts.new += 1
                rows.places.append((seq, source, receipt.offset, receipt.call))
                continue
            self.counts.known += 1
            if other is None:
                rows.known.append((conversation, row, source, receipt.offset))
            elif not agree(row.kind, decode(row.text), decode(other)):
                conflicts.append(_conflict(conversation, row))
        return conflicts

    def _note(self, task: Task, noted: Noted) -> Observation:
        conversation = self._conversations[task.source.provider, noted.session]
        at = self._at(conversation, task, noted.at)
        turn = None if noted.turn is None else (noted.session, noted.turn)
        return Observation(conversation, noted.source, noted.evidence, at, turn)

    # --- text and problems

    def _passages(self, tx: ImportTx, task: Task, source: int, chunk: Chunk, rows: _Rows) -> list[Piece]:
        """Add what was said and was not removed from the ledger before; return the bytes to keep."""
        lines = []
        for spoken in chunk.reading.spoken:
            conversation = self._conversations[task.source.provider, spoken.session]
            held = self._held.text(tx, conversation, source, spoken.at)
            lines.append((spoken.offset, held))
            if held:
                continue
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
        return self._held.pieces(chunk, lines)

    def _troubles(self, task: Task, source: int, chunk: Chunk) -> Problems:
        rows = []
        for trouble in chunk.reading.troubles:
            name = _owner(task, trouble)
            known = self._conversations.get(name) or self._asked.get(name)
            session = known.session_id if known else None
            rows.append(
                (trouble.offset, trouble.kind, trouble.length, trouble.detail[:500], session, int(trouble.usage))
            )
            self.counts.problems.append(Problem(task.source.path, trouble.offset, trouble.kind, trouble.detail[:500]))
        return source, chunk.start, rows


def _new(source: Source, *, archived: bool) -> NewSource:
    return NewSource(source.provider, source.path, source.kind, source.thread, archived)


def _owner(task: Task, trouble: Trouble) -> _Name:
    """Return whose trouble one of a task's is: the conversation's that it names, else the source's own."""
    return task.source.provider, trouble.session or task.source.thread or ""


def _first_told(name: _Name, task: Task, facts: Facts | None) -> NewConversation:
    return NewConversation(
        provider=name[0],
        native=name[1],
        at=facts.at if facts and facts.at is not None else task.seen.modified // 10**6,
        cwd=(facts.cwd if facts else None) or "",
        model=facts.model if facts else None,
        interactive=facts is None or facts.relation != "subagent",
    )


def _conflict(conversation: Conversation, row: Row) -> Observation:
    digest = hashlib.sha256(row.text.encode()).hexdigest()
    evidence = {"kind": row.kind, "thread": row.thread, "turn": row.turn, "payload": decode(row.text)}
    name = f"conflict:{row.kind}:{row.thread}:{row.turn}:{digest}"
    return Observation(conversation, name, canonical(evidence), row.at, (row.thread, row.turn))


def _plain(text: str) -> str:
    """Take terminal escapes out of what is indexed: a coloured word is found by its letters."""
    return strip_terminal(text) if "\x1b" in text else text
