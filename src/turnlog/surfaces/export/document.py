"""What the renderers are given, and what they share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

from turnlog.clock import to_rfc3339
from turnlog.queries.transcript import Entry

SCHEMA_VERSION: Final = 1

ROLE_NAMES: Final[Mapping[str, str]] = {
    "user": "User",
    "assistant": "Assistant",
    "reasoning": "Reasoning",
    "tool_input": "Tool call",
    "tool_output": "Tool result",
    "note": "Note",
}


class Link(NamedTuple):
    """A related conversation. ``inside``: it is a section of the same document; ``turn`` spawned it."""

    session: str
    title: str
    relation: str
    turn: str | None
    inside: bool


class Section(NamedTuple):
    """One conversation: facts for its head, then what was said.

    ``record`` are its facts as JSON members and ``totals`` its usage, ``usage`` the same in lines for people;
    ``parent`` is the section that it belongs to.
    """

    session: str
    title: str
    facts: tuple[tuple[str, str], ...]
    record: dict[str, Any]
    entries: Iterable[Entry]
    usage: tuple[str, ...]
    totals: dict[str, Any]
    links: tuple[Link, ...] = ()
    origin: Link | None = None
    parent: str | None = None


class Document(NamedTuple):
    """A conversation and its subagents, the first section being its own. Texts are as they shall be shown.

    ``remarks`` say what the reader must know.
    """

    sections: Iterable[Section]
    redacted: bool
    remarks: tuple[str, ...] = ()


Renderer = Callable[[Document], Iterator[str]]

RENDERERS: Final = ("md", "html", "jsonl")
"""Formats; each is a module's ``render``."""

_MODULES: Final = {"md": "markdown", "html": "html", "jsonl": "jsonl"}


def renderer(form: str) -> Renderer:
    """Return what renders a format: a document to pieces of text."""
    found: Renderer = import_module(f"turnlog.surfaces.export.{_MODULES[form]}").render
    return found


def anchor(session: str) -> str:
    """Return a name for the place of a conversation inside a document."""
    return f"s-{hashlib.sha256(session.encode()).hexdigest()[:12]}"


def when(at: int | None) -> str:
    """Return an instant to the second, UTC; empty when it is unknown."""
    if at is None:
        return ""
    text = to_rfc3339(at)
    return f"{text[:-5].replace('T', ' ')} UTC" if text.endswith("Z") else text


def redaction(document: Document) -> str:
    """Return what a reader must know of secrets in the document."""
    if document.redacted:
        return "Secrets that were recognised are replaced by [redacted]; others may have stayed."
    return "Nothing is redacted: this may contain secrets."


def missing(entry: Entry) -> str:
    """Return what stands in the place of words that cannot be had."""
    return f"[{entry.problem or 'not recorded'}]"


def placed(section: Section) -> Iterator[Entry | Link]:
    """Yield what was said, and each subagent behind the turn that spawned it; those of no known turn at the end."""
    waiting: dict[str | None, list[Link]] = {}
    for link in section.links:
        waiting.setdefault(link.turn, []).append(link)
    turn: str | None = None
    for entry in section.entries:
        if entry.turn is not None and entry.turn != turn:
            if turn is not None:
                yield from waiting.pop(turn, ())
            turn = entry.turn
        yield entry
    for links in waiting.values():
        yield from links
