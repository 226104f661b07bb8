"""How often an import asks PostgreSQL: as often for a batch of many conversations and receipts as for one of few."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from tests.bench.big_postgres import build
from tests.intake.plain import READER, call, line
from tests.ledger.moving_scenes import rows_of
from tests.ledger.sqlite_setup import SqliteSetup
from tests.postgres_server import PostgresSetup, shared
from turnlog import Ledger
from turnlog.intake.importer import import_sources
from turnlog.ledger.import_conversations import Conversation, NewConversation, import_key
from turnlog.ledger.import_facts import Told
from turnlog.ledger.imports import Observation, Row
from turnlog.ledger.postgres_connection import Connection
from turnlog.ledger.postgres_tx import _for_each
from turnlog.receipts import canonical
from turnlog.testing.store_suite import StoreSetup

AT = 1_770_000_000_000
A_BATCH = 75
"""How often an import waits that writes one batch, with what it asks before and behind it: once for most questions,
three times for a statement with many rows, of which one or two are round trips."""


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often a connection waited for the server, as its only member."""
    counted = [0]
    wait = Connection.wait

    def count(self: Connection, *args: Any, **given: Any) -> Any:
        counted[0] += 1
        return wait(self, *args, **given)

    monkeypatch.setattr(Connection, "wait", count)
    return counted


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    (tmp_path / "ledger").mkdir()
    setup: StoreSetup = SqliteSetup(tmp_path / "ledger") if request.param == "sqlite" else PostgresSetup(shared())
    with setup.open() as ledger:
        yield ledger


@pytest.fixture
def remote() -> Iterator[Ledger]:
    with PostgresSetup(shared()).open() as ledger:
        yield ledger


def asked(waits: list[int], call: Callable[[], object]) -> int:
    before = waits[0]
    call()
    return waits[0] - before


def write(folder: Path, files: int, calls: int) -> None:
    """Files of conversations of their own that each tell of one conversation of them all, too."""
    folder.mkdir()
    for number in range(files):
        name = f"{folder.name}-{number}"
        lines = [line(name, "t1", "started", at=AT, text="hello", cwd="/f")]
        lines += [call(name, "t1", f"{name}-{each}", at=AT + each) for each in range(calls)]
        lines += [line(f"{folder.name}-all", "t1", "completed", at=AT + number, payload={"status": str(number)})]
        (folder / f"{name}.jsonl").write_bytes(b"".join(each + b"\n" for each in lines))


def take(ledger: Ledger, folder: Path) -> int:
    return import_sources(ledger._store, [READER], roots=[folder], variables={}).new


def test_an_import_asks_as_often_for_a_batch_of_many_receipts_as_for_one_of_few(
    remote: Ledger, tmp_path: Path, waits: list[int]
) -> None:
    write(tmp_path / "first", 2, 1)
    take(remote, tmp_path / "first")  # what is prepared is so from now on
    write(tmp_path / "few", 2, 2)
    write(tmp_path / "many", 40, 25)
    few = asked(waits, lambda: take(remote, tmp_path / "few"))
    many = asked(waits, lambda: take(remote, tmp_path / "many"))
    assert few <= A_BATCH
    assert many <= A_BATCH
    assert len(remote.history("claude:many-7")) == 27
    conflicts = [event for event in remote.history("claude:many-all") if event.kind == "observed"]
    assert len(conflicts) == 39
    assert {each.kind for each in remote.verify()} == {"conflict"}


def made(ledger: Ledger, *natives: str) -> list[Conversation]:
    new = [
        NewConversation(provider="claude", native=native, at=AT, cwd="/w", model=None, interactive=True)
        for native in natives
    ]
    with ledger._store.imports.batch() as tx:
        return tx.create(new)


def observed(ledger: Ledger, session: str) -> list[tuple[str, Any]]:
    """The input that each observation is about, and what it says."""
    rows = [event.payload for event in ledger.history(session) if event.kind == "observed"]
    return [(row["input_id"], row["evidence"]) for row in rows]


def test_observations_of_many_turns_are_one_question_of_each_kind(remote: Ledger, waits: list[int]) -> None:
    one, two = made(remote, "one", "two")

    def observe(first: int, last: int) -> None:
        rows = [
            Observation((one, two)[n % 2], f"note:{n}", canonical({"n": n}), AT, ("one", f"t{n}"))
            for n in range(first, last)
        ]
        with remote._store.imports.batch() as tx:
            tx.observe(rows)

    observe(0, 4)
    some = asked(waits, lambda: observe(4, 8))
    assert asked(waits, lambda: observe(8, 408)) <= some
    assert len(observed(remote, "claude:one")) == 204


@pytest.mark.timeout(300)
def test_what_an_import_asks_for_many_at_once_uses_indexes() -> None:
    url = shared().url(shared().new_database())
    build(url, 2_000, open_every=100)
    numbers = range(1_000, 1_050)
    sessions, keys = [f"session_{n:032x}" for n in numbers], [f"{n:032x}" for n in numbers]
    turns = {"session": sessions, "thread": [f"thread_{key}" for key in keys], "turn": [f"turn_{key}" for key in keys]}
    named = {"provider": ["codex"] * 50, "native": turns["thread"]}
    questions: dict[str, dict[str, list[Any]]] = {
        "conversation": named,
        "conversation_by_alias": named,
        "conversation_by_id": {"id": sessions},
        "pruned_to": {"session": sessions},
        "find_captured": {"key": keys},
        "start_attribution": turns,
        "find_receipt": {**turns, "kind": ["completed"] * 50, "key": [""] * 50},
        "capture_of_turn": turns,
        "capture_by_key": {"key": keys},
        "latest_usage": {"session": sessions},
    }
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET jit = off; SET random_page_cost = 1.1")
        for name, columns in questions.items():
            plan = [str(row[0]) for row in connection.execute(f"EXPLAIN {_for_each(name, columns)}", columns)]
            for table in ("session_events", "turns", "captures", "agent_sessions"):
                assert not any(f"Seq Scan on {table} " in step for step in plan), (name, plan)


# --- the same on both backends as one after the other


def test_observations_of_a_batch_are_on_the_inputs_of_their_turns_and_the_first_stays(ledger: Ledger) -> None:
    [one, two] = made(ledger, "one", "two")
    with ledger._store.imports.batch() as tx:
        tx.receipts([(one, Row("one", "t1", "started", "{}", AT))])
    new = ledger.replace_input("claude:one", one.capture, cwd="/new", exec_id=ledger.start_exec().id)
    two.pruned_to = AT
    with ledger._store.imports.batch() as tx:
        tx.observe(
            [
                Observation(one, "a", '{"n":1}', AT, ("one", "t1")),
                Observation(one, "a", '{"n":2}', AT, ("one", "t1")),
                Observation(one, "a", '{"n":3}', AT, None),
                Observation(two, "a", '{"n":4}', AT, None),
                Observation(two, "a", '{"n":5}', AT + 1, ("two", "unknown")),
            ]
        )
        tx.observe([])
    assert observed(ledger, "claude:one") == [(import_key("claude:one"), {"n": 1}), (new.artifact_key, {"n": 3})]
    assert observed(ledger, "claude:two") == [(import_key("claude:two"), {"n": 5})]
    assert ledger.verify() == []


def test_conversations_are_found_by_thread_alias_and_id_at_once(ledger: Ledger) -> None:
    driven = ledger.create_session(id="session_d", cwd="/f", provider="claude")
    ledger.record_connection(driven.id, ledger.claim_driver(driven.id, None, ledger.start_exec().id), "/sock", "d")
    other = ledger.create_session(id="session_o", cwd="/f", provider="codex")
    [own] = made(ledger, "own")
    with ledger._store.imports.batch() as tx:
        tx.aliases([("claude", "before", other.id), ("claude", "earlier", other.id)])
    names = [("claude", name) for name in ("own", "before", "nobody", "d", "earlier", "own")]
    with ledger._store.imports.batch() as tx:
        found = tx.conversations(names)
        again = tx.conversations(names)
        assert tx.conversations([]) == {}
    assert {name: (each.session_id, each.capture, each.own) for (_, name), each in found.items()} == {
        "own": (own.session_id, own.capture, True),
        "d": (driven.id, driven.captured, False),
        "before": (other.id, other.captured, False),
        "earlier": (other.id, other.captured, False),
    }
    assert found["claude", "before"].native == found["claude", "earlier"].native
    assert again == found


def test_a_conversation_that_another_process_has_just_made_keeps_its_input(ledger: Ledger) -> None:
    [first] = made(ledger, "one")
    both = made(ledger, "two", "one")
    assert [(each.session_id, each.capture == first.capture) for each in both] == [
        ("claude:two", False),
        ("claude:one", True),
    ]
    assert ledger.verify() == []


def test_an_input_of_another_session_is_not_taken_for_that_of_an_import(ledger: Ledger) -> None:
    ledger.create_session(id="session_x", artifact_key=import_key("claude:one"), cwd="/f")
    with pytest.raises(Exception, match="already names an input of session session_x"):
        made(ledger, "two", "one")
    assert ledger.session("claude:two") is None


def test_facts_of_a_batch_are_folded_in_their_order(ledger: Ledger) -> None:
    [one, two] = made(ledger, "one", "two")
    told = [
        (one, Told(at=500, first=500, cwd="/b", model="m1", title="second", version="2")),
        (two, Told(at=7, first=7, cwd="/two", relation="subagent", parent="one", parent_turn="t9")),
        (one, Told(at=100, first=100, cwd="/a", model="m2", title="first")),
        (one, Told(title="made", title_rank=1, title_at=3)),
        (two, Told(relation="fork", parent="zero")),
        (one, Told(root="/repo")),
    ]
    with ledger._store.imports.batch() as tx:
        tx.learn(told, lambda cwd, root: f"{root}|{cwd}" if root else None)
        tx.learn([], lambda cwd, root: root or cwd)
    shown = "SELECT id, title, cwd, repo, model, created_at, interactive FROM agent_sessions ORDER BY id"
    assert rows_of(ledger.url, shown) == [
        ("claude:one", "made", "/a", "/repo|/a", "m2", 100, 1),
        ("claude:two", "Untitled", "/two", None, None, 7, 0),
    ]
    kept = "SELECT began_at, version, title_rank, parent_id, parent_turn, relation FROM native_sessions ORDER BY id"
    assert rows_of(ledger.url, kept) == [(100, "2", 1, None, None, None), (7, None, 0, "one", "t9", "subagent")]


def test_troubles_of_blocks_of_one_source_are_those_of_its_last_reading(ledger: Ledger, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(call("a", "t", "m") + b"\nbroken\n")
    take(ledger, folder)
    [source] = ledger._store.imports.sources()
    with ledger._store.imports.batch() as tx:
        tx.problems(
            [
                (source.id, 0, [(1, "one", 2, "", None, 0), (60, "gone", 2, "", None, 0)]),
                (source.id, 50, [(70, "two", 2, orjson.dumps({"n": 1}).decode(), "claude:a", 1)]),
            ]
        )
    found = ledger._store.imports.problems()
    assert [(offset, kind) for _, offset, kind, _, _ in found] == [(1, "one"), (70, "two")]
