"""Reading OpenCode's database again and again: what is new, while it is written, and when it cannot be read."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.opencode_stored import (
    Db,
    answered,
    asked,
    counters,
    decoded,
    everything,
    kinds,
    lines,
    notes,
    read,
    said,
    source,
    tool,
)
from turnlog.errors import UnavailableError
from turnlog.harness.opencode import connection
from turnlog.harness.opencode.reader import READER


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Db]:
    made = Db(tmp_path / "opencode.db", wal=True)
    yield made
    made.close()


def told(found: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(line["table"], line["id"]) for line in (orjson.loads(raw) for raw, _ in found)]


def test_lines_come_conversation_before_message_before_part_before_what_the_turn_says(db: Db) -> None:
    db.session("s2", 2000)
    db.session("s1", 1000)
    db.turn("s1", 1, 1000)
    db.turn("s2", 1, 2000)
    expected = []
    for name in ("s1", "s2"):
        user, reply = f"msg_{name}_1a", f"msg_{name}_1b"
        expected += [
            ("session", name),
            ("message", user),
            ("part", f"prt_{user}"),
            ("message", reply),
            ("part", f"prt_{reply}"),
            ("turn", user),
        ]
    assert told(lines(db.path)) == expected


def test_nothing_new_gives_no_line(db: Db) -> None:
    db.session("s1")
    db.turn("s1", 1, 1000)
    cursor = lines(db.path)[-1][1]
    assert lines(db.path, cursor) == []


def test_new_rows_alone_come_again(db: Db) -> None:
    db.session("s1")
    db.session("s0", 1)
    db.turn("s0", 1, 10)
    db.turn("s1", 1, 1000)
    cursor = lines(db.path)[-1][1]
    db.turn("s1", 2, 1000)  # the same millisecond as rows already read
    found = lines(db.path, cursor)
    user, reply = "msg_s1_2a", "msg_s1_2b"
    assert told(found) == [
        ("message", user),
        ("part", f"prt_{user}"),
        ("message", reply),
        ("part", f"prt_{reply}"),
        ("turn", user),
    ]
    assert lines(db.path, found[-1][1]) == []


def test_an_answer_that_ends_later_comes_again_with_its_turn_and_stays_one_call(db: Db) -> None:
    db.session("s1")
    db.message("s1", "m1", asked(1000))
    db.message("s1", "m2", answered("m1", 1010, completed=None, tokens=counters(0, 0)))
    db.part("s1", "m2", "p2", tool("running"), 1010)
    first = lines(db.path)
    # Hours of other work pass; the conversation's own row does not say that anything changed.
    db.session("s2", 90_000_000)
    db.turn("s2", 1, 90_000_000)
    second = lines(db.path, first[-1][1])
    assert ("message", "m2") not in told(second)
    db.part("s1", "m2", "p2", tool(output="x"), 1500)
    db.message("s1", "m2", answered("m1", 1010, completed=1600, tokens=counters(5, 6)), 1600)
    third = lines(db.path, second[-1][1])
    assert told(third) == [("message", "m2"), ("part", "p2"), ("turn", "m1")]
    reading = decoded([raw for raw, _ in (*first, *second, *third)])
    assert everything(reading)["input_tokens"] == 105
    assert kinds(reading, "m1").count("completed") == 1
    assert lines(db.path, third[-1][1]) == []


def test_a_row_that_changes_twice_in_a_millisecond_comes_twice(db: Db) -> None:
    db.session("s1")
    db.message("s1", "m1", asked(1000))
    db.message("s1", "m2", answered("m1", 1010, tokens=counters(1, 1)), 1500)
    cursor = lines(db.path)[-1][1]
    db.session("s1", title="new")
    db.message("s1", "m2", answered("m1", 1010, tokens=counters(9, 9)), 1500)
    assert ("message", "m2") in told(lines(db.path, cursor))


def test_a_late_commit_with_an_older_time_is_not_lost(db: Db) -> None:
    db.session("s1")
    db.session("s2")
    db.message("s1", "m1", asked(1000))
    db.message("s1", "m2", answered("m1", 1010, completed=1011))
    db.turn("s2", 1, 5000)
    cursor = lines(db.path)[-1][1]
    db.session("s1", updated=3000)
    db.message("s1", "m2", answered("m1", 1010, completed=1011, tokens=counters(77, 7)), 3000)
    assert ("message", "m2") in told(lines(db.path, cursor))


def test_a_time_in_the_future_does_not_hide_what_is_written_until_then(db: Db) -> None:
    db.session("s1")
    db.message("s1", "m1", asked(1000), 9_999_999_999_999)
    db.turn("s1", 2, 2000)
    cursor = lines(db.path)[-1][1]
    db.session("s1", updated=2500)
    db.message("s1", "msg_s1_2b", answered("msg_s1_2a", 2010, tokens=counters(88, 8)), 2500)
    assert ("message", "msg_s1_2b") in told(lines(db.path, cursor))


def test_a_file_that_was_replaced_or_rebuilt_is_read_whole(db: Db) -> None:
    db.session("s1")
    for number in range(3):
        db.turn("s1", number, 1000)
    before = lines(db.path)
    db.connection.execute("DELETE FROM message WHERE id = 'msg_s1_2b'")
    db.connection.execute("DELETE FROM part WHERE message_id = 'msg_s1_2b'")
    db.connection.execute("VACUUM")
    again = lines(db.path, before[-1][1])
    assert ("message", "msg_s1_0a") in told(again)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_reading_cut_off_anywhere_goes_on_and_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    db = Db(tmp_path_factory.mktemp("oc") / "opencode.db", wal=True)
    for name, began in (("s1", 1000), ("s2", 900), ("s3", 1000)):
        db.session(name, began)
        for number in range(2):
            db.turn(name, number, 1000 + number, tokens=counters(10 + number, 1))
    whole = lines(db.path)
    cut = data.draw(st.integers(1, len(whole)))
    head = whole[:cut]
    # Something happens in a conversation that was passed already, or was not.
    db.turn(data.draw(st.sampled_from(["s1", "s2", "s3"])), 7, 1002, tokens=counters(1000, 1))
    tail = lines(db.path, head[-1][1])
    rest = lines(db.path, (tail or head)[-1][1])
    assert lines(db.path, (rest or tail or head)[-1][1]) == []
    reading = decoded([raw for raw, _ in (*head, *tail, *rest)])
    assert everything(reading) == everything(read(db.path))
    db.close()


def test_rows_are_read_while_another_process_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    script = """
import sys
from pathlib import Path
from tests.harness.opencode_stored import Db
db = Db(Path(sys.argv[1]), wal=True)
db.session("s1")
print("ready", flush=True)
for number in range(150):
    db.turn("s1", number, 1000 + number)
    if number % 30 == 0:
        print(number, flush=True)
        sys.stdin.readline()
print("done", flush=True)
sys.stdin.readline()
"""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}"}
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=root
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        found: list[bytes] = []
        cursor = None
        for word in writer.stdout:
            writer.stdin.write("\n")  # it goes on while this process reads
            writer.stdin.flush()
            for raw, behind in lines(path, cursor):
                found.append(raw)
                cursor = behind
            if word.strip() == "done":
                break
    for raw, _ in lines(path, cursor):
        found.append(raw)
    reading = decoded(found)
    assert not reading.troubles
    usage = everything(reading)
    assert (usage["streams"], usage["input_tokens"]) == (150, 15_000)


def state(folder: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_reading_leaves_a_closed_database_in_wal_mode_as_it_was(tmp_path: Path) -> None:
    db = Db(tmp_path / "opencode.db", wal=True)
    db.session("s1")
    db.turn("s1", 1, 1000)
    db.close()
    before = state(tmp_path)
    assert list(before) == ["opencode.db"]
    assert everything(read(tmp_path / "opencode.db"))["streams"] == 1
    assert state(tmp_path) == before


def test_reading_leaves_an_open_database_as_it_was_and_sees_its_log(db: Db) -> None:
    db.session("s1")
    db.turn("s1", 1, 1000)
    before = state(db.path.parent)
    assert len(before) == 3
    assert everything(read(db.path))["streams"] == 1
    assert state(db.path.parent) == before


def test_a_log_without_its_index_in_a_folder_that_cannot_be_written_is_read_from_a_copy(tmp_path: Path) -> None:
    writer = Db(tmp_path / "opencode.db", wal=True)
    writer.session("s1")
    writer.turn("s1", 1, 1000)
    kept = tmp_path / "kept"
    kept.mkdir()
    for ending in ("", "-wal"):
        (kept / f"opencode.db{ending}").write_bytes((tmp_path / f"opencode.db{ending}").read_bytes())
    writer.close()
    before = state(kept)
    kept.chmod(0o500)
    try:
        assert everything(read(kept / "opencode.db"))["streams"] == 1
    finally:
        kept.chmod(0o700)
    assert state(kept) == before


def test_what_a_killed_program_left_in_its_log_is_read_where_it_lies(tmp_path: Path) -> None:
    writer = Db(tmp_path / "opencode.db", wal=True)
    writer.session("s1")
    writer.turn("s1", 1, 1000)
    left = tmp_path / "left"
    left.mkdir()
    for ending in ("", "-wal", "-shm"):
        (left / f"opencode.db{ending}").write_bytes((tmp_path / f"opencode.db{ending}").read_bytes())
    writer.close()
    before = state(left)
    assert everything(read(left / "opencode.db"))["streams"] == 1
    assert state(left) == before


def test_a_database_that_somebody_begins_to_write_while_it_is_read_without_locks_is_refused(tmp_path: Path) -> None:
    db = Db(tmp_path / "opencode.db", wal=True)
    db.session("s1")
    db.session("s2")
    for name in ("s1", "s2"):
        db.turn(name, 1, 1000)
    db.close()
    with contextlib.closing(READER.rows(source(db.path))) as rows:
        found = rows.lines(None)
        next(found)
        again = apsw.Connection(str(db.path))
        again.execute("UPDATE session SET title = 'x'")
        with pytest.raises(UnavailableError, match="being written"):
            list(found)
        again.close()


def test_a_locked_database_is_unavailable_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_MS", 1)
    db = Db(tmp_path / "opencode.db")
    db.session("s1")
    db.connection.execute("BEGIN EXCLUSIVE")
    with pytest.raises(UnavailableError, match="locked"):
        lines(db.path)
    db.close()


@pytest.mark.parametrize("content", [b"hello", b"SQLite format 3\x00" + b"\x00" * 84, b"SQLite format 3\x00"])
def test_a_file_that_is_no_database_is_unavailable(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "opencode.db"
    path.write_bytes(content)
    with pytest.raises(UnavailableError):
        lines(path)


def test_a_missing_or_foreign_database_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        lines(tmp_path / "opencode.db")
    foreign = apsw.Connection(str(tmp_path / "other.db"))
    foreign.execute("CREATE TABLE message (id, body)")
    foreign.close()
    with pytest.raises(UnavailableError, match="not OpenCode's"):
        lines(tmp_path / "other.db")


def test_a_database_that_is_being_made_has_no_conversations_yet(tmp_path: Path) -> None:
    (tmp_path / "opencode.db").touch()
    assert lines(tmp_path / "opencode.db") == [], "SQLite makes the file before it writes to it"
    born = apsw.Connection(str(tmp_path / "opencode.db"))
    born.pragma("journal_mode", "wal")
    assert lines(tmp_path / "opencode.db") == []
    born.close()


def test_damaged_pages_lose_the_conversations_in_them_alone_and_are_a_problem(tmp_path: Path) -> None:
    db = Db(tmp_path / "opencode.db")
    for number in range(12):
        db.session(f"s{number}", 1000 + number)
        db.turn(f"s{number}", 1, 1000 + number * 100, text="x" * 5000)
    size = db.connection.pragma("page_size")
    leaves = "SELECT pageno FROM dbstat WHERE name = 'part' AND pagetype = 'leaf' LIMIT 1"
    target = db.connection.execute(leaves).get
    db.close()
    raw = bytearray((tmp_path / "opencode.db").read_bytes())
    raw[(target - 1) * size : target * size] = b"\xee" * size
    (tmp_path / "opencode.db").write_bytes(raw)
    reading = read(tmp_path / "opencode.db")
    assert reading.troubles
    assert {each.kind for each in reading.troubles} == {"damaged"}
    assert not any(each.usage for each in reading.troubles)
    assert everything(reading)["streams"] == 12
    # What could not be read of an answer might be a tool that never ended: no outcome is made up.
    lost = [name for table, name in told(lines(tmp_path / "opencode.db")) if table == "damage" and name.endswith("b")]
    assert lost
    assert notes(reading) == [f"unknown:{name.split('_')[1]}:{name[:-1]}a" for name in lost]


def test_columns_and_tables_that_a_version_lacks_are_unknown(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    made = apsw.Connection(str(path))
    made.execute("CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT NOT NULL, data TEXT NOT NULL)")
    for name, data in (("m1", asked(1)), ("m2", answered("m1", 2, tokens=counters(3, 4)))):
        made.execute("INSERT INTO message VALUES (?, 's1', ?)", (name, orjson.dumps(data).decode()))
    made.close()
    reading = read(path)
    assert everything(reading)["input_tokens"] == 3
    assert {each.session for each in reading.facts} == {"s1"}
    cursor = lines(path)[-1][1]
    assert lines(path, cursor) == []


def test_tables_with_secrets_are_not_read(db: Db) -> None:
    db.connection.execute("INSERT INTO credential VALUES ('c', 'sk-secret')")
    db.session("s1")
    db.turn("s1", 1, 1000)
    assert all(b"sk-secret" not in raw for raw, _ in lines(db.path))


def test_an_answer_without_parent_belongs_to_the_prompt_before_it(db: Db) -> None:
    db.session("s1")
    db.message("s1", "m1", asked(1000))
    db.message("s1", "m2", answered(None, 1010))
    db.part("s1", "m2", "p2", said("x"))
    assert kinds(read(db.path), "m1") == ["completed", "output", "started", "usage"]
