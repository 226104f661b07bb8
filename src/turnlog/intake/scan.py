"""Usage straight from the programs' files, before anything was imported: a parallel quick look, nothing is written.

Files are looked at in several processes, because decoding holds the interpreter; their calls come together here, where
copies are told from originals by the rule that the importer has too, and are summed as roll-ups are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from turnlog.harness.quick import Look
from turnlog.harness.reading import Find, Reader, Source, Trouble
from turnlog.intake.pump import whole_lines
from turnlog.intake.scan_jobs import look_at_all, uncollected
from turnlog.intake.scan_sums import Sheaf, Warm
from turnlog.usage.buckets import Bucket
from turnlog.usage.prices import Book

Asked = Callable[[], Book | None]
"""Gives the price data, or None where there is none."""


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
    ``troubles`` are what could not be used, ``unlisted`` folders that could not be looked into (path, reason).
    """

    conversations: dict[str, Conversation]
    buckets: dict[str, list[Bucket]]
    files: int
    bytes: int
    troubles: tuple[Located, ...]
    unlisted: tuple[tuple[str, str], ...]


def scan_usage(
    readers: Sequence[Reader],
    variables: Mapping[str, str],
    roots: Sequence[Path] = (),
    *,
    prices: Asked | None = None,
    jobs: int | None = None,
) -> Scan:
    """Look through everything that the readers find, below ``roots`` or in the usual places.

    One pass over the bytes in ``jobs`` processes (default: one per processor), O(calls) memory. Problems are located,
    never raised. ``prices`` gives what estimates are made with; without it nothing is estimated.
    """
    with uncollected():
        return _scan(readers, variables, roots, prices, jobs)


def _scan(
    readers: Sequence[Reader],
    variables: Mapping[str, str],
    roots: Sequence[Path],
    prices: Asked | None,
    jobs: int | None,
) -> Scan:
    sources: list[Source] = []
    unlisted: list[tuple[str, str]] = []
    for reader in readers:
        sources += reader.discover(variables, roots)
        unlisted += reader.unlisted()
    warm = Warm(prices)
    looks = look_at_all(sources, _finder(sources), jobs=jobs, each=warm.look)
    sheaf = Sheaf(warm.book)
    for source, look in zip(sources, looks, strict=True):
        sheaf.take(source.provider, look.calls)
        for native, kind, at in look.loose:
            sheaf.loose(source.provider, native, kind, at)
    sums = sheaf.sums()
    return Scan(
        conversations=_conversations(sources, looks, sums),
        buckets={f"{provider}:{native}": buckets for (provider, native), buckets in sums.items()},
        files=len(sources),
        bytes=sum(look.bytes for look in looks),
        troubles=tuple(_located(sources, looks)),
        unlisted=tuple(unlisted),
    )


def _finder(sources: Iterable[Source]) -> Find:
    threads = {source.thread: source for source in sources if source.thread is not None and source.kind != "rows"}

    def find(thread: str) -> Iterator[bytes] | None:
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
