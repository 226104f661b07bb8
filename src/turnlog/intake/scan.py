"""Usage straight from the programs' files, before anything was imported: a parallel quick look, nothing is written.

Files are looked at in several processes, because decoding holds the interpreter; each adds up what only it has seen.
What they give comes together here, where copies are told from originals by the rule that the importer has too.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from turnlog.harness.quick import Look
from turnlog.harness.reading import Find, Reader, Source, Trouble
from turnlog.intake.scan_jobs import Asked, Crew, uncollected
from turnlog.intake.scan_sums import gathered
from turnlog.usage.buckets import Bucket
from turnlog.usage.prices import Book


class Located(msgspec.Struct, frozen=True):
    """A problem with its place. ``session`` is the session id that an import gives; None where nothing tells."""

    path: str
    session: str | None
    trouble: Trouble


class Conversation(msgspec.Struct, frozen=True):
    """What the files say of a conversation: who had it, the provider's id of it, where it was (None = not told)."""

    provider: str
    native: str
    cwd: str | None = None


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """What was used, by session id (``<provider>:<native id>``), and what it rests on.

    ``buckets`` are what roll-ups hold after an import of the same files. ``files`` and ``bytes`` were looked through;
    ``troubles`` are what could not be used, ``unlisted`` folders that could not be looked into (path, reason). ``book``
    is what estimates were made with.
    """

    conversations: dict[str, Conversation]
    buckets: dict[str, list[Bucket]]
    files: int
    bytes: int
    troubles: tuple[Located, ...]
    unlisted: tuple[tuple[str, str], ...]
    book: Book | None = None


class Found(msgspec.Struct, frozen=True):
    """What there is to look at: sources, their sizes (bytes), and folders that could not be listed (path, reason)."""

    sources: list[Source]
    sizes: list[int]
    unlisted: list[tuple[str, str]]

    @property
    def bytes(self) -> int:
        """How many bytes the sources have."""
        return sum(self.sizes)


class Scanning:
    """A look that has begun. Other processes work on it from now on; this one may do something else first."""

    def __init__(self, found: Found, crew: Crew) -> None:
        self._found = found
        self._crew = crew

    def result(self) -> Scan:
        """Help until all is looked through, and return it. To be asked once."""
        with uncollected():
            sources = self._found.sources
            looks, parts = self._crew.finish()
            loose = [
                (source.provider, native, kind, at)
                for source, look in zip(sources, looks, strict=True)
                for native, kind, at in look.loose
            ]
            sums = gathered(parts, loose, self._crew.book)
            return Scan(
                conversations=_conversations(sources, looks, sums),
                buckets={f"{provider}:{native}": buckets for (provider, native), buckets in sums.items()},
                files=len(sources),
                bytes=sum([look.bytes for look in looks]),
                troubles=tuple(_located(sources, looks)),
                unlisted=tuple(self._found.unlisted),
                book=self._crew.book,
            )


def discover(readers: Iterable[Reader], variables: Mapping[str, str], roots: Sequence[Path] = ()) -> Found:
    """Find everything that the readers find, below ``roots`` or in the usual places: O(entries), nothing is read."""
    sources: list[Source] = []
    unlisted: list[tuple[str, str]] = []
    for reader in readers:
        sources += reader.discover(variables, roots)
        unlisted += reader.unlisted()
    return Found(sources, [_size(source.path) for source in sources], unlisted)


@contextlib.contextmanager
def looking(found: Found, *, prices: Asked | None = None, jobs: int | None = None) -> Iterator[Scanning]:
    """Begin to look through sources in other processes, and end these whatever happens.

    ``jobs`` processes with this one (default: one per processor). ``prices`` gives what estimates are made with, in
    each process; without it nothing is estimated. One pass over the bytes, O(calls) memory. Problems are located, never
    raised. Where no process can be forked (other threads run: they may hold locks) this one does it all.
    """
    with uncollected():
        crew = Crew(found.sources, found.sizes, _finder(found.sources), prices, jobs)
    try:
        yield Scanning(found, crew)
    finally:
        crew.close()


def scan_usage(
    readers: Iterable[Reader],
    variables: Mapping[str, str],
    roots: Sequence[Path] = (),
    *,
    prices: Asked | None = None,
    jobs: int | None = None,
) -> Scan:
    """Look through everything that the readers find: ``discover``, then ``looking``, in one."""
    with looking(discover(readers, variables, roots), prices=prices, jobs=jobs) as scanning:
        return scanning.result()


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - called for thousands of files
    except OSError:
        return 0


def _finder(sources: Iterable[Source]) -> Find:
    threads: dict[str, Source] = {}

    def find(thread: str) -> Iterator[bytes] | None:
        from turnlog.intake.pump import whole_lines  # few conversations refer to another one

        if not threads:
            for each in sources:  # of several files of a conversation the first one is its own
                if each.thread is not None and each.kind != "rows":
                    threads.setdefault(each.thread, each)
        source = threads.get(thread)
        return None if source is None else whole_lines(source)

    return find


def _conversations(
    sources: Sequence[Source], looks: Sequence[Look], counted: Iterable[tuple[str, str]]
) -> dict[str, Conversation]:
    cwds: dict[tuple[str, str], str] = {}
    for source, look in zip(sources, looks, strict=True):
        for native, cwd in look.cwds.items():
            cwds.setdefault((source.provider, native), cwd)
    found = {key: cwds.get(key) for key in counted} | cwds
    return {f"{provider}:{native}": Conversation(provider, native, cwd) for (provider, native), cwd in found.items()}


def _located(sources: Sequence[Source], looks: Sequence[Look]) -> Iterator[Located]:
    for source, look in zip(sources, looks, strict=True):
        for trouble in look.troubles:
            native = trouble.session or source.thread
            yield Located(source.path, None if native is None else f"{source.provider}:{native}", trouble)
