"""What a reader of a program's own files gives to the importer: facts, receipts, text, problems, each with its place.

A *source* is a file, or a set of files that is read as one. It is a sequence of bytes in lines, or its reader makes
lines of it (``Rows``: a database, a folder of JSON objects). The importer cuts sources into chunks of whole lines,
archives them, gives each line to the source's decoder and writes what that took from them, all in one transaction; a
decoder that is asked again begins from the state it gave then. Nothing here touches a ledger, and nothing is ever
written where the programs keep their files (promise 8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol

import msgspec

SourceKind = Literal["jsonl", "zst", "rows"]

Role = Literal["user", "assistant", "reasoning", "tool_input", "tool_output", "note"]
ROLES: Final[tuple[Role, ...]] = ("user", "assistant", "reasoning", "tool_input", "tool_output", "note")


class Source(msgspec.Struct, frozen=True):
    """One place to read. ``path`` is absolute; ``thread`` the conversation whose own file its name says it is, if any.

    ``rank`` orders reading: what others refer to (a parent conversation) has the smaller one.
    """

    provider: str
    path: str
    kind: SourceKind
    thread: str | None = None
    rank: int = 0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a source tells of one conversation; None = it does not say. Given again when more is known.

    ``session`` is the provider's id of the conversation (a subagent's: ``<parent>/<agent id>`` where its own is not
    unique). ``at`` is when it began, unix ms. ``parent`` is the conversation it came from and ``relation`` how;
    ``parent_turn`` the turn that spawned it. ``remote`` and ``root`` are what the file itself says of the repository.
    ``title`` with ``title_rank``: a higher rank wins (0 first prompt, 1 made by the program, 2 given by a person), of
    equal ones that given last (``title_at``, unix ms); of first prompts that of the source that began first.
    """

    session: str
    at: int | None = None
    cwd: str | None = None
    root: str | None = None
    remote: str | None = None
    model: str | None = None
    version: str | None = None
    title: str | None = None
    title_rank: int = 0
    title_at: int | None = None
    parent: str | None = None
    parent_turn: str | None = None
    relation: Literal["subagent", "fork", "continuation"] | None = None
    aliases: tuple[str, ...] = ()


class Found(msgspec.Struct, frozen=True):
    """One receipt. ``payload`` is canonical text (receipts.canonical); ``at`` unix ms by the source, never by us.

    ``kind`` is one of ``started usage completed output``; ``thread`` is the provider's thread, ``offset`` the byte
    where its (last) line begins. ``call`` of a usage receipt is the identity that the call has in every source, whoever
    copied it, unique over all providers (``claude:msg_1``); receipts of one session with the same ``call`` tell of the
    same call. ``rivals`` are provider ids of conversations (ancestors): this receipt is a copy, and counts nowhere, if
    one of them has the same ``call``. Of receipts without rivals the one that tells most (``weight``: output tokens)
    counts, then the one of the conversation that has it earliest, then the smallest session id.
    """

    session: str
    thread: str
    turn: str
    kind: str
    payload: str
    at: int | None
    offset: int
    call: str | None = None
    rivals: tuple[str, ...] = ()
    weight: int = 0


class Noted(msgspec.Struct, frozen=True):
    """An observation: something seen that settles nothing. ``source`` is its key in the conversation."""

    session: str
    source: str
    evidence: str
    at: int | None
    turn: str | None = None


class Passage(msgspec.Struct, frozen=True):
    """A piece of text of one line, in order. ``name`` is the tool's; ``failed`` tells of a tool's result."""

    role: Role
    text: str
    name: str | None = None
    failed: bool = False


class Spoken(msgspec.Struct, frozen=True):
    """The passages of one line, with what a search filters by. ``turn`` is None where no turn is known.

    ``key`` names what the line is about, unique over all providers, where it may come again: the newer text replaces
    the older.
    """

    session: str
    turn: str | None
    at: int | None
    offset: int
    passages: tuple[Passage, ...]
    key: str | None = None


class Trouble(msgspec.Struct, frozen=True):
    """A located problem: ``length`` bytes from ``offset`` on could not be used as they are (promise 7).

    ``usage`` tells that they may have held usage: a gap ``unreadable`` in every total over ``session``.
    """

    kind: str
    offset: int
    length: int
    detail: str = ""
    session: str | None = None
    usage: bool = True


class Reading(msgspec.Struct):
    """What was taken from the lines since the last ``take``.

    ``inherited`` counts usage that a copied history repeats and that was therefore not taken, ``dropped`` repetitions
    of the same event. ``lines`` counts lines. ``wanted`` is a conversation whose own source would have told more, and
    nobody has it: when it comes, this source is read again.
    """

    facts: list[Facts] = []
    found: list[Found] = []
    noted: list[Noted] = []
    spoken: list[Spoken] = []
    troubles: list[Trouble] = []
    inherited: int = 0
    dropped: int = 0
    lines: int = 0
    wanted: str | None = None


Find = Callable[[str], Iterable[bytes] | None]
"""Gives the lines of a conversation's own source, by the provider's id; None when nobody has it."""


class Decoder(Protocol):
    """Reads one source, line by line. Never raises for what a file contains: that is a trouble."""

    def line(self, raw: bytes, offset: int) -> None:
        """Take one whole line without its line end, in order. Empty lines may come."""
        ...

    def end(self) -> None:
        """The lines that there are now have been given; more may come later."""
        ...

    def take(self) -> Reading:
        """Return what was taken since the last call, and forget it."""
        ...

    def state(self) -> bytes:
        """Return what a later decoder needs to go on behind the last line given; small."""
        ...


class Rows(Protocol):
    """A source that has no lines of its own: gives new and changed objects as JSON lines."""

    def lines(self, cursor: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Yield (line, cursor behind it), oldest first; raises UnavailableError where it cannot be read now."""
        ...

    def close(self) -> None:
        """Let go of the source."""
        ...


class Reader(Protocol):
    """How one program's files are read."""

    provider: str
    version: int
    """Raised when decoding changes: ``import --reparse`` then reads the archive again."""

    def discover(self, variables: Mapping[str, str], roots: Sequence[Path]) -> Iterator[Source]:
        """Yield the sources below ``roots``, or below the program's usual places if none are given.

        ``variables`` is the environment. Roots may be symlinks; loops end; what cannot be listed is left out and named
        by ``unlisted``.
        """
        ...

    def unlisted(self) -> list[tuple[str, str]]:
        """Return (path, reason) of folders that the last ``discover`` could not list."""
        ...

    def usual(self, variables: Mapping[str, str]) -> list[Path]:
        """Return the places looked at when no root is given, whether they exist or not."""
        ...

    def decoder(self, source: Source, state: bytes | None, find: Find) -> Decoder:
        """Return a decoder that goes on from ``state``, or begins."""
        ...

    def rows(self, source: Source) -> Rows:
        """Open a source of kind ``rows``. Read-only; raises UnavailableError."""
        ...

    def passages(self, raw: bytes) -> tuple[Passage, ...]:
        """Return the text of one archived line, as ``Spoken`` had it; nothing where it has none."""
        ...
