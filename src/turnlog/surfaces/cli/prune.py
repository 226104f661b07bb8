"""``turnlog prune``: old transcripts, or one conversation, out of the ledger; what they used stays counted."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from turnlog.errors import CancelledError, InvalidError
from turnlog.surfaces.cli.ask import at_terminal, forget_typed
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.output import plain, print_object
from turnlog.surfaces.cli.when import bound, instant
from turnlog.surfaces.cli.words import note, one_line, plural

if TYPE_CHECKING:
    from turnlog.api import Ledger
    from turnlog.model import Session
    from turnlog.queries.retention import Compacted, Progress, Pruned

_SHORT: Final = re.compile(r"^\s*\d+(\.\d+)?\s*(ms|s|m|h)?\s*$", re.ASCII)
_LINE: Final = 4096


def prune(
    cli: Cli,
    older_than: Annotated[
        str | None, typer.Option(metavar="T", help="Not heard of since: 90d, 26w, a day like 2026-03-01, RFC 3339.")
    ] = None,
    provider: Annotated[str | None, typer.Option(metavar="NAME", help="Only claude, codex or opencode.")] = None,
    session: Annotated[str | None, typer.Option(metavar="SESSION", help="Only this conversation.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="With --session: its receipts, too; what it used is kept as sums.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be dropped.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> int:
    """Drop transcripts and archived bytes of old conversations. Receipts stay, so no total changes.

    What was dropped is not imported again. With --session and --all one whole conversation goes; its inputs and what
    it used stay.

    Example: turnlog prune --older-than 90d --dry-run
    """
    from turnlog.intake import PROVIDERS

    if older_than is None and session is None:
        raise InvalidError("prune what?", hint="name --older-than 90d, or --session SESSION")
    if everything and (session is None or older_than is not None or provider is not None):
        raise InvalidError("--all removes one whole conversation", hint="name it with --session, and nothing else")
    if provider is not None and provider not in PROVIDERS:
        raise InvalidError(f"no provider {provider!r}", hint=f"choose one of {', '.join(PROVIDERS)}")
    before = None if older_than is None else _past(older_than)
    with cli.ledger(write=not dry_run) as ledger:
        only = None if session is None else ledger.find_session(session)
        wanted = _Wanted(ledger, only, before, provider, everything)
        if dry_run:
            _show(cli, wanted.prune(dry_run=True), None)
            return 0
        if not yes:
            _confirm(wanted)
        size = ledger.size()
        with _bar(cli) as progress:
            done = wanted.prune(progress=progress)
        compacted = None
        if done.sources or done.receipts:
            compacted = ledger.compact(before=size)
    _show(cli, done, compacted, dry_run=False)
    return 0


class _Wanted:
    """What was asked for."""

    def __init__(
        self, ledger: Ledger, session: Session | None, before: int | None, provider: str | None, everything: bool
    ) -> None:
        self._ledger = ledger
        self.session = session
        self._before = before
        self._provider = provider
        self.everything = everything

    def prune(self, *, dry_run: bool = False, progress: Callable[[Progress], None] | None = None) -> Pruned:
        if self.everything and self.session is not None:
            return self._ledger.prune_session(self.session.id, dry_run=dry_run, progress=progress)
        return self._ledger.prune_transcripts(
            before=self._before,
            provider=self._provider,
            session=None if self.session is None else self.session.id,
            dry_run=dry_run,
            progress=progress,
        )


def _past(text: str) -> int:
    """Return unix ms. Elsewhere ``6m`` are minutes: nobody means those here. Raises InvalidError."""
    if text.strip().isdecimal():
        bound(text.strip())  # a day without dashes is one, another number has no unit
    elif _SHORT.match(text):
        raise InvalidError(f"{text!r} is less than a day", hint="write days, weeks, or a day: 180d, 26w, 2026-03-01")
    return instant(text.strip())


def _confirm(wanted: _Wanted) -> None:
    """Tell what would be dropped and ask. Raises CancelledError, and InvalidError where nobody can be asked."""
    if not at_terminal():
        raise InvalidError("what is pruned is gone for good", hint="confirm with --yes, or look first with --dry-run")
    told = wanted.prune(dry_run=True)
    if not (told.sources or told.receipts):
        return
    what = _words(told)
    if wanted.everything and wanted.session is not None:
        what += f": all of “{one_line(wanted.session.title, 60)}” but what it used"
    forget_typed(sys.stdin.fileno())
    print(f"This drops {what}, for good. Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    answer = os.read(sys.stdin.fileno(), _LINE).decode(errors="replace").strip().lower()
    if answer not in {"y", "yes"}:
        raise CancelledError("nothing was dropped", hint="--dry-run shows what would be")


def _words(told: Pruned) -> str:
    parts = [f"{plural(told.sources, 'source')} of {plural(told.sessions, 'conversation')}"]
    if told.sources:
        parts.append(f"{told.bytes:,} archived bytes")
        parts.append(f"{plural(told.passages, 'passage')} of text")
    if told.receipts:
        parts.append(plural(told.receipts, "receipt"))
    return ", ".join(parts)


def _show(cli: Cli, told: Pruned, compacted: Compacted | None, *, dry_run: bool = True) -> None:
    if cli.json:
        members: dict[str, Any] = plain(told)
        driven = members.pop("driven")
        print_object(
            pruned=members,
            dry_run=dry_run,
            driven=driven,
            size=None if compacted is None else plain(compacted),
        )
        return
    if not (told.sources or told.receipts):
        print("nothing to prune")
    else:
        print(f"{'would drop' if dry_run else 'dropped'} {_words(told)}")
    if told.driven:
        note(f"{plural(len(told.driven), 'conversation')} left alone: being driven")
    if compacted is not None:
        print(f"the ledger took {compacted.before:,} bytes and takes {compacted.after:,}")
        if compacted.problem:
            note(f"its file did not shrink ({one_line(compacted.problem)}); the space is used for what comes next")


@contextmanager
def _bar(cli: Cli) -> Iterator[Callable[[Progress], None] | None]:
    """Show how far it is on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty() or cli.json:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = [TextColumn("pruning"), BarColumn(), MofNCompleteColumn(), TextColumn("sources")]
    console = Console(stderr=True, no_color=not cli.color_err)
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("prune", total=None)
        yield lambda at: bar.update(task, total=at.sources_total, completed=at.sources)
