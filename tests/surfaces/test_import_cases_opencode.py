"""Kinds of faults of importing OpenCode's stores, each through the command line to the sums that come out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.harness.opencode_stored import Db, answered, asked, counters, said, tool
from tests.ledger.children import child
from tests.surfaces.import_history import PROBLEMS, History, kinds, listing

T = 1_770_091_506_000
ONE, TWO = "opencode:ses_1", "opencode:ses_2"

LOCKING = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("PRAGMA journal_mode = delete")
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
print("free", flush=True)
"""


@pytest.fixture
def store(history: History) -> Iterator[Db]:
    made = history.opencode()
    yield made
    made.close()


def copied(store: Db, session: str, of: str, number: int, at: int, **answer: Any) -> None:
    """Store a turn again under new ids, as a fork does: everything else in it is equal."""
    user, reply = f"msg_{session}_{of}_{number}a", f"msg_{session}_{of}_{number}b"
    store.message(session, user, asked(at))
    store.part(session, user, f"prt_{user}", {"type": "text", "text": f"ask {number}"}, at)
    store.message(session, reply, answered(user, at + 10, **answer))
    store.part(session, reply, f"prt_{reply}", said("hi"), at + 20)


def tree(history: History, name: str, *messages: tuple[str, dict[str, Any]], created: int = T) -> Path:
    """Write a conversation as OpenCode's older folders of objects."""
    base = history.root / "opencode" / "storage"
    session = {"id": name, "projectID": "prj", "directory": "/r/app", "title": "t", "version": "1.1.65"}
    objects: dict[Path, dict[str, Any]] = {
        base / "session" / "prj" / f"{name}.json": session | {"time": {"created": created, "updated": created}}
    }
    for identifier, message in messages:
        own = {"id": identifier, "sessionID": name}
        objects[base / "message" / name / f"{identifier}.json"] = own | message
    for path, value in objects.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(orjson.dumps(value))
    return base


def test_a_fork_under_new_ids_counts_its_own_turn_alone(history: History, store: Db) -> None:
    store.session("ses_1", T)
    store.turn("ses_1", 1, T)
    store.session("ses_2", T + 5000, title="t (fork #1)")
    copied(store, "ses_2", "ses_1", 1, T)
    store.turn("ses_2", 2, T + 6000, tokens=counters(30, 7))
    done = history.imported()
    assert history.rows() == {ONE: (100, 20, 0, 0), TWO: (30, 7, 0, 0)}
    assert history.calls() == 2
    assert done["receipts"]["inherited"] == 1
    cost = history.usage()["totals"]["cost"]
    assert cost["reported_usd"] == pytest.approx(0.02)
    history.sound()


@pytest.mark.parametrize("order", [("storage", "opencode.db"), ("opencode.db", "storage")])
def test_messages_in_folder_and_database_count_once_in_any_order(
    history: History, store: Db, order: tuple[str, str]
) -> None:
    user, reply = asked(T), answered("msg_1", T + 10)
    store.session("ses_1", T, version="1.1.65")
    store.message("ses_1", "msg_1", user)
    store.message("ses_1", "msg_2", reply)
    tree(history, "ses_1", ("msg_1", user), ("msg_2", reply))
    tree(history, "ses_2", ("msg_3", asked(T + 1)), ("msg_4", answered("msg_3", T + 11, tokens=counters(7, 3))))
    for name in order:
        history.imported(roots=[f"opencode/{name}"])
    assert history.rows() == {ONE: (100, 20, 0, 0), TWO: (7, 3, 0, 0)}
    assert history.calls() == 2


def test_a_locked_database_is_unreadable_and_not_zero_and_read_later(history: History, store: Db) -> None:
    store.session("ses_1", T)
    store.turn("ses_1", 1, T)
    store.close()
    history.claude()
    with child(LOCKING, str(store.path)) as locking:
        assert locking.line() == "locked"
        done = history.imported(code=PROBLEMS)
        assert kinds(done) == ["unreadable_source"]
        assert history.usage()["totals"]["tokens"]["input"] is None
        assert history.gaps() == {"unreadable": 1}
        locking.say()
        assert locking.line() == "free"
    history.imported()
    assert history.total() == (100, 20, 0, 0)
    assert history.gaps() == {}


def test_a_corrupt_database_stops_nothing_else(history: History, store: Db) -> None:
    store.session("ses_1", T)
    store.turn("ses_1", 1, T)
    (history.root / "opencode" / "opencode-dev.db").write_bytes(b"SQLite format 3\0" + b"\x55" * 8000)
    done = history.imported(code=PROBLEMS)
    assert kinds(done) == ["unreadable_source"]
    assert history.total() == (100, 20, 0, 0)
    assert history.gaps() == {"unreadable": 1}


@contextmanager
def halved(path: Path) -> Iterator[None]:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    yield


def test_a_database_cut_short_gives_what_it_has(history: History, store: Db) -> None:
    for number in range(200):
        name = f"ses_{number:03}"
        store.session(name, T + number)
        store.turn(name, 1, T + number, text="x" * 2000)
    store.close()
    with halved(store.path):
        done = history.imported(code=PROBLEMS)
    assert done["problems"]
    assert history.gaps()["unreadable"] >= 1


def test_reported_and_estimated_cost_are_two_columns(history: History, store: Db) -> None:
    store.session("ses_1", T)
    store.turn("ses_1", 1, T, tokens=counters(1_000_000, 0), modelID="gpt-4o-mini", providerID="openai", cost=0.01)
    history.imported()
    cost = history.usage()["totals"]["cost"]
    assert (cost["reported_usd"], cost["estimated_usd"]) == (pytest.approx(0.01), pytest.approx(0.15))
    line = history.table().out.splitlines()[1]
    assert "$0.0100" in line
    assert "$0.1500" in line


def test_an_answer_that_a_crash_cut_is_unknown_and_not_zero(history: History, store: Db, turnlog_: Any) -> None:
    store.session("ses_1", T)
    store.message("ses_1", "msg_1", asked(T))
    store.message("ses_1", "msg_2", answered("msg_1", T + 10, completed=None, tokens=counters(0, 0), cost=0))
    store.part("ses_1", "msg_2", "prt_1", tool("running"))
    history.imported()
    assert history.ends(ONE) == []
    totals = history.usage()["totals"]
    assert (totals["tokens"]["input"], totals["cost"]["reported_usd"]) == (None, None)
    assert history.gaps() == {"unfinished": 1}
    assert "completed" not in turnlog_("sessions", "--all").out
    store.part("ses_1", "msg_2", "prt_1", tool("completed", output="done"), T + 60)
    store.message("ses_1", "msg_2", answered("msg_1", T + 10), updated=T + 60)
    history.imported()
    assert history.ends(ONE) == ["completed"]
    assert history.total() == (100, 20, 0, 0)
    assert history.gaps() == {}


def test_an_answer_without_end_counts_what_was_reported(history: History, store: Db) -> None:
    store.session("ses_1", T)
    store.message("ses_1", "msg_1", asked(T))
    store.message("ses_1", "msg_2", answered("msg_1", T + 10, completed=None, tokens=counters(70, 5)))
    history.imported()
    assert history.total() == (70, 5, 0, 0)
    assert history.gaps() == {"unfinished": 1}


def test_an_empty_answer_is_noted_as_empty(history: History, store: Db) -> None:
    store.session("ses_1", T)
    store.message("ses_1", "msg_1", asked(T))
    store.message("ses_1", "msg_2", answered("msg_1", T + 10, tokens=counters(0, 0), finish="unknown", cost=0))
    history.imported()
    assert "empty" in history.notes(ONE)
    assert history.ends(ONE) == []


def test_an_aborted_answer_is_interrupted(history: History, store: Db) -> None:
    store.session("ses_1", T)
    store.message("ses_1", "msg_1", asked(T))
    error = {"name": "MessageAbortedError", "data": {"message": "Aborted"}}
    store.message("ses_1", "msg_2", answered("msg_1", T + 10, error=error, tokens=counters(0, 0), cost=0))
    history.imported()
    assert history.ends(ONE) == ["interrupted"]


@pytest.mark.parametrize(("version", "output"), [("1.3.2", 20), ("1.18.33", 25)])
def test_reasoning_is_in_the_output_or_beside_it_by_version(
    history: History, store: Db, version: str, output: int
) -> None:
    store.session("ses_1", T, version=version)
    store.turn("ses_1", 1, T, tokens=counters(100, 20, 5))
    history.imported()
    assert history.total() == (100, output, 0, 0)
    assert history.gaps() == {}


@pytest.mark.parametrize(("total", "output"), [(120, 20), (125, 25)])
def test_reasoning_is_where_the_messages_total_says(history: History, store: Db, total: int, output: int) -> None:
    store.session("ses_1", T, version="1.9.9")
    store.turn("ses_1", 1, T, tokens=counters(100, 20, 5, total=total))
    history.imported()
    assert history.total() == (100, output, 0, 0)
    assert history.gaps() == {}


def test_reasoning_that_nothing_places_is_a_gap(history: History, store: Db) -> None:
    store.session("ses_1", T, version="local")
    store.turn("ses_1", 1, T, tokens=counters(100, 20, 5))
    history.imported()
    assert history.total() == (100, 20, 0, 0)
    assert history.gaps() == {"reasoning_unknown": 1}


def test_a_compaction_is_a_billed_call(history: History, store: Db) -> None:
    store.session("ses_1", T)
    store.turn("ses_1", 1, T)
    store.message("ses_1", "msg_c1", asked(T + 100))
    store.part("ses_1", "msg_c1", "prt_c1", {"type": "compaction"})
    store.message("ses_1", "msg_c2", answered("msg_c1", T + 110, summary=True, tokens=counters(900, 9)))
    history.imported()
    assert (history.total(), history.calls()) == ((1000, 29, 0, 0), 2)


def test_subagents_are_below_their_parent_and_count_beside_it(history: History, store: Db) -> None:
    store.session("ses_1", T)
    store.turn("ses_1", 1, T)
    store.session("ses_2", T + 15, parent="ses_1", title="look (@general subagent)")
    store.turn("ses_2", 1, T + 20, tokens=counters(30, 7))
    history.imported()
    assert history.rows() == {ONE: (100, 20, 0, 0), TWO: (30, 7, 0, 0)}
    assert history.sessions()[TWO]["interactive"] is False


def test_new_rows_are_read_while_the_program_has_them_in_its_log(history: History) -> None:
    store = history.opencode(wal=True)
    store.session("ses_1", T)
    store.turn("ses_1", 1, T)
    history.imported()
    store.turn("ses_1", 2, T + 1000)
    assert store.path.with_name("opencode.db-wal").stat().st_size > 0
    history.imported()
    assert (history.total(), history.calls()) == ((200, 40, 0, 0), 2)
    assert history.imported()["receipts"]["new"] == 0
    store.close()


def test_nothing_is_written_beside_a_database(history: History) -> None:
    store = history.opencode(wal=True)
    store.session("ses_1", T)
    store.turn("ses_1", 1, T)
    tree(history, "ses_9", ("msg_8", asked(T)), ("msg_9", answered("msg_8", T + 10)))
    before = listing(history.root)
    history.imported()
    history.turnlog("doctor")
    assert listing(history.root) == before
    store.close()


def test_secrets_of_the_program_are_never_read(history: History, store: Db) -> None:
    store.session("ses_1", T)
    store.turn("ses_1", 1, T, text="the token is sk-live-abcdef1234567890abcd here")
    store.connection.execute("INSERT INTO credential VALUES ('c', 'pyramid-secret-value')")
    history.imported()
    assert history.hits("pyramid") == []
    (hit,) = history.hits("token")
    assert "sk-live" not in hit["snippet"]
    assert "sk-live" not in history.turnlog("export", ONE, "--format", "md").out


@pytest.mark.parametrize("broken", [b"{", b'{"role":"assistant","tokens":\xff}', b"[" * 2000 + b"]" * 2000])
def test_a_broken_message_is_located_and_the_others_count(history: History, store: Db, broken: bytes) -> None:
    store.session("ses_1", T)
    store.turn("ses_1", 1, T)
    store.message("ses_1", "msg_broken", broken)
    done = history.imported(code=PROBLEMS)
    assert len(done["problems"]) == 1
    assert history.total() == (100, 20, 0, 0)
    assert history.gaps() == {"unreadable": 1}


@pytest.mark.parametrize("bad", [-5, 1.5, "12", 2**70, True])
def test_a_counter_that_is_none_is_not_counted_and_a_gap(history: History, store: Db, bad: Any) -> None:
    store.session("ses_1", T)
    store.turn("ses_1", 1, T)
    data = answered("msg_u", T + 1010, tokens=counters())
    raw = orjson.dumps(data).replace(b'"input":100', b'"input":' + str(bad).lower().encode())
    if isinstance(bad, str):
        raw = orjson.dumps(data).replace(b'"input":100', b'"input":"12"')
    store.message("ses_1", "msg_u", asked(T + 1000))
    store.message("ses_1", "msg_v", raw)
    history.turnlog("import", "--root", str(history.root))
    total = history.total()
    assert total[0] == 100
    assert sum(history.gaps().values()) >= 1
