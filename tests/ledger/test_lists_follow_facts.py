"""Whatever happens to the facts, through the API or by plain SQL, the list tables equal a fresh fold of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ledger.sqlite_setup import SqliteSetup, raw
from turnlog import Driver, Ledger, Observation, TurnlogError
from turnlog.ledger import verify

SESSIONS = ("a", "b")
EXECS = ("e1", "e2")
THREADS = ("t", "t", "u")
TURNS = ("1", "2")
KEYS = tuple(f"{number:032x}" for number in range(4))
TERMINALS: tuple[Any, ...] = (
    {"schema_version": 1, "outcome": "completed", "ended_at": "1970-01-01T00:00:09Z"},
    {"schema_version": 1, "outcome": "completed", "ended_at": "never"},
)

small = st.integers(0, 11)
operations = st.lists(st.tuples(st.integers(0, 200), small, small, small), min_size=1, max_size=20)


class World:
    """One ledger and the words to change it; numbers choose which session, turn, row, value."""

    def __init__(self, folder: Path) -> None:
        self.setup = SqliteSetup(folder)
        self.ledger = self.setup.open()
        for each in EXECS:
            self.ledger.start_exec(id=each)
        for number, each in enumerate(SESSIONS):
            self.ledger.create_session(id=each, artifact_key=KEYS[number], cwd="/f", published=number == 0)
        # Open turns and requests to begin with: what random steps seldom reach, they can change.
        self.drivers = {
            session: self.ledger.claim_driver(session, None, exec_id)
            for session, exec_id in zip(SESSIONS, EXECS, strict=True)
        }
        for session, exec_id in zip(SESSIONS, EXECS, strict=True):
            self.ledger.record_turn_origin(session, "t", "1", 1, exec_id)
            self.ledger.intend_turn(session, self.drivers[session], "t", "r0", {}, turn="2")
            self.ledger.intend_turn(session, self.drivers[session], None, "r1", {})
        self.verbs: list[Callable[[int, int, int], object]] = [
            self.native,
            self.native,
            self.native,
            self.origin,
            self.intend,
            self.accept,
            self.refuse,
            self.observe,
            self.note,
            self.death,
            self.claim,
            self.finish,
            self.end_exec,
            self.replace,
            self.publish,
            self.complete,
            self.reopen,
            self.raw_update,
            self.raw_update,
            self.raw_delete,
            self.raw_insert,
            self.raw_session,
            self.raw_exec,
        ]

    def do(self, verb: int, *numbers: int) -> None:
        self.setup.clock.advance(numbers[0] * 7 - 30)
        with suppress(TurnlogError, apsw.ConstraintError):  # refused, so nothing happened; the lists stay right too
            self.verbs[verb % len(self.verbs)](*numbers)

    def drift(self) -> list[str]:
        return [problem.detail for problem in verify._drift(self.ledger._store._backend)]

    # --- through the API

    def native(self, a: int, b: int, c: int) -> None:
        kind = ("started", "usage", "completed", "output")[c % 4]
        payload = {"n": a} if kind == "usage" else {"status": ("completed", "failed")[a % 2]}
        self.ledger.record(SESSIONS[a % 2], THREADS[b % 3], TURNS[a // 3 % 2], kind, payload)

    def origin(self, a: int, b: int, c: int) -> None:
        self.ledger.record_turn_origin(SESSIONS[a % 2], THREADS[b % 3], TURNS[a // 3 % 2], 1, EXECS[c % 2])

    def intend(self, a: int, b: int, c: int) -> None:
        session = SESSIONS[a % 2]
        thread = (None, "t", "u")[b % 3]
        turn = (None, *TURNS)[c % 3]
        self.ledger.intend_turn(session, self.drivers[session], thread, f"r{c}", {}, turn=turn) if (
            session in self.drivers
        ) else self.claim(a, b, c)

    def accept(self, a: int, b: int, c: int) -> None:
        session = SESSIONS[a % 2]
        for intent in self.ledger.outstanding_intents(session)[:1]:
            author = Driver(
                exec_id=intent.exec_id,
                generation=intent.generation or 0,
                provider_generation=intent.provider_generation or 0,
                provider_exec_id=intent.exec_id,
            )
            self.ledger.accept_turn(session, author, intent.request_id, TURNS[a // 3 % 2])

    def refuse(self, a: int, b: int, c: int) -> None:
        session = SESSIONS[a % 2]
        if session in self.drivers:
            for intent in self.ledger.outstanding_intents(session)[:1]:
                self.ledger.refuse_turn(session, self.drivers[session], intent.request_id, "no")

    def observe(self, a: int, b: int, c: int) -> None:
        session, key = SESSIONS[a % 2], self.ledger.session_inputs(SESSIONS[a % 2])[0]
        source = ("manifest.json", "terminal.json", "events.jsonl:0", "runs")[b % 4]
        self.ledger.retain(session, Observation(key, source, c * 10, TERMINALS[c % 2]))

    def note(self, a: int, b: int, c: int) -> None:
        word = ("superseded", "absorbed", "lost", "SUPERSEDED")[c % 4]
        thread, turn = THREADS[b % 3], TURNS[a // 3 % 2]
        self.ledger.retain_for_turn(SESSIONS[a % 2], thread, turn, f"{word}:{thread}:{turn}", {"by": "x"})

    def death(self, a: int, b: int, c: int) -> None:
        self.ledger.retain_for_turn(SESSIONS[a % 2], "t", None, f"death:{EXECS[b % 2]}", {})

    def claim(self, a: int, b: int, c: int) -> None:
        session = SESSIONS[a % 2]
        self.drivers[session] = self.ledger.claim_driver(
            session, self.ledger.driver(session), EXECS[b % 2], replace_engine=c % 2 == 0
        )

    def finish(self, a: int, b: int, c: int) -> None:
        session = SESSIONS[a % 2]
        if session in self.drivers:
            self.ledger.finish_driver(session, self.drivers.pop(session), ("completed", "failed")[b % 2])

    def end_exec(self, a: int, b: int, c: int) -> None:
        self.ledger.end_exec(EXECS[a % 2], "failed")

    def replace(self, a: int, b: int, c: int) -> None:
        self.ledger.replace_input(SESSIONS[a % 2], self.current(a), artifact_key=KEYS[2 + b % 2])

    def publish(self, a: int, b: int, c: int) -> None:
        self.ledger.publish_input(SESSIONS[a % 2], self.current(a))

    def complete(self, a: int, b: int, c: int) -> None:
        self.ledger.complete_session(SESSIONS[a % 2], self.current(a))

    def reopen(self, a: int, b: int, c: int) -> None:
        self.ledger.reopen_session(SESSIONS[a % 2])

    def current(self, a: int) -> int:
        session = self.ledger.session(SESSIONS[a % 2])
        assert session is not None
        return session.captured

    # --- by plain SQL

    def row(self, number: int) -> int | None:
        rows = self.setup.raw_sql("SELECT seq FROM session_events WHERE kind <> 'captured' ORDER BY seq")
        return int(rows[number % len(rows)][0]) if rows else None

    def raw_update(self, a: int, b: int, c: int) -> None:
        column, values = COLUMNS[b % len(COLUMNS)]
        self.setup.raw_sql(
            f"UPDATE session_events SET {column} = :value WHERE seq = :seq",
            {"value": values[c % len(values)], "seq": self.row(a)},
        )

    def raw_delete(self, a: int, b: int, c: int) -> None:
        self.setup.raw_sql("DELETE FROM session_events WHERE seq = :seq", {"seq": self.row(a)})

    def raw_insert(self, a: int, b: int, c: int) -> None:
        kind = ("started", "usage", "completed", "output", "observed", "requested")[b % 6]
        native = kind != "observed"
        self.setup.raw_sql(
            "INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key, exec_id,"
            " observed_at, payload, captured_event)"
            " VALUES (:session, :thread, :turn, :kind, :key, :exec, :at, :payload, :capture)",
            {
                "session": SESSIONS[a % 2],
                "thread": (None, *THREADS)[c % 4] if native else None,
                "turn": (None, *TURNS)[a % 3] if native else None,
                "kind": kind,
                "key": "" if native else OBSERVED_KEYS[c % len(OBSERVED_KEYS)],
                "exec": (None, *EXECS)[a % 3],
                "at": c,
                "payload": ("{}", "{", '{"status":"failed"}')[c % 3],
                "capture": (None, 1, 2, 999)[c % 4],
            },
        )

    def raw_session(self, a: int, b: int, c: int) -> None:
        column, values = (("completed_at", (None, 5)), ("input_published", (0, 1)))[b % 2]
        self.setup.raw_sql(
            f"UPDATE agent_sessions SET {column} = :value WHERE id = :id",
            {"value": values[c % 2], "id": SESSIONS[a % 2]},
        )

    def raw_exec(self, a: int, b: int, c: int) -> None:
        exec_id = EXECS[a % 2]
        if b % 3 == 0:
            self.setup.raw_sql("DELETE FROM execs WHERE id = :id", {"id": exec_id})
        elif b % 3 == 1:
            self.setup.raw_sql(
                "INSERT INTO execs (id, trace_id, started_at, completed_at) VALUES (:id, 'x', 1, :at)",
                {"id": exec_id, "at": (None, 5)[c % 2]},
            )
        else:
            self.setup.raw_sql(
                "UPDATE execs SET completed_at = :at WHERE id = :id", {"id": exec_id, "at": (None, 5)[c % 2]}
            )


OBSERVED_KEYS = (
    f"{KEYS[0]}:manifest.json",
    f"{KEYS[1]}:terminal.json",
    f"{KEYS[0]}:death:e1",
    "death:e2",
    "driver:1:exit",
    "driver:2:exit",
    f"{KEYS[0]}:superseded:t:1",
    f"{KEYS[1]}:absorbed:t:2",
    f"{KEYS[1]}:refused:r1",
    f"{KEYS[0]}:events.jsonl:0",
)
COLUMNS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("observed_at", (1, 50, 5000)),
    ("exec_id", (None, *EXECS)),
    ("captured_event", (None, 1, 2, 999)),
    ("provider_thread", (None, *THREADS)),
    ("provider_turn", (None, *TURNS)),
    ("receipt_key", ("", *OBSERVED_KEYS)),
    ("payload", ("{}", "{", '{"status":"failed"}', '{"status":1}')),
    ("kind", ("started", "usage", "completed", "output", "observed", "requested")),
    ("session_id", SESSIONS),
    ("task_id", (None, "task")),
    ("wave_id", (None, "wave")),
)


@pytest.mark.parametrize(
    "change",
    [
        ("INSERT INTO execs (id, trace_id, started_at, completed_at) VALUES ('e3', 'x', 1, 5)", "turn 3"),
        ("UPDATE execs SET completed_at = 5 WHERE id = 'e1'", "turn 1"),
    ],
)
def test_ends_of_execs_let_go(tmp_path: Path, change: tuple[str, str]) -> None:
    world = World(tmp_path)
    with world.ledger:
        world.setup.raw_sql(
            "INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key, exec_id,"
            " observed_at, payload) VALUES ('a', 't', '3', 'started', '', 'e3', 1, '{}')"
        )
        assert released(world) == set()
        world.setup.raw_sql(change[0])
        assert released(world) == {change[1].removeprefix("turn ")}
        world.setup.raw_sql("DELETE FROM execs WHERE completed_at IS NOT NULL")
        assert released(world) == set()
        assert world.drift() == []


@pytest.mark.parametrize("source", ["superseded:t:1", "death:e1", "absorbed:t:2", "refused:r0", "refused:r1"])
def test_a_release_taken_back_holds_again(tmp_path: Path, source: str) -> None:
    world = World(tmp_path)
    with world.ledger:
        before = world.setup.raw_sql("SELECT * FROM turns"), world.setup.raw_sql("SELECT * FROM intents")
        world.ledger.retain("a", Observation(KEYS[0], source, 1, {}))
        assert (world.setup.raw_sql("SELECT * FROM turns"), world.setup.raw_sql("SELECT * FROM intents")) != before
        assert world.drift() == []
        world.setup.raw_sql("DELETE FROM session_events WHERE kind = 'observed'")
        assert (world.setup.raw_sql("SELECT * FROM turns"), world.setup.raw_sql("SELECT * FROM intents")) == before
        assert world.drift() == []


def released(world: World) -> set[str]:
    rows = world.setup.raw_sql("SELECT provider_turn FROM turns WHERE session_id = 'a' AND released = 1")
    return {str(turn) for (turn,) in rows}


def run(steps: list[tuple[int, int, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        with world.ledger:
            for step in steps:
                world.do(*step)
                assert world.drift() == [], step


@given(operations)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_lists_equal_their_folds_after_any_operation(steps: list[tuple[int, int, int, int]]) -> None:
    run(steps)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@given(st.lists(st.tuples(st.integers(0, 200), small, small, small), min_size=10, max_size=60))
@settings(max_examples=2000, deadline=None)
def test_lists_equal_their_folds_for_hours(steps: list[tuple[int, int, int, int]]) -> None:
    run(steps)


receipts = st.lists(
    st.tuples(
        st.sampled_from(THREADS),
        st.sampled_from(TURNS),
        st.sampled_from(("started", "usage", "completed", "output")),
        st.integers(0, 3),
    ),
    max_size=14,
)


def rows_of(chosen: list[tuple[str, str, str, int]]) -> list[tuple[str, str, str, Any]]:
    """Receipts that cannot contradict each other."""
    return [
        (thread, turn, kind, {"n": number} if kind == "usage" else {"status": "completed"})
        for thread, turn, kind, number in chosen
    ]


def state(ledger: Ledger) -> Any:
    """What the lists show, without the seqs, which tell the order of recording."""
    return [
        (row.session_id, row.artifact_key, row.observed_at, len(row.providers), row.usage.streams)
        for row in ledger.inputs()
    ]


@given(receipts, st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_order_and_repetition_of_receipts_do_not_matter(chosen: list[tuple[str, str, str, int]], random: Any) -> None:
    rows = rows_of(chosen)
    shuffled = [*rows, *rows]
    random.shuffle(shuffled)
    seen = []
    for order in (rows, shuffled):
        with tempfile.TemporaryDirectory() as folder:
            setup = SqliteSetup(Path(folder))
            with setup.open() as ledger:
                ledger.create_session(id="a", artifact_key=KEYS[0], cwd="/f")
                for row in order:
                    ledger.record("a", *row)
                before = ledger.history("a")
                assert ledger.record_many("a", rows) == (0, len(rows))
                assert ledger.history("a") == before
                assert ledger.verify() == []
                keys = {(event.thread, event.turn, event.kind, str(event.payload)) for event in before[1:]}
                with raw(setup.path) as connection:
                    turns = set(
                        connection.execute(
                            "SELECT provider_thread, provider_turn, status, start_seq IS NULL, capture FROM turns"
                        )
                    )
                seen.append((keys, turns, state(ledger)))
    assert seen[0] == seen[1]
