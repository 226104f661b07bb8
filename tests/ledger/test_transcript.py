"""Transcripts: what was said, in order, wherever it is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import turnlog
from tests.ledger.shelf import BEGIN, Shelf, read
from turnlog.queries.transcript import Entry, kin, transcript


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    made = Shelf(tmp_path / "ledger.db")
    yield made
    made.store.close()


def entries(shelf: Shelf, session: str) -> list[Entry]:
    return list(transcript(shelf.store, session, read))


def texts(shelf: Shelf, session: str) -> list[str | None]:
    return [entry.text for entry in entries(shelf, session)]


def test_lines_and_their_parts_come_in_the_order_of_the_file(shelf: Shelf) -> None:
    session, source = shelf.conversation("one"), shelf.source("/x/one.jsonl")
    shelf.write(
        session,
        source,
        [("user", "a"), [("reasoning", "b"), ("tool_input", "c")], ("tool_output", "d")],
        turn="t1",
    )
    shelf.write(session, source, [("assistant", "e")], at=None, turn=None)  # appended later
    assert [(each.role, each.text, each.turn) for each in entries(shelf, session)] == [
        ("user", "a", "t1"),
        ("reasoning", "b", "t1"),
        ("tool_input", "c", "t1"),
        ("tool_output", "d", "t1"),
        ("assistant", "e", None),
    ]
    first, *_, last = entries(shelf, session)
    assert (first.at, first.path, first.offset, first.seq) == (BEGIN, "/x/one.jsonl", 0, None)
    assert last.at is None


def test_other_conversations_in_the_same_file_are_left_out(shelf: Shelf) -> None:
    one, two, source = shelf.conversation("one"), shelf.conversation("two"), shelf.source("/x/both.jsonl")
    shelf.write(one, source, [("user", "a")])
    shelf.write(two, source, [("user", "b")])
    shelf.write(one, source, [("user", "c")])
    assert texts(shelf, one) == ["a", "c"]
    assert texts(shelf, two) == ["b"]


def test_several_files_are_merged_by_time_and_each_keeps_its_order(shelf: Shelf) -> None:
    session = shelf.conversation("one")
    late, early = shelf.source("/x/late.jsonl"), shelf.source("/x/early.jsonl")
    shelf.write(session, late, [("user", "3"), ("user", "4")], at=BEGIN + 60_000)
    shelf.write(session, late, [("user", "4 too")], at=None)
    shelf.write(session, late, [("user", "clock went back")], at=BEGIN)
    shelf.write(session, early, [("user", "1"), ("user", "2")])
    shelf.write(session, early, [("user", "5")], at=BEGIN + 90_000)
    assert texts(shelf, session) == ["1", "2", "3", "4", "4 too", "clock went back", "5"]


def test_a_transcript_begins_before_the_end_is_read(shelf: Shelf) -> None:
    session, source = shelf.conversation("one"), shelf.source("/x/one.jsonl")
    for number in range(3):
        shelf.write(session, source, [("user", f"{number} {step}") for step in range(700)])
    shelf.sql("UPDATE archive SET data = zeroblob(9) WHERE start > 0")
    said = transcript(shelf.store, session, read)
    assert next(said).text == "0 0"
    rest = list(said)
    assert len(rest) == 2_099
    assert rest[698].text == "0 699"
    assert all(each.text is None and "damaged" in (each.problem or "") for each in rest[699:])


def test_text_that_is_not_in_the_archive_is_named_and_nothing_else_is_lost(shelf: Shelf) -> None:
    session, source = shelf.conversation("one"), shelf.source("/x/one.jsonl")
    shelf.write(session, source, [("user", "a")])
    shelf.write(session, source, [("user", "b")], archive=False)
    shelf.write(session, source, [("user", "c")])
    assert [(each.text, each.problem) for each in entries(shelf, session)] == [
        ("a", None),
        (None, "not in the archive"),
        ("c", None),
    ]


def test_a_line_of_several_pieces_is_read_whole(shelf: Shelf) -> None:
    session, source = shelf.conversation("one"), shelf.source("/x/one.jsonl")
    huge = "x" * 3_000_000
    shelf.write(session, source, [("user", "a"), [("tool_output", huge), ("note", "b")], ("user", "c")])
    assert texts(shelf, session) == ["a", huge, "b", "c"]


def drive(shelf: Shelf, session: str, turn: str, prompt: str, answer: dict[str, object] | None) -> None:
    with turnlog.open_ledger(shelf.url) as ledger:
        started = ledger.start_exec(command="this test")
        driver = ledger.claim_driver(session, ledger.driver(session), started.id)
        ledger.record_connection(session, driver, "http://127.0.0.1:1", "one")
        ledger.intend_turn(session, driver, "one", turn, {"text": prompt}, turn=turn)
        if answer is not None:
            ledger.record(session, "one", turn, "output", answer)
        ledger.release_driver(session, driver)


def test_what_turnlog_drove_is_told_from_its_receipts(shelf: Shelf) -> None:
    with turnlog.open_ledger(shelf.url) as ledger:
        session = ledger.create_session(cwd="/w", provider="codex").id
    drive(shelf, session, "t1", "please", {"text": "done"})
    drive(shelf, session, "t2", "count", {"text": "", "value": {"n": 1}})
    drive(shelf, session, "t3", "again", None)
    said = entries(shelf, session)
    assert [(each.role, each.turn, each.text) for each in said] == [
        ("user", "t1", "please"),
        ("assistant", "t1", "done"),
        ("user", "t2", "count"),
        ("assistant", "t2", '{"n":1}'),
        ("user", "t3", "again"),
    ]
    assert all(each.seq is not None and each.path is None for each in said)


def test_of_a_driven_and_imported_conversation_the_file_tells_and_receipts_what_came_behind_it(shelf: Shelf) -> None:
    session, source = shelf.conversation("one"), shelf.source("/x/one.jsonl")
    shelf.write(session, source, [("user", "please"), ("assistant", "done")], turn="t1")
    drive(shelf, session, "t1", "please", {"text": "done"})
    drive(shelf, session, "t2", "again", None)
    assert texts(shelf, session) == ["please", "done", "again"]


def test_an_answer_that_cannot_be_read_is_a_problem_and_the_rest_is_there(shelf: Shelf) -> None:
    with turnlog.open_ledger(shelf.url) as ledger:
        session = ledger.create_session(cwd="/w", provider="codex").id
    drive(shelf, session, "t1", "please", {"text": "done"})
    shelf.sql("UPDATE session_events SET payload = '{' WHERE kind = 'output'")
    first, second = entries(shelf, session)
    assert first.text == "please"
    assert second.text is None
    assert "not JSON" in (second.problem or "")


def test_kin(shelf: Shelf) -> None:
    parent = shelf.conversation("parent")
    child = shelf.conversation("child", parent_id="parent", parent_turn="t1", relation="subagent", began_at=2)
    fork = shelf.conversation("fork", parent_id="parent", relation="fork", began_at=1, title="other way")
    shelf.conversation("stranger", provider="claude", parent_id="parent", relation="subagent")
    orphan = shelf.conversation("orphan", parent_id="gone", relation="fork")
    origin, children = kin(shelf.store, parent)
    assert origin is None
    assert [(each.session, each.relation, each.turn, each.title) for each in children] == [
        (fork, "fork", None, "other way"),
        (child, "subagent", "t1", None),
    ]
    origin, children = kin(shelf.store, child)
    assert origin is not None
    assert (origin.session, origin.relation, origin.turn) == (parent, "subagent", "t1")
    assert children == ()
    origin, _ = kin(shelf.store, orphan)
    assert origin is not None
    assert origin.session == "codex:gone"
