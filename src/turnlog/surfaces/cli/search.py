"""``turnlog search``: full text over what was said, with what is new on disk read first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnlog.errors import InvalidError, MissingError, UnavailableError
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.output import plain, print_object
from turnlog.surfaces.cli.search_fresh import current
from turnlog.surfaces.cli.words import local_time, note, one_line, plural, report_failure

if TYPE_CHECKING:
    from turnlog.api import Ledger
    from turnlog.queries.search import Hit, Results

PROBLEMS_EXIT = 3


def search(
    cli: Cli,
    query: Annotated[list[str], typer.Argument(metavar="QUERY", help='Words; "a phrase"; begin*; -without; OR.')],
    provider: Annotated[str | None, typer.Option(metavar="NAME", help="Only this provider's.")] = None,
    role: Annotated[
        str | None,
        typer.Option(metavar="ROLE", help="user, assistant, reasoning, tool (tool_input, tool_output) or note."),
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="WHEN", help="Since a day, 7d, or RFC 3339.")] = None,
    session: Annotated[str | None, typer.Option(metavar="SESSION", help="Only in this conversation.")] = None,
    project: Annotated[str | None, typer.Option(metavar="FOLDER", help="Only in this repository or folder.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most N.")] = 20,
    cursor: Annotated[str | None, typer.Option(metavar="NEXT", help="Continue (`next`).")] = None,
    no_redact: Annotated[bool, typer.Option("--no-redact", help="Show secrets, too.")] = False,
    no_import: Annotated[bool, typer.Option("--no-import", help="Do not read new history first.")] = False,
) -> int:
    """Find what was said: prompts, answers, tool input and output. All words must be there; best hits come first.

    Example: turnlog search '"time zone" -utc OR daylight*' --role user --since 30d
    """
    from turnlog.intake import PROVIDERS
    from turnlog.surfaces.cli.when import instant

    if provider is not None and provider not in PROVIDERS:
        raise InvalidError(f"no provider {provider!r}", hint=f"choose one of {', '.join(PROVIDERS)}")
    start = None if since is None else instant(since)
    # A page that continues a search is one of what there was at its first.
    ledger, left = current(cli, read_disk=not no_import and cursor is None)
    with ledger:
        found = ledger.search(
            " ".join(query),
            provider=provider,
            role=role,
            since=start,
            session=None if session is None else ledger.find_session(session).id,
            project=project,
            limit=limit,
            cursor=cursor,
            redact=not no_redact,
        )
        kept = ledger.text_kept()
        unknown = project is not None and not (found.hits or left or _names_place(ledger, project))
        pruned = ledger.text_pruned()
    if not found.hits:
        _explain_nothing(kept, pruned, reading=left > 0, team=_is_teams(cli))
    if unknown:
        raise MissingError(
            f"no repository or folder {(project or '')[:80]!r}", hint="`turnlog usage project` lists them"
        )
    if cli.json:
        print_object(
            hits=[_plain(hit) for hit in found.hits],
            next=found.next,
            ranked=found.ranked,
            problems=list(found.problems),
        )
    else:
        _print(cli, found)
        if kept == "some":
            how = "pushed" if _is_teams(cli) else "imported"
            note(f"some histories were {how} without their text; they are not searched")
    if found.problems:
        what = f"{plural(len(found.problems), 'part')} of the archive cannot be read: {found.problems[0]}"
        return report_failure(what, "`turnlog verify` locates the damage", "corrupt", PROBLEMS_EXIT, as_json=cli.json)
    return 0


def _names_place(ledger: Ledger, word: str) -> bool:
    """Tell whether a search may let conversations through for a folder, its last names, or one above it."""
    word = word.rstrip("/") or word
    return any(each == word or each.endswith(f"/{word}") or each.startswith(f"{word}/") for each in ledger.places())


def _is_teams(cli: Cli) -> bool:
    """Tell whether text comes into the ledger by pushes rather than by imports."""
    return not cli.url.startswith("sqlite:")


def _explain_nothing(kept: str | None, pruned: int | None, *, reading: bool, team: bool) -> None:
    """Raise UnavailableError when nothing was found because there is nothing to search in."""
    if reading and kept in {None, "none"}:
        raise UnavailableError(
            "there is nothing to search yet: history is being imported", hint="`turnlog import` reads it now"
        )
    if team and pruned is None and kept in {None, "none"}:
        raise UnavailableError(
            "there is nothing to search: no text was pushed into this ledger",
            hint="`turnlog ledger push URL --with-archive` sends it along; on its own machine it can be found without",
        )
    if kept is None:
        raise UnavailableError(
            "there is nothing to search: no history was imported", hint="`turnlog import` reads what the programs wrote"
        )
    if kept == "none" and pruned is not None:
        raise UnavailableError(
            f"there is nothing to search: all text was pruned, last on {local_time(pruned)}",
            hint="what is imported from now on can be found",
        )
    if kept == "none":
        raise UnavailableError(
            "there is nothing to search: histories were imported without their text",
            hint="text is kept by `turnlog import` without --no-archive",
        )


def _plain(hit: Hit) -> dict[str, Any]:
    from turnlog.clock import to_rfc3339

    return {**plain(hit), "at": None if hit.at is None else to_rfc3339(hit.at)}


def _print(cli: Cli, found: Results) -> None:
    for hit in found.hits:
        words = (hit.session, hit.role, local_time(hit.at), f"turn {hit.turn}" if hit.turn else "")
        head = "  ".join(one_line(word) for word in words if word)
        print(f"\x1b[1m{head}\x1b[0m" if cli.color else head)
        print(f"  {_marked(hit, color=cli.color)}")
    if not found.hits:
        note("nothing matches")
    if found.ranked == "recent":
        note("very many passages match; the best of those that were recorded last are shown")
    if found.next:
        note(f"more: --cursor {found.next}")


def _marked(hit: Hit, *, color: bool) -> str:
    if hit.snippet is None:
        return "(its text cannot be read)"
    if not color:
        return hit.snippet
    parts, at = [], 0
    for start, end in hit.marks:
        parts.append(f"{hit.snippet[at:start]}\x1b[1;33m{hit.snippet[start:end]}\x1b[0m")
        at = end
    return "".join(parts) + hit.snippet[at:]
