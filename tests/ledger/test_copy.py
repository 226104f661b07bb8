"""A whole ledger moved: every receipt with its number, and the same answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.ledger import moving_scenes as scenes
from tests.ledger.moving_scenes import answers, furnish, new_ledger, own_home, rows_of, tables
from turnlog import ConflictError, Driver, InvalidError, Ledger, StaleError, open_ledger
from turnlog.ledger.copy_tables import TABLES
from turnlog.ledger.copying import Copying
from turnlog.ledger.migrate import migrations

__all__ = ["own_home"]

BACKENDS = ["sqlite", "postgres"]


def copy(source: str, target: str) -> Copying:
    with open_ledger(source) as ledger:
        return ledger.copy_to(target)


def test_there_and_back_is_equal_receipt_by_receipt_and_answers_the_same(tmp_path: Path) -> None:
    first = furnish(tmp_path)
    middle, last = new_ledger("postgres", tmp_path), new_ledger("sqlite", tmp_path)
    done = copy(first, middle)
    copy(middle, last)
    held = tables(first)
    assert done.receipts == len(held["copy_events"]) > 30
    assert all(held[table.read] for table in TABLES if table.read not in {"copy_work_aliases", "copy_problems"})
    assert tables(middle) == held
    assert tables(last) == held
    wanted = answers(first)
    assert wanted["search"]
    assert answers(middle) == wanted
    assert answers(last) == wanted
    for url in (middle, last):
        with open_ledger(url) as ledger:
            assert ledger.verify() == []


def test_sqlite_to_sqlite(tmp_path: Path) -> None:
    first, second = furnish(tmp_path), new_ledger("sqlite", tmp_path)
    copy(first, second)
    assert tables(second) == tables(first)
    assert answers(second) == answers(first)


def test_every_table_is_copied_or_made_again() -> None:
    derived = {
        "ledger_meta", "releases", "turns", "intents", "captures", "passage_words", "rollup_state", "rollup_dirty",
        "rollup_sessions", "rollup_kinds", "rollup_prices", "streams", "loose_gaps", "usage_buckets", "pushed",
    }  # fmt: skip
    made = set()
    for step in migrations("sqlite"):
        made |= set(re.findall(r"CREATE (?:VIRTUAL )?TABLE (\w+)", step.sql))
    copied = {"agent_sessions" if table.read == "copy_inputs" else re.sub("copy_", "", table.read) for table in TABLES}
    names = {
        "sessions": "agent_sessions", "events": "session_events", "problems": "source_problems",
        "natives": "native_sessions", "aliases": "session_aliases", "places": "receipt_places",
    }  # fmt: skip
    assert made - derived == {names.get(name, name) for name in copied}


@pytest.mark.parametrize("kind", BACKENDS)
def test_every_column_is_copied(tmp_path: Path, kind: str) -> None:
    url = new_ledger(kind, tmp_path)
    open_ledger(url).close()
    own = {"depth", "number", "txid"}
    for table in TABLES:
        if table.read in {"copy_inputs", "copy_sessions"}:
            continue
        with open_ledger(url) as ledger, ledger._store._backend.read() as tx:
            text = tx._queries[table.put]  # type: ignore[attr-defined]
        name = re.search(r"INSERT INTO (\w+)", text)
        assert name is not None
        if kind == "sqlite":
            found = rows_of(url, f"SELECT name FROM pragma_table_info('{name[1]}')")
        else:
            found = rows_of(url, f"SELECT column_name FROM information_schema.columns WHERE table_name = '{name[1]}'")
        assert {row[0] for row in found} - own == set(table.columns) - own, table.read


@pytest.mark.parametrize("kind", BACKENDS)
def test_numbers_go_on_behind_the_copied_ones(tmp_path: Path, kind: str) -> None:
    first, second = furnish(tmp_path), new_ledger(kind, tmp_path)
    copy(first, second)
    last = max(row[0] for row in tables(first)["copy_events"])
    with open_ledger(second) as ledger:
        assert ledger.create_session(cwd="/f").captured == last + 1
        assert ledger.request("session_work", "steer", "x")
        ledger.import_histories(provider="codex", roots=[tmp_path / "codex"])
        assert ledger.verify() == []


def test_a_number_that_was_given_and_deleted_is_not_given_again(tmp_path: Path) -> None:
    first, second = furnish(tmp_path), new_ledger("sqlite", tmp_path)
    ((last,),) = rows_of(first, "SELECT max(seq) FROM session_events")
    rows_of(first, f"DELETE FROM session_events WHERE seq = {last}")
    copy(first, second)
    with open_ledger(second) as ledger:
        assert ledger.create_session(cwd="/f").captured == last + 1


@pytest.mark.parametrize("kind", BACKENDS)
def test_made_again_it_takes_what_is_new(tmp_path: Path, kind: str) -> None:
    first, second = furnish(tmp_path), new_ledger(kind, tmp_path)
    copy(first, second)
    with open_ledger(first) as ledger:
        ledger.rename_session("session_work", "Another name")
        ledger.accept_turn("session_work", _driver(ledger), "request-2", "turn-late")
        scenes.talk(ledger, "session_work", "turn-late", thread="thread-w")
        ledger.reparse_archive()  # text has other numbers now
    copy(first, second)
    assert tables(second) == tables(first)
    assert answers(second) == answers(first)
    with open_ledger(second) as ledger:
        assert ledger.verify() == []


def _driver(ledger: Ledger) -> Driver:
    found = ledger.driver("session_work")
    assert found is not None
    return found


@pytest.mark.parametrize("kind", BACKENDS)
def test_what_was_pruned_since_is_gone_there_too(tmp_path: Path, kind: str) -> None:
    first, second = furnish(tmp_path), new_ledger(kind, tmp_path)
    copy(first, second)
    with open_ledger(first) as ledger:
        session = next(each.id for each in ledger.sessions(all=True) if each.id.startswith("codex:"))
        assert ledger.prune_session(session).receipts
    copy(first, second)
    assert tables(second) == tables(first)
    assert answers(second) == answers(first)


@pytest.mark.parametrize("kind", BACKENDS)
def test_a_ledger_that_holds_something_is_refused(tmp_path: Path, kind: str) -> None:
    first, second = furnish(tmp_path), new_ledger(kind, tmp_path)
    with open_ledger(second) as ledger:
        ledger.create_session(id="own", cwd="/f")
    before = tables(second)
    with pytest.raises(ConflictError) as caught:
        copy(first, second)
    assert "push" in caught.value.hint
    assert tables(second) == before


def test_a_copy_that_was_written_to_is_refused(tmp_path: Path) -> None:
    first, second = furnish(tmp_path), new_ledger("sqlite", tmp_path)
    copy(first, second)
    with open_ledger(second) as ledger:
        ledger.create_session(id="own", cwd="/f")
    with pytest.raises(ConflictError, match="written to since") as caught:
        copy(first, second)
    assert "push" in caught.value.hint
    with open_ledger(second) as ledger:
        assert ledger.session("own") is not None


@pytest.mark.parametrize("what", ["receipt", "exec", "request"])
def test_anything_of_its_own_in_a_copy_is_never_lost(tmp_path: Path, what: str) -> None:
    first, second = furnish(tmp_path), new_ledger("sqlite", tmp_path)
    copy(first, second)
    with open_ledger(second) as ledger:
        if what == "receipt":
            ledger.record("session_work", "thread-w", "there", "usage", {"n": 1})
        elif what == "exec":
            ledger.start_exec(id="own")
        else:
            ledger.request("session_work", "steer", "own")
    with open_ledger(first) as ledger:
        scenes.talk(ledger, "session_work", "here", thread="thread-w")
        ledger.request("session_work", "steer", "here")
    before = tables(second)
    with pytest.raises(ConflictError):
        copy(first, second)
    held = tables(second)
    for table in ("copy_events", "copy_execs", "copy_requests"):
        assert set(before[table]) <= set(held[table])


def test_a_ledger_is_not_copied_into_itself(tmp_path: Path) -> None:
    first = furnish(tmp_path)
    with pytest.raises(ConflictError, match="same ledger"):
        copy(first, first)


@pytest.mark.parametrize("kind", BACKENDS)
def test_a_copy_has_an_identity_of_its_own(tmp_path: Path, kind: str) -> None:
    first, second = furnish(tmp_path), new_ledger(kind, tmp_path)
    copy(first, second)
    with open_ledger(first) as ledger:
        _, cursor = ledger._store.tail.read(None, 5)
    with open_ledger(second) as ledger:
        with pytest.raises(StaleError):
            ledger._store.tail.read(cursor, 5)
        rows, _ = ledger._store.tail.read(None, 10_000)
        assert {row.seq for row in rows} == {row[0] for row in tables(first)["copy_events"]}


def test_a_payload_that_is_no_json_comes_along(tmp_path: Path) -> None:
    first, second, third = furnish(tmp_path), new_ledger("postgres", tmp_path), new_ledger("sqlite", tmp_path)
    rows_of(
        first,
        "INSERT INTO session_events (session_id, kind, receipt_key, observed_at, payload)"
        " VALUES ('session_work', 'observed', 'x:events.jsonl:1', 1, '{')",
    )
    copy(first, second)
    copy(second, third)
    assert tables(third) == tables(first)


def test_text_that_postgresql_cannot_hold_is_named(tmp_path: Path) -> None:
    first, second, third = furnish(tmp_path), new_ledger("postgres", tmp_path), new_ledger("sqlite", tmp_path)
    rows_of(first, "UPDATE tasks SET issue_title = 'a' || char(0) || 'b'")
    with pytest.raises(InvalidError, match="tasks"):
        copy(first, second)
    copy(first, third)
    assert tables(third) == tables(first)


def test_what_others_write_meanwhile_is_not_in_it(tmp_path: Path) -> None:
    first, second = furnish(tmp_path), new_ledger("sqlite", tmp_path)
    before = tables(first)
    with open_ledger(first) as ledger, open_ledger(first) as other:
        late = iter(["late"])

        def progress(_: Copying) -> None:
            for name in late:
                other.create_session(id=name, cwd="/f")

        ledger.copy_to(second, progress=progress)
        assert other.session("late") is not None
    assert tables(second) == before


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    first, second = furnish(tmp_path), new_ledger("sqlite", tmp_path)
    seen: list[tuple[int, int]] = []
    with open_ledger(first) as ledger:
        ledger.copy_to(second, progress=lambda at: seen.append((at.rows, at.rows_total)))
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] == sum(len(rows) for name, rows in tables(first).items() if name != "copy_inputs")
