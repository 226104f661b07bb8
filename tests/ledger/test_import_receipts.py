"""Receipts of an import are stored all at once, and it is as if they had come one by one: on both backends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import postgres_server
from tests.ledger.sqlite_setup import SqliteSetup
from tests.postgres_server import PostgresSetup
from turnlog import Ledger
from turnlog.ledger.import_conversations import Conversation, NewConversation, import_key
from turnlog.ledger.imports import Row
from turnlog.receipts import canonical
from turnlog.testing.store_suite import StoreSetup

AT = 1_770_000_000_000
Stored = list[tuple[int | None, str | None]]


@pytest.fixture(params=["sqlite", "postgres"])
def setup(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSetup:
    return SqliteSetup(tmp_path) if request.param == "sqlite" else PostgresSetup(postgres_server.shared())


@pytest.fixture
def ledger(setup: StoreSetup) -> Iterator[Ledger]:
    with setup.open() as ledger:
        yield ledger


def conversation(ledger: Ledger, native: str) -> Conversation:
    with ledger._store.imports.batch() as tx:
        new = NewConversation(provider="claude", native=native, at=AT, cwd="/w", model=None, interactive=True)
        known = tx.conversations([("claude", native)])
        return known.get(("claude", native)) or tx.create([new])[0]


def append(ledger: Ledger, rows: Sequence[tuple[Conversation, Row]]) -> Stored:
    with ledger._store.imports.batch() as tx:
        return tx.receipts(rows)


def row(native: str, turn: str, kind: str, at: int = AT, **payload: object) -> Row:
    return Row(native, turn, kind, canonical(payload), at)


def turns(ledger: Ledger, native: str) -> list[tuple[str | None, str, object]]:
    found = ledger.history(f"claude:{native}")
    return [(event.turn, event.kind, event.payload) for event in found if event.kind not in {"captured", "observed"}]


def test_of_many_receipts_each_finds_its_own_seq_and_of_equal_ones_the_first_has_it(ledger: Ledger) -> None:
    one = conversation(ledger, "one")
    append(ledger, [(one, row("one", "t70", "completed", status="failed"))])
    rows = [(one, row("one", f"t{number}", "completed", status="completed")) for number in range(150)]
    rows.insert(3, (one, row("one", "t2", "completed", status="interrupted")))  # near the first of its key
    rows.append((one, row("one", "t1", "completed", status="completed")))  # far behind it
    stored = append(ledger, rows)
    known = {3: None, 71: '{"status":"failed"}', 151: None}
    assert [number for number, (seq, _) in enumerate(stored) if seq is None] == list(known)
    assert (stored[3][1], stored[71][1], stored[151][1]) == ('{"status":"completed"}', '{"status":"failed"}', None)
    seqs = [seq for seq, _ in stored if seq is not None]
    assert seqs == sorted(seqs)
    told = {event.seq: event.turn for event in ledger.history("claude:one") if event.kind == "completed"}
    turns_told = [told[seq] for seq in seqs]
    assert turns_told == [each.turn for number, (_, each) in enumerate(rows) if number not in known]


def test_receipts_of_a_batch_keep_their_order_and_starts_their_input(ledger: Ledger) -> None:
    one, two = conversation(ledger, "one"), conversation(ledger, "two")
    rows = [
        (one, row("one", "t1", "started")),
        (two, row("two", "t1", "usage", call="a")),
        (one, row("one", "t1", "usage", call="b")),
        (one, row("one", "t1", "completed", status="completed")),
        (one, row("one", "t2", "started")),
        (two, row("two", "t1", "output", text="\0 done")),
    ]
    seqs = [seq for seq, _ in append(ledger, rows) if seq is not None]
    assert len(seqs) == 6
    assert seqs == sorted(seqs)
    assert turns(ledger, "one") == [
        ("t1", "started", {}),
        ("t1", "usage", {"call": "b"}),
        ("t1", "completed", {"status": "completed"}),
        ("t2", "started", {}),
    ]
    assert turns(ledger, "two") == [("t1", "usage", {"call": "a"}), ("t1", "output", {"text": "\0 done"})]
    of_input = [event.kind for event in ledger.input_summary(import_key("claude:one"))]
    assert of_input == ["started", "usage", "completed", "started"]
    assert ledger.verify() == []


def test_of_two_equal_receipts_in_a_batch_the_first_is_new(ledger: Ledger) -> None:
    one = conversation(ledger, "one")
    same = (one, row("one", "t1", "usage", call="a"))
    begun = (one, row("one", "t1", "started"))
    first = append(ledger, [begun, same, same, begun])
    assert [seq is not None for seq, _ in first] == [True, True, False, False]
    assert append(ledger, [same, begun]) == [(None, None), (None, None)]
    assert len(turns(ledger, "one")) == 2


def test_a_receipt_that_says_something_else_gets_the_text_of_the_first(ledger: Ledger) -> None:
    one = conversation(ledger, "one")
    done = row("one", "t1", "completed", status="completed")
    failed = row("one", "t1", "completed", status="failed")
    told = append(ledger, [(one, done), (one, failed), (one, done)])
    assert told[0][0] is not None
    assert told[1:] == [(None, done.text), (None, None)]
    assert turns(ledger, "one") == [("t1", "completed", {"status": "completed"})]


def test_receipts_that_were_pruned_are_not_taken_again(ledger: Ledger) -> None:
    one = conversation(ledger, "one")
    one.pruned_to = AT
    old, new = row("one", "t1", "usage", AT, call="a"), row("one", "t2", "usage", AT + 1, call="b")
    told = append(ledger, [(one, old), (one, new), (one, old)])
    assert [seq is not None for seq, _ in told] == [False, True, False]
    assert turns(ledger, "one") == [("t2", "usage", {"call": "b"})]


def test_an_empty_batch_stores_nothing(ledger: Ledger) -> None:
    assert append(ledger, []) == []


KINDS = st.sampled_from(["started", "usage", "completed", "output"])
ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["t1", "t2"]), KINDS, st.integers(0, 2)), max_size=12)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS, st.integers(1, 5))
def test_a_batch_stores_what_its_receipts_would_one_by_one(rows: list[tuple[str, str, str, int]], step: int) -> None:
    with (
        TemporaryDirectory() as one,
        TemporaryDirectory() as other,
        SqliteSetup(Path(one)).open() as whole,
        SqliteSetup(Path(other)).open() as single,
    ):
        told: list[Stored] = []
        for ledger, size in ((whole, step), (single, 1)):
            where = {name: conversation(ledger, name) for name in "ab"}
            all_ = [(where[name], row(name, turn, kind, AT + n, n=n)) for name, turn, kind, n in rows]
            told.append([each for at in range(0, len(all_), size) for each in append(ledger, all_[at : at + size])])
        assert told[0] == told[1]
        assert [turns(whole, name) for name in "ab"] == [turns(single, name) for name in "ab"]
        assert whole.verify() == single.verify() == []


def test_a_start_of_a_driven_turn_is_attributed_to_its_input(ledger: Ledger) -> None:
    session = ledger.create_session(id="session_" + "a" * 32, artifact_key="b" * 32, cwd="/w", provider="claude")
    driven = Conversation(session.id, 1, session.captured, own=False)
    append(ledger, [(driven, row("th", "t1", "started")), (driven, row("th", "t1", "usage", call="a"))])
    assert [event.kind for event in ledger.input_summary("b" * 32)] == ["started", "usage"]
    assert ledger.verify() == []
