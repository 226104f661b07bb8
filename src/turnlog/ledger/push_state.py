"""What one push knows: both ledgers, what the target was told before, and what became of it this time.

The target keeps how far its receipts go; the source keeps what the target was told of rows that change. Both keep the
word of their last visit: where the words differ, one of them was restored, and everything is told again. Copies of one
ledger, as on cloned machines, bear its id; each has a row of its own in the target, so that none disturbs the others.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec
import orjson

from turnlog.clock import Now
from turnlog.errors import ConflictError, CorruptError
from turnlog.ledger.backend import Backend, Row, Tx
from turnlog.ledger.copy_tables import Table
from turnlog.ledger.homes import Home
from turnlog.ledger.search import Place
from turnlog.model import Problem

_PAGE: Final = 500
_COPIES: Final = 1_000
"""Copies of one ledger that a target keeps apart."""
_SHOWN: Final = 1_000
"""Problems that are kept; the rest is only counted."""


class Pushed(msgspec.Struct):
    """What a push did. ``left``: receipts of the source that are still to be looked at.

    ``new`` and ``known`` are receipts; ``conflicts`` counts what differs from what the target holds, ``problems`` names
    the first of them and what it could not take. ``notes`` are for a person.
    """

    target: str
    home: str | None = None
    new: int = 0
    known: int = 0
    conflicts: int = 0
    left: int = 0
    sessions: int = 0
    execs: int = 0
    pieces: int = 0
    passages: int = 0
    problems: list[Problem] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)


class Wishes(msgspec.Struct, frozen=True):
    """How to push. ``same`` tells whether two payloads of a turn's end or answer agree; ``said`` gives texts."""

    home: Home | None
    archive: bool
    same: Callable[[str, Any, Any], bool]
    said: Callable[[Place], str | None]
    progress: Callable[[Pushed], None]


class Joined(msgspec.Struct, frozen=True):
    """Which conversation of the target an imported one of the source is; ``handed``: under an earlier provider."""

    session: str
    provider: str
    native: str
    handed: bool


class Push:
    """One push under way."""

    def __init__(self, source: Backend, target: Backend, now: Now, wishes: Wishes) -> None:
        self.source = source
        self.target = target
        self.now = now
        self.wishes = wishes
        self.done = Pushed(target.url, None if wishes.home is None else wishes.home.id)
        self.names: dict[str, str] = {}
        """What stands in the target for waves, projects and tasks."""
        self.sources: dict[int, int] = {}
        """The target's numbers of sources."""
        self.joined: dict[str, Joined] = {}
        """Conversations of the source that are others in the target, of those that were ``looked`` at."""
        self.looked: set[str] = set()
        self.row = ""
        """Names what the target keeps of this copy of the source: ``<home>/<token>``."""
        self._word = ""
        with source.read() as tx:
            self.origin = ledger_names(tx)[0]
        with target.read() as tx:
            name, self.place, _, _ = ledger_names(tx)
        if name == self.origin:
            raise ConflictError("both are the same ledger", hint="name the ledger to push into")

    # --- visits

    def begin(self) -> str | None:
        """Return the cursor behind what the target has; None = it may have nothing. O(copies of the source)."""
        home = "" if self.wishes.home is None else self.wishes.home.id
        with self.source.read() as tx:
            words = self._held(tx, self.place, "visit").split()
        with self.target.read() as tx:
            ids = [row[0] for row in tx.all("pushed_ids", target=self.origin, kind="visit", after="", limit=_COPIES)]
            left: dict[str, str] = dict(tx.all("pushed_states", target=self.origin, kind="visit", ids=text(["", *ids])))
            rows = {word: name for name, word in left.items()}
            last = next((rows[word] for word in reversed(words) if word in rows), None)
            cursor = "" if last is None else self._held(tx, self.origin, "cursor", last)
        # What this home left under that name goes on; a copy of it, or one that was restored, begins a row.
        self.row = last if last and last.partition("/")[0] == home else f"{home}/{secrets.token_hex(8)}"
        self._word = "" if last is None else left[last]
        if last is None:
            with self.source.write() as tx:
                tx.run("forget_told", target=self.place)
        self._visit((self.origin, "cursor", self.row, cursor))
        return cursor or None

    def visit(self) -> None:
        """Leave a new word in both; the source's comes first and stands beside the old one, so a cut does no harm."""
        self._visit()

    def _visit(self, *beside: Row) -> None:
        new = secrets.token_hex(8)
        with self.source.write() as tx:
            tx.many("note_pushed", [(self.place, "visit", "", f"{self._word} {new}")])
        with self.target.write() as tx:
            tx.many("note_pushed", [*beside, (self.origin, "visit", self.row, new)])
        self._word = new

    def reached(self, tx: Tx, cursor: str) -> None:
        """Note in the target, as part of a write there, that it has everything up to a cursor."""
        tx.many("note_pushed", [(self.origin, "cursor", self.row, cursor)])

    @staticmethod
    def _held(tx: Tx, target: str, kind: str, name: str = "") -> str:
        row = tx.one("pushed_states", target=target, kind=kind, ids=text([name]))
        return "" if row is None else str(row[1])

    # --- what was told

    def told(self, kind: str, ids: Iterable[str]) -> dict[str, str]:
        """Return what the target was told of rows."""
        with self.source.read() as tx:
            return dict(tx.all("pushed_states", target=self.place, kind=kind, ids=text(list(ids))))

    def tell(self, kind: str, states: dict[str, str]) -> None:
        """Note what the target was told."""
        if states:
            with self.source.write() as tx:
                tx.many("note_pushed", [(self.place, kind, name, state) for name, state in states.items()])

    def changed(self, kind: str, table: Table) -> Iterator[dict[str, tuple[dict[str, Any], str]]]:
        """Yield rows that the target was not told of as they are, by their names: (columns, digest). O(rows)."""
        after: tuple[Any, ...] | None = None
        while True:
            with self.source.read() as tx:
                rows = table.page(tx, after, _PAGE)
            if not rows:
                return
            after = rows[-1][: table.key]
            named = {_name(table, row): row for row in rows}
            states = self.told(kind, named)
            found = {}
            for name, row in named.items():
                digest = _digest(row)
                if states.get(name, "").partition("|")[0] != digest:
                    found[name] = (dict(zip(table.columns, row, strict=True)), digest)
                else:
                    self.remember(kind, name, states[name])
            if found:
                yield found

    def remember(self, kind: str, name: str, state: str) -> None:
        """Take what stands for a row in the target from what was noted."""
        there = state.partition("|")[2]
        if kind in {"wave", "project", "task"}:
            self.names[name] = there or name
        elif kind == "source" and there:
            self.sources[int(name)] = int(there)

    # --- what became of it

    def problem(self, kind: str, where: str, detail: str) -> None:
        """Count something that could not be taken as it is."""
        self.done.conflicts += kind == "conflict"
        if len(self.done.problems) < _SHOWN:
            self.done.problems.append(Problem(kind=kind, where=where, detail=detail))

    def session(self, name: str) -> str:
        """Return which conversation of the target one of the source is."""
        joined = self.joined.get(name)
        return name if joined is None else joined.session

    def work(self, name: str | None) -> str | None:
        """Return what stands in the target for a wave, project or task."""
        return None if name is None else self.names.get(name, name)


def ledger_names(tx: Tx) -> tuple[str, str, str | None, str | None]:
    """Return a ledger's id, its id with its place, of which ledger it is a copy, and how far."""
    row = tx.one("ledger_names")
    if row is None or row[0] is None:
        raise CorruptError("the ledger does not say which it is")
    return row[0], row[1], row[2], row[3]


def text(value: Any) -> str:
    """Return a value as the JSON that queries take lists in."""
    return orjson.dumps(value).decode()


def _name(table: Table, row: Row) -> str:
    if table.columns[0] in {"depth", "number"}:
        return str(row[1])
    return str(row[0]) if table.key == 1 else text(row[: table.key])


def _digest(row: Row) -> str:
    return hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
