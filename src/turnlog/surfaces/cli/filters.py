"""What the words behind --task, --wave, --project, --provider and --caller name.

A word that names nothing is refused, as ``bind`` and ``run`` refuse it: to a script, no rows would look like no cost.
What exists and has nothing in it is an empty answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, NamedTuple

from turnlog.errors import InvalidError, MissingError
from turnlog.surfaces.cli.work import resolve

if TYPE_CHECKING:
    from turnlog.api import Ledger

_EXACT: Final = ("id", "identifier", "external_id", "slug")
"""Members by which a filter of the ledger knows work, letter by letter."""


class Narrowed(NamedTuple):
    """What to filter by; None = not asked for."""

    task: str | None = None
    wave: str | None = None
    project: str | None = None


def narrowed(
    ledger: Ledger,
    *,
    task: str | None = None,
    wave: str | None = None,
    project: str | None = None,
    places: Callable[[], Iterable[str]] | None = None,
) -> Narrowed:
    """Return what the words of a person mean to the ledger's filters, in any spelling that ``work`` takes.

    ``places``: a project may also be one of these repositories or folders, by its path or last name; without it only a
    project of work. Raises MissingError for a word that names nothing, InvalidError for one that names several. O(1)
    each; O(places) with a project.
    """
    return Narrowed(
        task=None if task is None else _work(ledger, "task", task),
        wave=None if wave is None else _work(ledger, "wave", wave),
        project=None if project is None else _project(ledger, project, places),
    )


def is_place(word: str, place: str) -> bool:
    """Tell whether a word names a repository or folder: by its path, or the last name of it."""
    place = place.rstrip("/")
    return word.rstrip("/") in {place, place.rpartition("/")[2]}


def provider_filter(ledger: Ledger, word: str | None) -> str | None:
    """Return a provider's name: one that turnlog knows, or one that the ledger holds conversations of.

    Raises InvalidError.
    """
    from turnlog.intake import PROVIDERS

    if word is None or word in PROVIDERS or ledger.sessions(provider=word, all=True, limit=1):
        return word
    raise InvalidError(f"no provider {word[:80]!r}", hint=f"choose one of {', '.join(PROVIDERS)}")


def known_caller(ledger: Ledger, word: str) -> None:
    """Raise MissingError for what is neither an input nor a session."""
    if ledger.session(word) is None and ledger.session_for_artifact(word) is None:
        raise MissingError(f"no input or session {word[:80]!r}", hint="`turnlog inputs --json` has their ids whole")


def _work(ledger: Ledger, kind: str, word: str) -> str:
    try:
        found = resolve(ledger, kind, word)
    except InvalidError:
        if not any(_names(each, word) for each in _all(ledger, kind)):
            raise
        return word  # all those that bear it
    read: dict[str, Callable[[str], object]] = {"task": ledger.task, "wave": ledger.wave, "project": ledger.project}
    return word if _names(read[kind](found), word) else found


def _all(ledger: Ledger, kind: str) -> Sequence[object]:
    if kind == "task":
        return ledger.tasks(all=True, limit=None)
    return ledger.waves(all=True, limit=None) if kind == "wave" else ledger.projects(all=True, limit=None)


def _names(record: object, word: str) -> bool:
    return word in {getattr(record, name, None) for name in _EXACT}


def _project(ledger: Ledger, word: str, places: Callable[[], Iterable[str]] | None) -> str:
    if places is None:
        return _work(ledger, "project", word)
    known = set(places())
    if any(is_place(word, each) for each in known):
        return word
    try:
        return _work(ledger, "project", word)
    except MissingError as error:
        names = sorted({each.rstrip("/").rpartition("/")[2] for each in known})
        near = get_close_matches(word, names, n=1, cutoff=0.6)
        guess = f"did you mean {near[0]}? " if near else ""
        lists = "`turnlog usage project` lists repositories, `turnlog work project list` planned ones"
        raise MissingError(error.message, hint=error.hint if "did you mean" in error.hint else guess + lists) from None
