"""Verbs of the usage roll-ups: which are out of date, what they are made of, the rows they consist of (a cache).

What a stream is, and what sums are, is decided above; here are the rows. New receipts are found behind a cursor (by
SQLite's commit order that is a seq), changed ones by triggers that note their session.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import orjson

from turnlog.ledger.backend import Backend, Question, Row, Tx
from turnlog.ledger.rows import RawEvent
from turnlog.usage.buckets import Bucket, Gaps, Kind, Loose, Rolled, Sums

Wire = list[tuple[str | None, int, int | None]]
"""Turns of which a program told the usage with that of its subagents: (turn, began, ended), unix ms."""

_SUMS: Final = 14

_SMALL: Final = ("rollup_provider", "rollup_captures", "rollup_session")
"""What each fold asks for that does not grow with a session's receipts: a batch may end before all are folded."""

_BEHIND: Final[list[Question]] = [("rollup_cursor", {}), ("rollup_dirty", {"limit": -1})]


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of sums by quarter: ``since`` ≤ start < ``until``; None admits all.

    ``instead``: kinds that are admitted whatever their session. ``without``: sessions that are left out.
    """

    since: int
    until: int
    kinds: tuple[int, ...] | None = None
    sessions: tuple[int, ...] | None = None
    instead: tuple[int, ...] = ()
    without: tuple[int, ...] | None = None

    def params(self) -> dict[str, Any]:
        """Return the parameters of the queries over sums."""
        return {
            "since": self.since,
            "until": self.until,
            "kinds": _numbers(self.kinds),
            "sessions": _numbers(self.sessions),
            "instead": _numbers(self.instead),
            "without": _numbers(self.without),
        }


class State(msgspec.Struct, frozen=True):
    """What is kept of a session beside its rows. ``number`` None: it has no roll-ups."""

    number: int | None = None
    wire: Wire = []
    covered: bool = False


class Parent(msgspec.Struct, frozen=True):
    """A conversation that a subagent belongs to. ``turn`` spawned it; ``began`` is when it began, unix ms."""

    turn: str | None
    began: int | None
    session: str
    state: State


class Facts(msgspec.Struct, frozen=True):
    """What reports say of a session; ``project`` is its repository, else its folder."""

    session: str
    number: int | None
    provider: str | None
    native: str | None
    project: str | None


class Rollups:
    """Roll-ups of one ledger."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @contextlib.contextmanager
    def read(self) -> Iterator[RollupTx]:
        """Begin a consistent read."""
        with self._backend.read() as tx:
            yield RollupTx(tx)

    @contextlib.contextmanager
    def write(self, *, wait_ms: int | None = None) -> Iterator[RollupTx]:
        """Begin a write; raises UnavailableError where the ledger cannot be written, or not within ``wait_ms``."""
        with self._backend.write(wait_ms=wait_ms) as tx:
            yield RollupTx(tx)


class RollupTx:
    """The verbs inside one transaction."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._kinds: dict[Kind, int] | None = None
        self._read: dict[tuple[str, str], list[Row]] = {}

    def expect_report(self) -> None:
        """Say that what every report reads comes next."""
        self._tx.expect([*_BEHIND, ("rollup_kinds", {}), ("rollup_prices", {}), ("usage_problems", {})])

    def expect_sums(self, several: Iterable[Where], *, by_kind: bool) -> None:
        """Say that ``by_kind``, or else ``sums``, comes next for each of several stretches of time."""
        name = "usage_by_kind" if by_kind else "usage_sums"
        self._tx.expect((name, each.params()) for each in several)

    def expect_check(self) -> None:
        """Say that ``stale`` and ``any_unpriced`` come next."""
        self._tx.expect([*_BEHIND, ("any_unpriced", {})])

    def read_together(self, sessions: Sequence[str]) -> None:
        """Read what is small of sessions that are folded next: where the ledger is far away, in few round trips.

        Each answer is given once; ``streams`` and the rest are read when they are asked for.
        """
        for name in _SMALL:
            found = self._tx.each(name, [{"session": each} for each in sessions])
            self._read |= {(name, session): rows for session, rows in zip(sessions, found, strict=True)}

    def _all(self, name: str, session: str) -> list[Row]:
        held = self._read.pop((name, session), None)
        return self._tx.all(name, session=session) if held is None else held

    # --- what is out of date

    def stale(self) -> list[str]:
        """Return every session whose roll-ups are out of date: O(receipts behind the cursor)."""
        tx = self._tx
        cursor = self._cursor()
        found = dict.fromkeys(row[0] for row in tx.all("rollup_changed", cursor=0 if cursor is None else cursor))
        if cursor is None:
            found.update(dict.fromkeys(row[0] for row in tx.all("rollup_known")))
        found.update(dict.fromkeys(row[0] for row in tx.all("rollup_dirty", limit=-1)))
        return list(found)

    def collect(self) -> bool:
        """Note the sessions that are out of date and move the cursor to the end; False when there are none."""
        tx = self._tx
        stale = self.stale()
        tx.many("rollup_mark", [(each,) for each in stale])
        end = tx.one("rollup_end")
        tx.run("rollup_move", cursor=0 if end is None else end[0])
        return bool(stale)

    def forget(self) -> None:
        """Let every roll-up be made again."""
        self._tx.run("rollup_forget")

    def mark(self, sessions: Iterable[str]) -> None:
        """Note sessions whose roll-ups are out of date."""
        self._tx.many("rollup_mark", [(each,) for each in sessions])

    def dirty(self, limit: int) -> list[str]:
        """Return some of the sessions that were noted."""
        return [row[0] for row in self._tx.all("rollup_dirty", limit=limit)]

    def _cursor(self) -> int | None:
        row = self._tx.one("rollup_cursor")
        return None if row is None else row[0]

    # --- what they are made of

    def provider(self, session: str) -> tuple[bool, str | None]:
        """Tell whether a session exists, and its provider."""
        rows = self._all("rollup_provider", session)
        return bool(rows), rows[0][0] if rows else None

    def captures(self, session: str) -> list[Row]:
        """Return (seq, artifact key, task, wave) of a session's inputs."""
        return self._all("rollup_captures", session)

    def receipts(self, session: str) -> list[Row]:
        """Return what the totals of a session are made of, in order.

        Rows of (seq, thread, turn, kind, observed at, receipt key, capture, task, wave, payload text).
        """
        return self._tx.all("rollup_receipts", session=session)

    def copies(self, session: str) -> list[tuple[int, str, str | None]]:
        """Return (seq, call, owner) of usage receipts that repeat a call which another session owns."""
        return [(row[0], row[1], row[2]) for row in self._tx.all("copied_receipts", session=session)]

    def copied_calls(self, session: str) -> frozenset[str]:
        """Return the calls that a session tells of and another one owns."""
        return frozenset(row[0] for row in self._tx.all("copied_calls", session=session))

    def places(self, session: str) -> dict[int, tuple[str, int]]:
        """Return where the usage receipts of a session were read: path and offset by seq."""
        return {row[0]: (row[1], row[2]) for row in self._tx.all("receipt_places", session=session)}

    def before(self, session: str, thread: str, turn: str, start: int) -> list[RawEvent]:
        """Return the rows of the turn before a start on the same thread, if it completed before it (D5); else none."""
        found = self._tx.one("predecessor_turn", session=session, thread=thread, turn=turn, start=start)
        if found is None or found[1] is None or found[1] > start:
            return []
        rows = self._tx.all("turn_rows_before", session=session, thread=thread, turn=found[0], before=start)
        return [RawEvent(*row) for row in rows]

    def parents(self, session: str) -> list[Parent]:
        """Return the conversations that a subagent belongs to."""
        rows = self._tx.all("rollup_parents", session=session)
        return [Parent(row[0], row[1], row[2], State(None, _wire(row[3]), bool(row[4]))) for row in rows]

    def children(self, session: str) -> list[str]:
        """Return the subagents of a conversation."""
        return [row[0] for row in self._tx.all("rollup_children", session=session)]

    # --- their rows

    def state(self, session: str) -> State:
        """Return what is kept of a session beside its rows."""
        rows = self._all("rollup_session", session)
        return State(rows[0][0], _wire(rows[0][1]), bool(rows[0][2])) if rows else State()

    def streams(self, number: int) -> list[Rolled]:
        """Return the streams of a session, in order."""
        kinds = self.kinds()
        return [_rolled(kinds, row) for row in self._tx.all("streams_of_session", number=number)]

    def loose(self, number: int) -> list[Loose]:
        """Return the gaps of a session that belong to no stream, in order."""
        kinds = self.kinds()
        return [
            Loose(kinds[row[0]], row[1], _gaps(row[2]) or {}) for row in self._tx.all("loose_of_session", number=number)
        ]

    def buckets(self, number: int) -> list[Bucket]:
        """Return the sums of a session."""
        kinds = self.kinds()
        return [
            Bucket(row[0], kinds[row[1]], row[2], row[3], Sums(*(*row[4:18], _gaps(row[18]) or {})))
            for row in self._tx.all("buckets_of_session", number=number)
        ]

    def replace(
        self,
        session: str,
        wire: Wire,
        rows: Sequence[Rolled],
        loose: Sequence[Loose],
        sums: Sequence[Bucket],
        *,
        covered: bool,
    ) -> None:
        """Put a session's rows in the place of those before: O(rows)."""
        tx = self._tx
        number = self._number(session, orjson.dumps(wire).decode() if wire else None, covered=covered)
        self._clear(number)
        kind = self._kind
        tx.many(
            "insert_streams",
            (
                (number, place, kind(row.kind), *msgspec.structs.astuple(row)[1:-1], _text(row.gaps))
                for place, row in enumerate(rows)
            ),
        )
        if loose:
            tx.many(
                "insert_loose",
                [(number, place, kind(each.kind), each.at, _text(each.gaps)) for place, each in enumerate(loose)],
            )
        tx.many("insert_buckets", [(number, *_bucket(each, kind(each.kind))) for each in sums])

    def drop(self, session: str) -> None:
        """Forget a session that is gone."""
        number = self.state(session).number
        if number is not None:
            self._clear(number)
            self._tx.run("rollup_drop_session", session=session)

    def settle(self, session: str) -> None:
        """Note that a session's roll-ups are up to date."""
        self._tx.run("rollup_settle", session=session)

    def _number(self, session: str, wire: str | None, *, covered: bool) -> int:
        row = self._tx.one("rollup_add_session", session=session, wire=wire, covered=int(covered))
        assert row is not None  # noqa: S101 - an upsert returns its row
        return int(row[0])

    def _clear(self, number: int) -> None:
        for query in ("delete_streams", "delete_loose", "delete_buckets"):
            self._tx.run(query, number=number)

    def kinds(self) -> dict[int, Kind]:
        """Return every kind of streams by its number."""
        return {number: kind for kind, number in self._known().items()}

    def _known(self) -> dict[Kind, int]:
        if self._kinds is None:
            self._kinds = {Kind(*row[1:]): row[0] for row in self._tx.all("rollup_kinds")}
        return self._kinds

    def _kind(self, kind: Kind) -> int:
        known = self._known()
        number = known.get(kind)
        if number is None:
            row = self._tx.one(
                "rollup_add_kind", **dict(zip(kind.__struct_fields__, msgspec.structs.astuple(kind), strict=True))
            )
            assert row is not None  # noqa: S101 - an insert returns its row
            number = known[kind] = int(row[0])
        return number

    # --- prices

    def prices(self) -> list[tuple[int, str, str]]:
        """Return (number, source, version) of the prices used, oldest first."""
        return [(row[0], row[1], row[2]) for row in self._tx.all("rollup_prices")]

    def price_number(self, source: str, version: str) -> int:
        """Return the number of prices."""
        row = self._tx.one("rollup_add_prices", source=source, version=version)
        assert row is not None  # noqa: S101 - an upsert returns its row
        return int(row[0])

    def any_unpriced(self) -> bool:
        """Tell whether any stream has no estimate: O(1)."""
        return self._tx.one("any_unpriced") is not None

    def unpriced(self, prices: int | None) -> list[str]:
        """Return sessions with streams for which these prices were not tried: O(streams without estimate)."""
        return [row[0] for row in self._tx.all("unpriced_sessions", prices=prices)]

    # --- sums

    def sums(self, where: Where) -> Sums | None:
        """Return the sums of a stretch of time; None when there is nothing in it."""
        row = self._tx.one("usage_sums", **where.params())
        return Sums(*row[:_SUMS]) if row is not None and row[_SUMS] else None

    def by_kind(self, where: Where) -> list[tuple[int, Sums]]:
        """Return the sums of each kind."""
        return [(row[0], Sums(*row[1:])) for row in self._tx.all("usage_by_kind", **where.params())]

    def by_session(self, where: Where, *, apart: bool) -> list[tuple[int, int | None, int, Sums]]:
        """Return (session, kind, last instant, sums). Kinds are told ``apart``, or None."""
        rows = self._tx.all("usage_by_session", apart=int(apart), **where.params())
        return [(row[0], row[1], row[2], Sums(*row[3:])) for row in rows]

    def gaps(self, where: Where) -> list[tuple[int, int, int, Gaps]]:
        """Return (start, session, kind, gaps) of the sums that have gaps."""
        rows = self._tx.all("usage_gaps", **where.params())
        return [(row[0], row[1], row[2], _gaps(row[3]) or {}) for row in rows]

    def spans(self, where: Where) -> list[tuple[int, int]]:
        """Return (first, last) instants of streams by quarter, oldest first."""
        return [(row[0], row[1]) for row in self._tx.all("usage_spans", **where.params())]

    def days(self, since: int, until: int) -> list[int]:
        """Return the days of UTC, by their number, with usage in a stretch of quarters, in order: O(days)."""
        return [row[0] for row in self._tx.all("usage_days", since=since, until=until)]

    def in_quarter(self, start: int) -> list[tuple[int, str]]:
        """Return (number, session) of those with usage in a quarter."""
        return [(row[0], row[1]) for row in self._tx.all("sessions_in_quarter", start=start)]

    def numbers(self) -> list[tuple[int, str]]:
        """Return (number, session) of all that have roll-ups."""
        return [(row[0], row[1]) for row in self._tx.all("rollup_numbers")]

    def facts(self, session: str | None = None) -> list[Facts]:
        """Return what reports say of a session, or of all."""
        return [Facts(*row) for row in self._tx.all("usage_sessions", session=session)]

    def problems(self) -> list[tuple[str | None, str, int]]:
        """Return (session, provider, how many) bytes that could not be read and may have held usage."""
        return [(row[0], row[1], row[2]) for row in self._tx.all("usage_problems")]

    def tasks(self) -> dict[str, str]:
        """Return the names that people use for tasks."""
        return {row[0]: row[1] for row in self._tx.all("usage_tasks")}

    def named_tasks(self, *, project: str | None = None, task: str | None = None) -> set[str]:
        """Return the tasks that a word for a project, or for a task, names."""
        if project is not None:
            return {row[0] for row in self._tx.all("scope_project_tasks", word=project)}
        return {row[0] for row in self._tx.all("scope_tasks", word=task)}

    def named_waves(self, wave: str) -> set[str]:
        """Return the waves that a word names."""
        return {row[0] for row in self._tx.all("scope_waves", word=wave)}


def _numbers(values: Iterable[int] | None) -> str | None:
    return None if values is None else orjson.dumps(list(values)).decode()


def _wire(text: str | None) -> Wire:
    return [] if text is None else [(each[0], each[1], each[2]) for each in orjson.loads(text)]


def _gaps(text: str | None) -> Gaps | None:
    return None if text is None else dict(orjson.loads(text))


def _text(gaps: Gaps | None) -> str | None:
    return orjson.dumps(gaps, option=orjson.OPT_SORT_KEYS).decode() if gaps else None


def _rolled(kinds: dict[int, Kind], row: Row) -> Rolled:
    values = (kinds[row[0]], *row[1:5], bool(row[5]), bool(row[6]), *row[7:21], bool(row[21]), _gaps(row[22]))
    return Rolled(*values)


def _bucket(bucket: Bucket, kind: int) -> Row:
    sums = bucket.sums
    return (
        bucket.start,
        kind,
        bucket.first,
        bucket.last,
        *msgspec.structs.astuple(sums)[:_SUMS],
        _text(sums.gaps),
    )
