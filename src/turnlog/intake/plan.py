"""What there is to read: sources on disk against sources in the ledger (formats and places are the readers' matter)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from turnlog.harness.reading import Reader, Source, SourceKind, Trouble
from turnlog.intake.pump import HEAD, MERGED, Seen, Task, fingerprint, see
from turnlog.ledger import Store
from turnlog.ledger.imports import SourceRow


class Plan(msgspec.Struct):
    """What an import has to do.

    ``touched`` are sources without anything new of which the file system says something else; ``replaced`` rows whose
    path another file has now; ``missing`` rows whose file is gone; ``failed`` sources that cannot even be looked at;
    ``readable`` rows that can be looked at again; ``threads`` where each conversation's own file is.
    """

    tasks: list[Task] = []
    touched: list[tuple[SourceRow, Seen]] = []
    replaced: list[SourceRow] = []
    missing: list[SourceRow] = []
    failed: list[tuple[Source, SourceRow | None, Trouble]] = []
    readable: list[SourceRow] = []
    threads: dict[str, Source] = {}
    files: int = 0
    bytes: int = 0

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.tasks or self.touched or self.replaced or self.missing or self.failed or self.readable)


def make_plan(
    store: Store, readers: Iterable[Reader], variables: Mapping[str, str], roots: Sequence[Path], *, archive: bool
) -> Plan:
    """Compare the disk with the ledger: O(sources) system calls, and a few KB read of each source that changed.

    Where nothing changed, that is seen from what the ledger knows of the files alone.
    """
    found: dict[str, Source] = {}
    places: list[Path] = []
    unlisted: list[tuple[str, str, str]] = []
    for reader in readers:
        found |= {source.path: source for source in reader.discover(variables, roots)}
        places += roots or reader.usual(variables)
        unlisted += [(reader.provider, *each) for each in reader.unlisted()]
    plan = Plan(files=len(found))
    marks = store.imports.marks()
    changed = [source for path, source in found.items() if _differs(source, marks.get(path))]
    shut = store.imports.unreadable()
    within = _within(places)
    lost = any(within(path) and _is_gone(path) for path in marks.keys() - found.keys())
    if not (changed or unlisted or shut or lost):
        return plan
    rows = {row.path: row for row in store.imports.sources()}
    for path, (provider, reason) in {path: (provider, reason) for provider, path, reason in unlisted}.items():
        folder = os.path.isdir(path)  # noqa: PTH112 - raises nothing
        trouble = Trouble("unreadable_folder" if folder else "unreadable_source", 0, 0, reason)
        plan.failed.append((Source(provider, path, "rows"), rows.get(path), trouble))
    gone = [row for path, row in rows.items() if path not in found and within(path) and _is_gone(path)]
    moved = {row.head: row for row in gone if row.head is not None}
    for source in sorted(changed, key=lambda each: (each.rank, each.path)):
        _look(store, plan, source, rows.get(source.path), moved, archive=archive)
    taken = {task.row for task in plan.tasks}
    plan.missing += [row for row in gone if row.missing_at is None and row.id not in taken]
    failed = {source.path for source, _, _ in plan.failed}
    plan.readable = [row for row in rows.values() if row.id in shut and within(row.path) and row.path not in failed]
    if plan.tasks:
        plan.threads = _threads(found.values(), rows.values())
    return plan


def _differs(source: Source, mark: tuple[int | None, int | None, int, int | None] | None) -> bool:
    """Tell whether a source is new, or is not as it was when it was read."""
    if mark is None:
        return True
    try:
        seen = see(source)
    except OSError:
        return True
    return mark != (seen.device, seen.inode, seen.size, seen.modified)


def _threads(found: Iterable[Source], rows: Iterable[SourceRow]) -> dict[str, Source]:
    """Return where each conversation's own file is: of several the first found, else one that was read before."""
    threads: dict[str, Source] = {}
    for source in found:
        if source.thread is not None:
            threads.setdefault(source.thread, source)
    for row in rows:
        if row.thread is not None and row.thread not in threads and row.missing_at is None:
            threads[row.thread] = source_of(row)
    return threads


def source_of(row: SourceRow) -> Source:
    """Return a source as it was found when it was read."""
    return Source(row.provider, row.path, msgspec.convert(row.kind, SourceKind), row.thread)


def _is_gone(path: str) -> bool:
    """Tell whether nothing is there; what cannot be looked at may be."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _within(places: Iterable[Path]) -> Callable[[str], bool]:
    """Return what tells whether a path is one of the places that were looked at, or lies below one."""
    names = {str(each) for place in places for each in (place.absolute(), place.resolve())}
    folders = tuple(name if name.endswith("/") else f"{name}/" for name in names)
    return lambda path: path in names or path.startswith(folders)


def _look(
    store: Store, plan: Plan, source: Source, row: SourceRow | None, moved: Mapping[str, SourceRow], *, archive: bool
) -> None:
    try:
        seen = see(source)
        if row is not None and _same(row, seen):
            return
        old = row
        if row is not None and row.read_to and source.kind != "rows" and not _continues(source, row):
            plan.replaced.append(row)
            row = None
        if old is None and moved:
            row = _former(source, moved)
    except OSError as error:
        plan.failed.append((source, row, Trouble("unreadable_source", 0, 0, error.strerror or "unreadable")))
        return
    if row is not None and source.kind == "jsonl" and seen.size == row.read_to and row.path == source.path:
        plan.touched.append((row, seen))
        return
    plan.tasks.append(_task(store, len(plan.tasks), source, seen, row, archive=archive))
    plan.bytes += max(0, seen.size - (row.read_to if row is not None and source.kind == "jsonl" else 0))


def _task(store: Store, number: int, source: Source, seen: Seen, row: SourceRow | None, *, archive: bool) -> Task:
    if row is None:
        return Task(number=number, source=source, seen=seen, archive=archive)
    piece = store.imports.last_piece(row.id) if row.archived else None
    return Task(
        number=number,
        source=source,
        seen=seen,
        row=row.id,
        start=row.read_to,
        state=row.state,
        cursor=row.cursor,
        piece=piece if piece is not None and piece[1] < MERGED else None,
        archive=row.archived,
    )


def _same(row: SourceRow, seen: Seen) -> bool:
    return row.missing_at is None and (row.device, row.inode, row.size, row.modified_at) == (
        seen.device,
        seen.inode,
        seen.size,
        seen.modified,
    )


def _continues(source: Source, row: SourceRow) -> bool:
    """Tell whether a file still begins with what was read of it: the same first bytes, and the same before its end."""
    return fingerprint(source, row.head_size, row.read_to) == (row.head, row.tail)


def _former(source: Source, moved: Mapping[str, SourceRow]) -> SourceRow | None:
    """Return the row of a file that is gone from its path and lies here now (renamed, archived, compressed)."""
    if source.kind == "rows":
        return None
    for size in {row.head_size for row in moved.values()} | {HEAD}:
        prints = fingerprint(source, size, size)
        row = moved.get(prints[0]) if prints is not None else None
        if row is not None and row.provider == source.provider and _continues(source, row):
            return row
    return None


def by_worker(tasks: Sequence[Task], workers: int) -> Iterator[list[Task]]:
    """Yield the tasks in shares, the largest files first in each, so that all workers end at about the same time."""
    shares: list[list[Task]] = [[] for _ in range(workers)]
    loads = [0] * workers
    for task in sorted(tasks, key=lambda each: -each.seen.size):
        lightest = loads.index(min(loads))
        shares[lightest].append(task)
        loads[lightest] += task.seen.size + 1
    yield from shares
