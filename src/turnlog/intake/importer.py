"""Imports the histories that programs leave on disk: finds them, reads what is new, writes it in batches.

Incremental always: O(files) system calls and O(new bytes) reading. Every batch is one durable transaction that moves
the positions of its sources, so an import may be killed, repeated, or run twice at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from turnlog import archive
from turnlog.harness.reading import Find, Reader
from turnlog.intake.plan import Plan, make_plan, source_of
from turnlog.intake.pump import Chunk, Seen, Task, pump, reread
from turnlog.intake.workers import finder, rarely_collected, read_all
from turnlog.intake.writer import Counts, Problem, Writer
from turnlog.ledger import Store
from turnlog.ledger.imports import SourceRow

BATCH: Final = 24 << 20
"""Bytes of sources written in one transaction: each one waits for the disk, writes the same pages again that the one
before it had, and adds a part to the full-text index; but it is held in memory, and others wait for the ledger."""


class Progress(msgspec.Struct, frozen=True):
    """How far an import is."""

    files: int
    files_total: int
    bytes: int
    bytes_total: int


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What an import did: ``new`` and ``known`` receipts, ``inherited`` calls that copied histories repeat."""

    found: int
    files: int
    lines: int
    bytes: int
    new: int
    known: int
    inherited: int
    dropped: int
    sessions: int
    missing: int
    problems: tuple[Problem, ...]


def import_sources(
    store: Store,
    readers: Sequence[Reader],
    *,
    variables: Mapping[str, str] = os.environ,
    roots: Sequence[Path] = (),
    keep: bool = True,
    progress: Callable[[Progress], None] | None = None,
    plan: Plan | None = None,
) -> Imported:
    """Bring the ledger up to date with what lies on disk.

    Problems are counted, located and stored, not raised. ``keep``: archive the bytes of new sources and index their
    text. ``plan`` is what ``make_plan`` has just given, so that nothing is looked for twice. Raises TurnlogError only
    where the ledger itself fails.
    """
    if plan is None:
        plan = make_plan(store, readers, variables, roots, archive=keep)
    by_provider = {reader.provider: reader for reader in readers}
    writer = Writer({name: each.version for name, each in by_provider.items()})
    _settle(store, plan, writer)
    if plan.tasks:
        with rarely_collected():
            _import(store, plan, by_provider, writer, progress)
        writer.counts.new += _told_more(store, plan, by_provider)
    return _imported(plan, writer.counts)


def _import(
    store: Store,
    plan: Plan,
    readers: Mapping[str, Reader],
    writer: Writer,
    progress: Callable[[Progress], None] | None,
) -> None:
    """Read what is new and write it, a batch at a time."""
    tasks = {task.number: task for task in plan.tasks}
    done = 0
    for batch in _batches(read_all(plan.tasks, plan.threads, readers, size=plan.bytes)):
        with store.imports.batch() as tx:
            writer.write(tx, [(tasks[chunk.task], chunk) for chunk in batch])
        done += sum(chunk.last for chunk in batch)
        batch.clear()  # before the next one is made
        if progress is not None:
            progress(Progress(done, len(tasks), writer.counts.bytes, plan.bytes))


def _told_more(store: Store, plan: Plan, readers: Mapping[str, Reader]) -> int:
    """Read sources again of which another one tells more that came after them; returns how many receipts are new."""
    wanting = dict(store.imports.wanting())
    if not wanting:
        return 0
    rows = store.imports.sources()
    own = {row.thread for row in rows if row.read_to}
    pruned = store.retention.kept_sources()
    again = [
        row
        for row in rows
        if wanting.get(row.id) in own
        and row.provider in readers
        and row.id not in pruned
        and (row.archived or row.missing_at is None)
    ]
    there, kept = finder(plan.threads), _archive_finder(store, [row for row in rows if row.archived])
    writer = Writer({name: each.version for name, each in readers.items()})
    for number, row in enumerate(again):
        _again(store, writer, readers[row.provider], number, row, lambda thread: there(thread) or kept(thread))
    return writer.counts.new


def _batches(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    held: list[Chunk] = []
    size = 0
    for chunk in chunks:
        held.append(chunk)
        size += chunk.end - chunk.start
        del chunk
        if size >= BATCH:
            yield held
            held, size = [], 0
    if held:
        yield held


def _settle(store: Store, plan: Plan, writer: Writer) -> None:
    """Store what was found out without reading: files that moved, are gone, or cannot be looked at."""
    if not (plan.touched or plan.replaced or plan.missing or plan.failed or plan.readable):
        return
    with store.imports.batch() as tx:
        for row, seen in plan.touched:
            tx.touch(row.id, seen.device, seen.inode, seen.size, seen.modified)
        for row in plan.replaced:
            tx.replace(row.id)
        for row in plan.missing:
            tx.missing(row.id)
        for row in plan.readable:
            tx.readable(row.id)
        for source, known, trouble in plan.failed:
            writer.failed(tx, source, known, trouble)


def _imported(plan: Plan, counts: Counts) -> Imported:
    return Imported(
        found=plan.files,
        files=counts.files,
        lines=counts.lines,
        bytes=counts.bytes,
        new=counts.new,
        known=counts.known,
        inherited=counts.inherited,
        dropped=counts.dropped,
        sessions=len(counts.sessions),
        missing=len(plan.missing),
        problems=tuple(counts.problems),
    )


def reparse(store: Store, readers: Sequence[Reader], *, progress: Callable[[Progress], None] | None = None) -> Imported:
    """Read the archive again with today's decoders: receipts that are known change nothing, text is indexed anew.

    Sources without an archive are left as they are, and so are those that were pruned, with what came from them.
    """
    by_provider = {reader.provider: reader for reader in readers}
    writer = Writer({reader.provider: reader.version for reader in readers})
    kept = store.retention.kept_sources()
    rows = [
        row
        for row in store.imports.sources()
        if row.archived and row.read_to and row.provider in by_provider and row.id not in kept
    ]
    find = _archive_finder(store, rows)
    total = sum(row.read_to for row in rows)
    for number, row in enumerate(rows):
        _again(store, writer, by_provider[row.provider], number, row, find)
        if progress is not None:
            progress(Progress(number + 1, len(rows), writer.counts.bytes, total))
    return _imported(Plan(files=len(rows)), writer.counts)


def _again(store: Store, writer: Writer, reader: Reader, number: int, row: SourceRow, find: Find) -> None:
    """Read a source from its first byte on: from the archive, or from its file if that is not there."""
    task = Task(number=number, source=source_of(row), seen=_seen(row), row=row.id, archive=row.archived)
    # One transaction for a source: a half-made index would look whole.
    with store.imports.batch() as tx:
        if not tx.rewind(row):
            return
        chunks = reread(task, reader, find, _bytes(store, row)) if row.archived else pump(task, reader, find)
        for chunk in chunks:
            chunk.cursor = row.cursor
            chunk.head, chunk.tail = row.head, row.tail
            chunk.head_size = row.head_size
            writer.write(tx, [(task, chunk)])
            del chunk


def _seen(row: SourceRow) -> Seen:
    return Seen(row.device or 0, row.inode or 0, row.size, row.modified_at or 0)


def _bytes(store: Store, row: SourceRow) -> Iterator[bytes]:
    for _, size, data in store.imports.pieces(row.id):
        yield archive.decompress(data, size)


def _archive_finder(store: Store, rows: Iterable[SourceRow]) -> Find:
    threads: dict[str, SourceRow] = {}
    for row in rows:  # of several files of a conversation the first one is its own
        if row.thread is not None:
            threads.setdefault(row.thread, row)

    def find(thread: str) -> Iterator[bytes] | None:
        row = threads.get(thread)
        return None if row is None else _split(_bytes(store, row))

    return find


def _split(chunks: Iterator[bytes]) -> Iterator[bytes]:
    for data in chunks:  # pieces end at lines, but for lines that are longer than a piece
        yield from data.split(b"\n")
