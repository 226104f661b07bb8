"""Damaged pages of OpenCode's database: what lay in them is lost and told, and nothing else."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tests.harness.opencode_stored import Db, answered, asked, counters, everything, lines, read, said
from turnlog.harness.opencode.quick import Quick
from turnlog.harness.reading import Source

SESSIONS = 4
TURNS = 30


def damaged(path: Path, what: str, pages: slice = slice(1, 2)) -> int:
    """Make a database and overwrite pages of a table or index; return how many answers lay in them."""
    db = Db(path)
    for name in range(SESSIONS):
        db.session(f"s{name}", 1000 + name)
    for number in range(TURNS):  # one conversation's rows lie between another's
        for name in range(SESSIONS):
            user, at = f"msg_{name}_{number:02}a", 2000 + number * 1000 + name * 10
            db.message(f"s{name}", user, asked(at))
            tokens = counters(given=10**name, out=1)
            db.message(f"s{name}", f"{user}b", answered(user, at + 1, tokens=tokens))
            db.part(f"s{name}", f"{user}b", f"prt_{user}", said("x" * 60), at)
    size = db.connection.pragma("page_size")
    found = "SELECT pageno FROM dbstat WHERE name = ? ORDER BY pageno"
    numbers = [page for (page,) in db.connection.execute(found, (what,))][pages]
    assert numbers
    db.close()
    raw = bytearray(path.read_bytes())
    lost = 0
    for number in numbers:
        page = slice((number - 1) * size, number * size)
        lost += raw[page].count(b'"assistant"') if what == "message" else 0
        raw[page] = b"\xee" * size
    path.write_bytes(raw)
    return lost


def streams(path: Path) -> int:
    reading = read(path)
    assert reading.troubles
    assert {each.kind for each in reading.troubles} == {"damaged"}
    return int(everything(reading)["streams"] or 0)


@pytest.mark.parametrize("pages", [slice(1, 2), slice(3, 6), slice(-1, None)])
def test_a_damaged_page_of_messages_loses_its_own_alone(tmp_path: Path, pages: slice) -> None:
    path = tmp_path / "opencode.db"
    lost = damaged(path, "message", pages)
    assert 0 < lost < SESSIONS * TURNS / 2
    assert streams(path) == SESSIONS * TURNS - lost
    assert any(each.usage for each in read(path).troubles)


@pytest.mark.parametrize("what", ["message_session_idx", "sqlite_autoindex_message_1"])
def test_a_damaged_index_loses_nothing(tmp_path: Path, what: str) -> None:
    path = tmp_path / "opencode.db"
    damaged(path, what, slice(None))
    assert everything(read(path))["streams"] == SESSIONS * TURNS


def test_conversations_whose_own_rows_are_damaged_keep_their_messages(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    damaged(path, "session", slice(None))
    assert streams(path) == SESSIONS * TURNS
    assert {each.session for each in read(path).troubles} == {f"s{name}" for name in range(SESSIONS)}


def test_a_damaged_database_is_read_again_whole_and_gives_the_same(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    damaged(path, "message")
    first = lines(path)
    again = lines(path, first[-1][1])
    assert [line for line, _ in again if b'"table":"message"' in line] in (
        [],
        [line for line, _ in first if b'"table":"message"' in line],
    )


@pytest.mark.parametrize(
    ("what", "pages"), [("message", slice(1, 2)), ("message_session_idx", slice(None)), ("session", slice(None))]
)
def test_a_quick_look_counts_the_same(tmp_path: Path, what: str, pages: slice) -> None:
    path = tmp_path / "opencode.db"
    lost = damaged(path, what, pages)
    look = Quick(lambda _: None).look(Source("opencode", str(path), "rows"))
    assert len(look.calls) == SESSIONS * TURNS - lost


def test_a_page_that_sqlite_cannot_read_is_damage(tmp_path: Path) -> None:
    """What the tests above do to a file is what they say."""
    path = tmp_path / "opencode.db"
    damaged(path, "message")
    with pytest.raises(apsw.CorruptError):
        apsw.Connection(str(path)).execute("SELECT sum(length(data)) FROM message").fetchall()
