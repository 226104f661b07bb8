"""``turnlog export``: a conversation with its subagents as one document."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from turnlog.errors import InvalidError, UnavailableError
from turnlog.queries.hide import hide
from turnlog.redact import strip_terminal
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.gaps import MEANING
from turnlog.surfaces.cli.output import plain, print_object
from turnlog.surfaces.cli.show_page import cost_line, count_line
from turnlog.surfaces.cli.words import note, one_line, plural, report_failure
from turnlog.surfaces.export import RENDERERS, Document, Link, Section, renderer
from turnlog.surfaces.export.document import when

if TYPE_CHECKING:
    from turnlog.api import Ledger
    from turnlog.model import Session
    from turnlog.queries.transcript import Entry, Kin
    from turnlog.usage.report import UsageRow

PROBLEMS_EXIT: Final = 3
UNTITLED: Final = "Untitled"
_DEEPEST: Final = 20
"""Subagents of subagents; deeper ones are named, not included."""


class _Counted:
    """How much a document has, and what could not be read for it."""

    def __init__(self) -> None:
        self.passages = 0
        self.problems: list[str] = []

    def of(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Pass entries on and count them."""
        for entry in entries:
            self.passages += 1
            if entry.problem is not None:
                self.problems.append(entry.problem)
            yield entry


def export(
    cli: Cli,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Id of a conversation, or its beginning.")],
    form: Annotated[str, typer.Option("--format", metavar="md|html|jsonl", help="What to write.")] = "md",
    no_redact: Annotated[bool, typer.Option("--no-redact", help="Leave secrets in.")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where; else stdout.")] = None,
) -> int:
    """Write what was said in a conversation and in its subagents, with its usage. Secrets are redacted.

    Example: turnlog export 4f1c --format html -o session.html
    """
    if form not in RENDERERS:
        raise InvalidError(f"no format {form!r}", hint=f"choose one of {', '.join(RENDERERS)}")
    counted = _Counted()
    with cli.ledger() as ledger:
        found = ledger.find_session(session)
        document = _document(ledger, found, counted, redact=not no_redact, safe=form != "jsonl")
        pieces = renderer(form)(document)
        if output is None:
            _to_stdout(pieces)
        else:
            _to_file(pieces, output)
    if output is not None and cli.json:
        print_object(path=str(output), session=found.id, format=form, passages=counted.passages, redacted=not no_redact)
    elif output is not None:
        note(f"{one_line(output)}: {plural(counted.passages, 'passage')}{'' if no_redact else ', secrets redacted'}")
    if counted.problems:
        what = f"{plural(len(counted.problems), 'passage')} could not be read: {counted.problems[0]}"
        return report_failure(what, "`turnlog verify` locates damage", "corrupt", PROBLEMS_EXIT, as_json=cli.json)
    return 0


def _document(ledger: Ledger, session: Session, counted: _Counted, *, redact: bool, safe: bool) -> Document:
    kept = ledger.text_kept(session.id)
    untold = {"none": "Its files were imported without their text.", "some": "Some of its files have no text here."}
    return Document(
        sections=_sections(ledger, session, counted, redact=redact, safe=safe),
        redacted=redact,
        remarks=(untold[kept],) if kept in untold else (),
    )


def _sections(ledger: Ledger, session: Session, counted: _Counted, *, redact: bool, safe: bool) -> Iterator[Section]:
    """Yield the conversation and its subagents, each behind the one that spawned it. No conversation comes twice."""
    seen = {session.id}
    waiting: list[tuple[Session, str | None, int]] = [(session, None, 0)]
    while waiting:
        current, parent, depth = waiting.pop()
        origin, children = ledger.kin(current.id)
        links, inside = [], []
        for child in children:
            known = ledger.session(child.session)
            include = child.relation == "subagent" and known is not None and child.session not in seen
            if include and depth < _DEEPEST and known is not None:
                seen.add(child.session)
                inside.append((known, current.id, depth + 1))
            links.append(_link(child, known, inside=child.session in seen))
        waiting += reversed(inside)
        came_from = None
        if origin is not None:
            came_from = _link(origin, ledger.session(origin.session), inside=origin.session in seen, back=True)
        totals = ledger.usage_report("total", session=current.id).totals
        yield Section(
            session=current.id,
            title=_shown(_title(current) or current.id, redact=redact),
            facts=tuple(_facts(current)),
            record=_record(current, redact=redact),
            entries=counted.of(_entries(ledger, current.id, redact=redact, safe=safe)),
            usage=tuple(_usage(totals)),
            totals=_members(totals),
            links=tuple(links),
            origin=came_from,
            parent=parent,
        )


def _record(session: Session, *, redact: bool) -> dict[str, Any]:
    record: dict[str, Any] = plain(session)
    if redact:
        for name in ("title", "ready_summary"):
            record[name] = record[name] and hide(record[name])
    return record


def _title(session: Session | None) -> str | None:
    return session.title if session is not None and session.title != UNTITLED else None


def _link(kin: Kin, session: Session | None, *, inside: bool, back: bool = False) -> Link:
    title = kin.title or _title(session) or kin.session
    relation = kin.relation or "related"
    return Link(kin.session, _shown(title, redact=True), f"{relation} of" if back else relation, kin.turn, inside)


def _facts(session: Session) -> Iterator[tuple[str, str]]:
    facts = (
        ("session", session.id),
        ("provider", session.provider),
        ("model", session.model),
        ("folder", session.cwd),
        ("began", when(session.created_at)),
    )
    return ((name, one_line(value)) for name, value in facts if value)


def _entries(ledger: Ledger, session_id: str, *, redact: bool, safe: bool) -> Iterator[Entry]:
    for entry in ledger.transcript(session_id):
        text = None if entry.text is None else _shown(entry.text, redact=redact, safe=safe)
        name = None if entry.name is None else one_line(entry.name)
        yield msgspec.structs.replace(entry, text=text, name=name)


def _shown(text: str, *, redact: bool, safe: bool = True) -> str:
    clean = strip_terminal(text) if safe else text
    return hide(clean) if redact else clean


def _usage(totals: UsageRow) -> Iterator[str]:
    if not totals.streams and not totals.gaps:
        yield "nothing was reported"
        return
    yield count_line(totals)
    yield cost_line(totals)
    for gap in totals.gaps:
        yield f"≥ {gap.count} × {gap.kind}: {MEANING.get(gap.kind, 'a gap of a kind not known here')}"


def _members(totals: UsageRow) -> dict[str, Any]:
    members: dict[str, Any] = plain(totals)
    return {name: members[name] for name in ("tokens", "calls", "streams", "final_streams", "gaps", "cost")}


def _to_stdout(pieces: Iterable[str]) -> None:
    """Write UTF-8 whatever the locale says; what has no UTF-8 becomes a question mark."""
    buffer = getattr(sys.stdout, "buffer", None)
    for piece in pieces:
        if buffer is None:
            print(piece, end="")
        else:
            buffer.write(piece.encode("utf-8", "replace"))
    sys.stdout.flush()


def _to_file(pieces: Iterable[str], target: Path) -> None:
    """Write a whole file or none: 0600, since what was said is nobody else's business.

    A device or a pipe is written into, and stays what it is; of a link, what it leads to is replaced.
    """
    target = target.expanduser().absolute()
    if target.is_dir() or not target.parent.is_dir():
        raise InvalidError(f"cannot write {target}", hint="name a file in a folder that exists")
    partial = None
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as file:
                for piece in pieces:
                    file.write(piece.encode("utf-8", "replace"))
            return
        target = target.resolve()
        descriptor, partial = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".partial")
        with os.fdopen(descriptor, "wb") as file:
            for piece in pieces:
                file.write(piece.encode("utf-8", "replace"))
        Path(partial).replace(target)
        partial = None
    except OSError as error:
        raise UnavailableError(
            f"cannot write {target}: {error.strerror}", hint="mend its permissions, or name another place"
        ) from error
    finally:
        if partial is not None:
            with contextlib.suppress(OSError):
                Path(partial).unlink()
