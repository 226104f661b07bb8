"""The receipts of a push: in pages, in the order of the source's tail, each page one transaction of the target.

A receipt is named by session, thread, turn, kind and key. What the target has and is equal is known. What differs stays
there as it is; a snapshot or an observation that differs is kept beside it under a name of its own (D9).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from turnlog.errors import ConflictError, InvalidError, StaleError
from turnlog.ledger.backend import Row, Tx
from turnlog.ledger.events import Events
from turnlog.ledger.imports import Conversation, ImportTx, import_key
from turnlog.ledger.push_joined import look, tell
from turnlog.ledger.push_sessions import mapped, session_facts, state_of
from turnlog.ledger.push_state import Push, text
from turnlog.ledger.sessions import Sessions
from turnlog.ledger.tail import parse_cursor, tail_place
from turnlog.receipts import Observation, canonical, decode

_PAGE: Final = 1_000
_KEPT: Final = frozenset({"prune", "driver", "provider", "death", "manifest.json", "terminal.json"})
_SNAPSHOTS: Final = frozenset({"started", "completed", "output"})


class _Receipt(NamedTuple):
    """A row of ``push_rows``."""

    tx: int
    seq: int
    session: str
    thread: str | None
    turn: str | None
    kind: str
    key: str
    generation: int | None
    exec: str | None
    task: str | None
    wave: str | None
    at: int
    payload: str
    driver: int | None
    artifact: str | None
    source: int | None
    offset: int | None
    call: str | None
    call_at: int | None
    rivals: str | None
    weight: int | None

    @property
    def is_tombstone(self) -> bool:
        """Whether it stands for receipts that were removed."""
        return self.kind == "observed" and self.told_by.partition(":")[0] == "prune"

    @property
    def is_removable(self) -> bool:
        """Whether the removal of a conversation's receipts takes it."""
        if self.kind == "observed":
            return self.told_by.partition(":")[0] not in _KEPT
        return self.kind != "captured"

    @property
    def told_by(self) -> str:
        """What an observation is of (2.3.2)."""
        return self.key.removeprefix(f"{self.artifact}:")

    @property
    def where(self) -> str:
        return f"session {self.session} row {self.seq}"


class _Held(NamedTuple):
    """The target's receipt of the same name."""

    seq: int
    payload: str
    exec: str | None
    generation: int | None
    turn: str | None
    from_file: int


class Receipts:
    """The receipts of one push."""

    def __init__(self, push: Push) -> None:
        self._push = push
        self._there: set[str] = set()
        self._narrow = not push.target.url.startswith("sqlite:")
        self._sessions = Sessions(push.target, push.now)

    def after(self, cursor: str | None) -> None:
        """Push everything behind a cursor of the source."""
        push = self._push
        while True:
            with push.source.read() as tx:
                home, moved, horizon, end = tail_place(tx)
                at = (0, 0)
                if cursor is not None:
                    # One of another state of the source means nothing: everything is told again.
                    with contextlib.suppress(StaleError, InvalidError):
                        at = parse_cursor(cursor, home, horizon, end)
                given = {"tx": at[0], "seq": at[1], "moved": moved, "horizon": horizon}
                rows = [_Receipt(*row) for row in tx.all("push_rows", limit=_PAGE, **given)]
                left = tx.one("push_left", **given) if not push.done.left else None
            if left is not None:
                push.done.left = left[0]
            if not rows:
                push.done.left = 0
                return
            cursor = f"{home}:{rows[-1].tx}:{rows[-1].seq}"
            self.page(rows, cursor)
            push.done.left = max(push.done.left - len(rows), 0)
            push.wishes.progress(push.done)

    def again(self) -> None:
        """Tell what was filled since: the turns of requests, the execs of starts."""
        push = self._push
        after = ""
        while True:
            with push.source.read() as tx:
                ids = [row[0] for row in tx.all("pushed_ids", target=push.place, kind="open", after=after, limit=_PAGE)]
                rows = [_Receipt(*row) for row in tx.all("push_rows_again", seqs=text([int(each) for each in ids]))]
            if not ids:
                return
            after = ids[-1]
            filled = [row for row in rows if not _open(row)]
            if filled:
                known, new = push.done.known, push.done.new
                self.page(filled, None)
                push.done.known, push.done.new = known, new
            gone = {str(row.seq) for row in filled} | set(ids) - {str(row.seq) for row in rows}
            with push.source.write() as tx:
                tx.many("forget_pushed", [(push.place, "open", each) for each in sorted(gone)])

    def page(self, rows: list[_Receipt], cursor: str | None) -> None:
        """Push one page; the cursor is stored with it."""
        push = self._push
        rows = [row for row in rows if self._storable(row)]
        names = sorted({row.session for row in rows})
        if cursor is not None:  # first: what is noted too early does no harm
            push.tell("open", {str(row.seq): "" for row in rows if _open(row)})
        facts = session_facts(push.source, [name for name in names if name not in self._there])
        look(push, names, facts)
        facts = {name: each for name, each in facts.items() if name not in push.joined}
        joined = [row for row in rows if row.session in push.joined]
        rows = [row for row in rows if row.session not in push.joined]
        with push.target.write() as tx:
            if any(row.call or row.is_tombstone for row in (*rows, *joined)):
                tx.one("last_passage")  # takes its turn with imports, which begin so, before it holds any session
            tx.all("lock_sessions", sessions=text(sorted({push.session(name) for name in names})))
            new = tx.all("push_sessions", rows=text([mapped(push, each) for each in facts.values()])) if facts else []
            created = [row[0] for row in new]
            rows = self._without_removed(tx, rows)
            conflicts, seqs = self._receipts(tx, rows)
            tx.run("push_current", sessions=text(created))
            self._places(tx, rows, seqs)
            conflicts += self._join(tx, joined)
            if cursor is not None:
                push.reached(tx, cursor)
        for row, held in conflicts:
            self._conflict(row, held)
        self._there.update(names)
        push.done.sessions += len(created)
        first = {row.session: row.artifact for row in reversed(rows) if row.kind == "captured"}
        push.tell("session", {name: state_of(push, facts[name], first.get(name)) for name in created})

    def _join(self, tx: Tx, rows: list[_Receipt]) -> list[tuple[_Receipt, _Held]]:
        """Take what files tell of conversations that were driven there; return what differs."""
        push = self._push
        imports = ImportTx(tx, push.now(), self._sessions)
        names = {name: push.joined[name] for name in {row.session for row in rows}}
        known = imports.conversations([(each.provider, each.native) for each in names.values()])
        theirs = {name: known.get((each.provider, each.native)) for name, each in names.items()}
        told: list[tuple[Conversation, _Receipt]] = []
        for row in rows:
            found = theirs[row.session]
            if row.is_tombstone:
                push.problem("pruned", f"session {row.session}", "its receipts were removed here; what is there stays")
            elif found is not None:
                told.append((found, row._replace(session=found.session_id)))
        conflicts: list[tuple[_Receipt, _Held]] = []
        seqs: dict[int, int] = {}
        for (_, row), (seq, first) in zip(told, tell(imports, told), strict=True):
            if seq is None:
                push.done.known += 1
            else:
                push.done.new += 1
                seqs[row.seq] = seq
            if first is not None:
                conflicts.append((row, _Held(0, first, None, None, row.turn, 1)))
        self._places(tx, [row for _, row in told], seqs)
        return conflicts

    def _storable(self, row: _Receipt) -> bool:
        if self._narrow and any("\0" in value for value in row if isinstance(value, str)):
            self._push.problem("unstorable", row.where, "PostgreSQL holds no text with a NUL character")
            return False
        return True

    def _without_removed(self, tx: Tx, rows: list[_Receipt]) -> list[_Receipt]:
        """Leave out what was removed there, and what stands here for receipts that are there: it would count twice."""
        push = self._push
        there: dict[str, int] = dict(tx.all("pruned_sessions", sessions=text(sorted({row.session for row in rows}))))
        stones = sorted({row.session for row in rows if row.is_tombstone})
        here = {name: facts["pruned_to"] for name, facts in session_facts(push.source, stones).items()}
        taken = []
        for row in rows:
            removed = there.get(row.session)
            if row.is_tombstone and removed != here.get(row.session):
                push.problem(
                    "pruned",
                    f"session {row.session}",
                    "its receipts were removed here; what was told of them stays there",
                )
            elif removed is None or row.at > removed or not row.is_removable:
                taken.append(row)
        return taken

    def _receipts(self, tx: Tx, rows: list[_Receipt]) -> tuple[list[tuple[_Receipt, _Held]], dict[int, int]]:
        """Write what is not there; return what differs, and the target's numbers by the source's."""
        push = self._push
        asked = [
            {"n": n, "session": row.session, "thread": row.thread, "turn": row.turn, "kind": row.kind, "key": row.key}
            for n, row in enumerate(rows)
        ]
        held = {row[0]: _Held(*row[1:7]) for row in tx.all("push_known", rows=text(asked))}
        captures = self._captures(tx, {row.artifact for row in rows if row.artifact is not None})
        conflicts: list[tuple[_Receipt, _Held]] = []
        seqs: dict[int, int] = {}
        # An input must be there before what names it, and within a conversation the order stays.
        rounds: dict[int, list[_Receipt]] = defaultdict(list)
        level: dict[str, int] = defaultdict(int)
        for n, row in enumerate(rows):
            if n in held:
                push.done.known += 1
                seqs[row.seq] = held[n].seq
                if self._differs(tx, row, held[n]):
                    conflicts.append((row, held[n]))
            elif row.kind == "captured" and row.key in captures:
                push.problem("conflict", row.where, f"input {row.key} belongs to another conversation there")
            elif row.kind == "captured":
                level[row.session] += 2
                rounds[level[row.session] - 1].append(row)
            else:
                rounds[level[row.session]].append(row)
        for number in sorted(rounds):
            made = self._insert(tx, rounds[number], captures)
            seqs.update(made)
            if number % 2:
                captures.update((row.key, (made[row.seq], row.session)) for row in rounds[number])
        return conflicts, seqs

    @staticmethod
    def _captures(tx: Tx, keys: Iterable[str]) -> dict[str, tuple[int, str]]:
        return {row[0]: (row[1], row[2]) for row in tx.all("push_captures", keys=text(sorted(keys)))}

    def _insert(self, tx: Tx, rows: list[_Receipt], captures: dict[str, tuple[int, str]]) -> dict[int, int]:
        push = self._push
        given: list[dict[str, Any]] = []
        for place, row in enumerate(rows):
            capture = None
            if row.artifact is not None and row.kind != "captured":
                found = captures.get(row.artifact)
                capture = found[0] if found is not None and found[1] == row.session else None
            given.append(
                {
                    "place": place,
                    "session": row.session,
                    "thread": row.thread,
                    "turn": row.turn,
                    "kind": row.kind,
                    "key": row.key,
                    "generation": row.generation,
                    "exec": row.exec,
                    "task": push.work(row.task),
                    "wave": push.work(row.wave),
                    "at": row.at,
                    "payload": row.payload,
                    "capture": capture,
                    "driver": row.driver,
                }
            )
        made = {tuple(row[:5]): row[5] for row in tx.all("push_events", rows=text(given))}
        push.done.new += len(made)
        return {row.seq: made[row.session, row.thread, row.turn, row.kind, row.key] for row in rows}

    def _differs(self, tx: Tx, row: _Receipt, held: _Held) -> bool:
        """Fill what is null there and known here; True when payloads or origins differ."""
        if row.payload != held.payload:
            # What an import captured says nothing of its own: two homes that read one history do not contradict.
            return row.kind != "captured" or row.key != import_key(row.session)
        if row.kind == "requested" and held.turn is None and row.turn is not None:
            tx.run("link_requested", seq=held.seq, turn=row.turn, thread=row.thread)
        elif row.kind == "requested" and row.turn not in (None, held.turn):
            return True
        elif row.kind == "started" and row.exec is not None and row.generation is not None:
            if held.exec is None and held.generation in (None, row.generation):
                tx.run("fill_origin", seq=held.seq, exec=row.exec, generation=row.generation)
            return held.exec not in (None, row.exec)
        return False

    def _places(self, tx: Tx, rows: list[_Receipt], seqs: dict[int, int]) -> None:
        push = self._push
        places: list[Row] = []
        sightings: list[tuple[str, str, int, str | None, int]] = []
        for row in rows:
            there = None if row.source is None else push.sources.get(row.source)
            if there is not None and row.seq in seqs:
                places.append((seqs[row.seq], there, row.offset, row.call))
                if row.call is not None and row.call_at is not None:
                    sightings.append((row.call, row.session, row.call_at, row.rivals, row.weight or 0))
        stones = sorted({row.session for row in rows if row.is_tombstone})
        if stones:
            # The receipts that told of its calls are gone; that it has them still counts for others.
            with push.source.read() as source:
                found = source.all("calls_of_sessions", sessions=text(stones))
            sightings += [(row[0], row[1], row[2], row[3], row[4]) for row in found]
        if places:
            tx.many("insert_places", places)
        if sightings:
            ImportTx(tx, push.now(), self._sessions).sightings(sightings)

    # --- what differs

    def _conflict(self, row: _Receipt, held: _Held) -> None:
        push = self._push
        try:
            ours, theirs = decode(row.payload), decode(held.payload)
        except InvalidError:
            ours = theirs = None
        files = bool(held.from_file) or row.source is not None
        if row.kind in {"completed", "output"} and files and push.wishes.same(row.kind, ours, theirs):
            return  # two witnesses that agree in other words
        if ours is not None and row.payload != held.payload and not row.is_tombstone:
            with contextlib.suppress(ConflictError):
                self._keep(row, ours)
        what = "who began the turn" if row.payload == held.payload else "the payload"
        push.problem("conflict", row.where, f"{what} of {row.kind} {row.key or row.turn} differs there, and stays so")

    def _keep(self, row: _Receipt, payload: Any) -> None:
        """Keep what differs beside what is there."""
        events = Events(self._push.target, lambda: row.at)
        if row.kind in _SNAPSHOTS:
            digest = hashlib.sha256(canonical(payload).encode()).hexdigest()
            source = f"conflict:{row.kind}:{row.thread or ''}:{row.turn or ''}:{digest}"
            evidence = {"kind": row.kind, "thread": row.thread, "turn": row.turn, "payload": payload}
            events.retain_for_turn(row.session, row.thread or "", row.turn, source, evidence)
        elif row.kind == "observed" and row.artifact is not None and row.key.startswith(f"{row.artifact}:"):
            seen = payload.get("evidence") if isinstance(payload, dict) else payload
            digest = hashlib.sha256(canonical(seen).encode()).hexdigest()
            source = f"{row.key.removeprefix(f'{row.artifact}:')}:{digest}"
            events.retain(row.session, Observation(row.artifact, source, row.at, seen))


def _open(row: _Receipt) -> bool:
    """Tell whether a receipt may still be filled (R3.2, D3). An imported turn never is."""
    if row.kind == "requested":
        return row.turn is None
    return row.kind == "started" and row.exec is None and not row.session.endswith(f":{row.thread}")
