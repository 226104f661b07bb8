"""Importing what programs leave on disk."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from turnlog.api.base import Part
from turnlog.errors import InvalidError
from turnlog.intake import PROVIDERS, readers

if TYPE_CHECKING:
    from turnlog.intake.importer import Imported, Progress
    from turnlog.intake.scan import Scanning
    from turnlog.queries.reporting import Seen


class Imports(Part):
    """Importing what programs leave on disk."""

    def import_histories(
        self,
        *,
        provider: str | None = None,
        roots: Sequence[Path] = (),
        archive: bool = True,
        progress: Callable[[Progress], None] | None = None,
    ) -> Imported:
        """Read what is new in the histories of OpenCode, Codex and Claude Code; nothing is written there.

        ``roots``: folders or files to read instead of the programs' usual places. ``archive``: keep the bytes of new
        sources and index their text. Doing it twice changes nothing; problems are counted in the answer, not raised.
        Cost: O(files) system calls and O(new bytes).
        """
        from turnlog.intake.importer import import_sources

        done = import_sources(self._store, readers(_known(provider)), roots=roots, keep=archive, progress=progress)
        self._fold(done)
        return done

    def reparse_archive(
        self, *, provider: str | None = None, progress: Callable[[Progress], None] | None = None
    ) -> Imported:
        """Read the archived bytes again with today's decoders: new receipts are added, text is indexed anew."""
        from turnlog.intake.importer import reparse

        done = reparse(self._store, readers(_known(provider)), progress=progress)
        self._fold(done)
        return done

    def follow_histories(
        self,
        *,
        provider: str | None = None,
        roots: Sequence[Path] = (),
        archive: bool = True,
        stop: threading.Event | None = None,
    ) -> Iterator[Imported]:
        """Import, and again whenever something changes, until ``stop`` is set; yields what each import did."""
        from turnlog.intake.watch import changes

        places = roots or [place for each in readers(_known(provider)) for place in each.usual(os.environ)]
        for _ in changes(places, stop):
            yield self.import_histories(provider=provider, roots=roots, archive=archive)

    def catch_up(
        self, *, most: int | None = None, progress: Callable[[Progress], None] | None = None
    ) -> tuple[Imported | None, int]:
        """Import what is new, unless there are more than ``most`` bytes of it; then nothing is done.

        Returns what the import did (None = nothing) and how many bytes are left to read (0 = the ledger is up to date).
        """
        from turnlog.intake.plan import make_plan

        found = readers()
        plan = make_plan(self._store, found, os.environ, (), archive=True)
        if most is not None and plan.bytes > most:
            return None, plan.bytes
        if plan.idle:
            return None, 0
        from turnlog.intake.importer import import_sources

        done = import_sources(self._store, found, progress=progress, plan=plan)
        self._fold(done)
        return done, 0

    def look_at_histories(self, begun: Scanning | None = None, *, projects: bool = True) -> Seen:
        """Count what the histories on disk tell of usage, in parallel and without writing anything.

        For the time until they are imported: give it to ``usage_report``. One pass over all their bytes. ``begun`` is a
        look that others work on already (``turnlog.intake.scan.looking``). ``projects``: find out which repository each
        conversation belongs to, O(folders) system calls.
        """
        # What a report needs is imported before this process helps: the others are at work already.
        from turnlog.intake.projects import project
        from turnlog.ledger.rollups import Facts
        from turnlog.queries import usage  # noqa: F401 - as said
        from turnlog.queries.pricing import find_book
        from turnlog.queries.reporting import Seen
        from turnlog.usage.report import Prices

        if begun is None:
            from turnlog.intake.scan import scan_usage

            scan = scan_usage(readers(), os.environ, prices=find_book)
        else:
            scan = begun.result()
        facts = {
            name: Facts(
                name, None, each.provider, each.native, (project(each.cwd, None) if projects else None) or each.cwd
            )
            for name, each in scan.conversations.items()
        }
        problems = tuple(
            (each.session, facts[each.session].provider or "" if each.session in facts else "")
            for each in scan.troubles
            if each.trouble.usage
        )
        prices = None if scan.book is None else Prices(scan.book.source, scan.book.version)
        return Seen(scan.buckets, facts, problems, prices)

    def _fold(self, done: Imported) -> None:
        """Make the sums of reports now, so that the first report after an import need not."""
        from turnlog.queries import pricing, rollup

        if done.new:
            rollup.refresh(self._store, pricing.open_book)


def _known(provider: str | None) -> str | None:
    if provider is not None and provider not in PROVIDERS:
        raise InvalidError(f"no provider {provider!r}", hint=f"choose one of {', '.join(PROVIDERS)}")
    return provider
