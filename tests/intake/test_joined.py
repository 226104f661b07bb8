"""Conversations that turnlog drives are one with what is found on disk, whoever came first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import turnlog
from tests.intake.plain import READER, call, line
from tests.ledger.sqlite_setup import raw
from turnlog import Driver, Ledger, Session
from turnlog.harness import Batch
from turnlog.intake.importer import Imported, import_sources
from turnlog.intake.live import apply_batch
from turnlog.ledger import Store, open_store
from turnlog.receipts import Receipt


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with turnlog.open_ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        yield ledger


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path}/ledger.db")
    yield store
    store.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


def drive(ledger: Ledger, thread: str) -> tuple[Session, Driver]:
    exec_id = ledger.start_exec().id
    session = ledger.create_session(cwd="/x", provider="claude")
    driver = ledger.claim_driver(session.id, None, exec_id)
    ledger.record_connection(session.id, driver, None, thread)
    return session, driver


def take(store: Store, folder: Path) -> Imported:
    return import_sources(store, [READER], roots=[folder], variables={})


def rows(store: Store, statement: str) -> list[tuple[Any, ...]]:
    with raw(Path(store.url.removeprefix("sqlite:///"))) as connection:
        return list(connection.execute(statement))


def owners(store: Store) -> set[str]:
    return {name for (name,) in rows(store, "SELECT session_id FROM session_events WHERE kind = 'usage'")}


def test_a_conversation_found_before_its_driver_named_it_goes_on_in_the_drivers(
    ledger: Ledger, store: Store, folder: Path
) -> None:
    (folder / "a.jsonl").write_bytes(line("a", "t0", "talk", text="hello") + b"\n")
    take(store, folder)
    session, _ = drive(ledger, "a")
    with (folder / "a.jsonl").open("ab") as file:
        file.write(line("a", "t1", "started") + b"\n" + call("a", "t1", "m1") + b"\n")
    assert take(store, folder).new == 2
    assert owners(store) == {session.id}
    assert rows(store, "SELECT session_id, native_id FROM native_sessions") == [(session.id, "a")]
    assert take(store, folder).new == 0
    assert ledger.verify() == []


def test_a_thread_left_to_another_provider_stays_that_conversations(ledger: Ledger, store: Store, folder: Path) -> None:
    session, driver = drive(ledger, "a")
    ledger.hand_over(session.id, driver, "codex")
    ledger.record_connection(session.id, driver, None, "b")
    (folder / "a.jsonl").write_bytes(call("a", "t1", "m1") + b"\n")
    take(store, folder)
    assert owners(store) == {session.id}
    assert rows(store, "SELECT id FROM agent_sessions") == [(session.id,)]


@pytest.mark.parametrize(
    ("kind", "written", "told", "agree"),
    [
        ("completed", {"status": "completed", "source": "file"}, {"status": "completed", "duration_ms": 3}, True),
        ("completed", {"status": "completed", "source": "file"}, {"status": "failed"}, False),
        ("output", {"text": "x"}, {"text": "x", "more": 1}, True),
        ("output", {"text": '{"a": 1}'}, {"value": {"a": 1}}, True),
        ("output", {"text": '{"a": 1}'}, {"value": {"a": 2}}, False),
        ("output", {"text": "x"}, {"text": "y"}, False),
    ],
)
@pytest.mark.parametrize("file_first", [True, False])
def test_two_witnesses_that_agree_are_no_conflict(
    ledger: Ledger,
    store: Store,
    folder: Path,
    kind: str,
    written: dict[str, Any],
    told: dict[str, Any],
    agree: bool,
    file_first: bool,
) -> None:
    session, _ = drive(ledger, "a")
    (folder / "a.jsonl").write_bytes(line("a", "t1", kind, payload=written) + b"\n")

    def wire() -> None:
        apply_batch(store, session, "a", Batch(receipts=(Receipt("a", "t1", kind, told),)))

    if file_first:
        take(store, folder)
        wire()
    else:
        wire()
        take(store, folder)
    assert [problem.kind for problem in ledger.verify()] == ([] if agree else ["conflict"])
    (first,) = [event for event in ledger.history(session.id) if event.kind == kind]
    assert first.payload == (written if file_first else told)
