"""The file behind an SQLite ledger: foreign, broken, locked, full, forked, copied."""

from __future__ import annotations

import os
import stat
import threading
from contextlib import ExitStack
from pathlib import Path

import apsw
import pytest

from tests.ledger.children import child
from tests.ledger.sqlite_setup import SqliteSetup, raw
from turnlog import InvalidError, Ledger, UnavailableError, open_ledger
from turnlog.errors import CorruptError
from turnlog.ledger.migrate import latest
from turnlog.ledger.sqlite import APPLICATION_ID, SqliteBackend
from turnlog.ledger.store import Store

THREAD = "thread"


@pytest.fixture
def setup(tmp_path: Path) -> SqliteSetup:
    return SqliteSetup(tmp_path)


def fill(ledger: Ledger, receipts: int = 3) -> None:
    ledger.create_session(id="conversation", cwd="/f")
    ledger.record_many("conversation", [(THREAD, str(n), "usage", {"n": n}) for n in range(receipts)])


# --- opening


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ledger.db",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:ledger.db",
        "mysql://x",
        "sqlite://host/x",
    ],
)
def test_urls_that_name_no_ledger(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TURNLOG_LEDGER", "nothing://")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidError):
        open_ledger(url)
    assert list(tmp_path.iterdir()) == []


def test_relative_and_absolute_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_ledger("sqlite:///here.db") as ledger:
        assert ledger.url == f"sqlite:///{tmp_path}/here.db"
    with open_ledger(f"sqlite:///{tmp_path}/here.db", read_only=True) as ledger:
        assert ledger.sessions() == []


def test_files_and_folders_are_private(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        setup = SqliteSetup(tmp_path / "made" / "deep")
        with setup.open() as ledger:
            fill(ledger)
            exec_id = ledger.start_exec().id
            ledger.claim_driver("conversation", None, exec_id)
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "made").rglob("*")}
            modes["made"] = stat.S_IMODE((tmp_path / "made").stat().st_mode)
    finally:
        os.umask(old)
    assert {"ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db.session-locks"} <= set(modes)
    folders = {"made", "deep", "ledger.db.session-locks"}
    assert {name: oct(mode) for name, mode in modes.items() if name in folders and mode != 0o700} == {}
    assert {name: oct(mode) for name, mode in modes.items() if name not in folders and mode != 0o600} == {}


def test_a_foreign_database_is_refused_and_left_alone(setup: SqliteSetup) -> None:
    connection = apsw.Connection(str(setup.path))
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = setup.path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(InvalidError, match="not a turnlog ledger"):
            setup.open(read_only=read_only)
    assert setup.path.read_bytes() == before


@pytest.mark.parametrize("content", [b"hello", b"x" * 5000, b"SQLite format 3\0" + b"x" * 5000])
def test_what_is_no_database_is_refused_and_left_alone(setup: SqliteSetup, content: bytes) -> None:
    setup.path.write_bytes(content)
    with pytest.raises(InvalidError):
        setup.open()
    assert setup.path.read_bytes() == content


def test_an_empty_file_becomes_a_ledger(setup: SqliteSetup) -> None:
    setup.path.touch()
    with setup.open() as ledger:
        fill(ledger)
    assert SqliteSetup(setup.path.parent).open(read_only=True).history("conversation")


def test_a_creation_that_was_cut_short_goes_on(setup: SqliteSetup) -> None:
    """Between the switch to WAL and the first commit the file has a page with nothing in it."""
    connection = apsw.Connection(str(setup.path))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    assert setup.path.stat().st_size > 0
    with pytest.raises(UnavailableError):
        setup.open(read_only=True)
    with setup.open() as ledger:
        fill(ledger)
        assert ledger.verify() == []


def test_a_newer_schema_is_refused(setup: SqliteSetup) -> None:
    setup.open().close()
    setup.raw_sql("PRAGMA user_version = 9999")
    for read_only in (False, True):
        with pytest.raises(UnavailableError, match=r"upgrade|knows"):
            setup.open(read_only=read_only)


def test_read_only_neither_creates_nor_migrates(setup: SqliteSetup) -> None:
    with pytest.raises(UnavailableError):
        setup.open(read_only=True)
    assert not setup.path.exists()
    setup.open().close()
    setup.raw_sql("PRAGMA user_version = 0")
    setup.raw_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    before = setup.path.read_bytes()
    with pytest.raises(UnavailableError, match="upgrade"):
        setup.open(read_only=True)
    assert setup.path.read_bytes() == before


def test_a_read_only_handle_leaves_no_lock_files(setup: SqliteSetup) -> None:
    with setup.open() as ledger:
        fill(ledger)
        exec_id = ledger.start_exec().id
    with setup.open(read_only=True) as reader, pytest.raises(UnavailableError):
        reader.claim_driver("conversation", None, exec_id)
    assert not setup.path.with_name("ledger.db.session-locks").exists()


def test_stamps(setup: SqliteSetup) -> None:
    setup.open().close()
    assert list(setup.raw_sql("PRAGMA application_id")) == [(APPLICATION_ID,)]
    assert list(setup.raw_sql("PRAGMA user_version")) == [(latest("sqlite"),)]
    assert list(setup.raw_sql("PRAGMA journal_mode")) == [("wal",)]


def test_receipts_are_synced(setup: SqliteSetup) -> None:
    """Promise 1 needs FULL, on every connection that writes."""
    with setup.open() as ledger:
        writer = ledger._store._backend._writer  # type: ignore[attr-defined]
        assert (writer.pragma("synchronous"), writer.pragma("foreign_keys")) == (2, 1)


def test_a_folder_that_cannot_be_written(setup: SqliteSetup, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError):
        open_ledger(f"sqlite:///{tmp_path}/file/ledger.db")
    with pytest.raises(UnavailableError):
        open_ledger(f"sqlite:///{tmp_path}")


OPEN = """
import sys, turnlog
import turnlog.api
print("ready")
sys.stdin.readline()
with turnlog.open_ledger(sys.argv[1]) as ledger:
    ledger.create_session(id=sys.argv[2], cwd="/f")
"""


@pytest.mark.parametrize("attempt", range(3))
def test_many_processes_may_create_one_ledger_at_once(setup: SqliteSetup, attempt: int) -> None:
    with ExitStack() as stack:
        children = [stack.enter_context(child(OPEN, setup.url(), str(number))) for number in range(5)]
        for each in children:
            assert each.line() == "ready"
        for each in children:
            each.say()
        for each in children:
            each.finish()
    with setup.open() as ledger:
        assert {session.id for session in ledger.sessions()} == set("01234")
        assert ledger.verify() == []


# --- locks


HOLD = """
import apsw, sys
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("locked")
sys.stdin.readline()
connection.execute("ROLLBACK")
print("free")
sys.stdin.readline()
"""


def test_another_writer_is_waited_for_a_while(setup: SqliteSetup) -> None:
    with setup.open() as ledger:
        fill(ledger)
        with child(HOLD, str(setup.path)) as holder, setup.impatient() as impatient:
            assert holder.line() == "locked"
            with pytest.raises(UnavailableError, match="locked by another process"):
                impatient.record("conversation", THREAD, "x", "started", {})
            assert len(impatient.history("conversation")) == 4  # reading needs no lock
            waiter = threading.Thread(target=ledger.record, args=("conversation", THREAD, "y", "started", {}))
            waiter.start()
            holder.say()
            assert holder.line() == "free"
            waiter.join(20)
        assert [event.turn for event in ledger.history("conversation")][-1] == "y"
        assert ledger.verify() == []


# --- forks


@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_child_may_go_on_with_the_ledger(setup: SqliteSetup) -> None:
    with setup.open() as ledger:
        fill(ledger)
        ledger.history("conversation")
        ledger.change_token()
        guard = ledger._store._backend._guard  # type: ignore[attr-defined]
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with guard:  # as a thread that is writing while another forks
                held.set()
                done.wait(20)

        holder = threading.Thread(target=hold)
        holder.start()
        assert held.wait(10)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                ledger.record("conversation", THREAD, "child", "started", {})
                ledger.history("conversation")
                ledger.change_token()
                ledger.close()
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        done.set()
        holder.join()
        assert os.waitstatus_to_exitcode(status) == 0
        ledger.record("conversation", THREAD, "parent", "started", {})
        assert [event.turn for event in ledger.history("conversation")][-2:] == ["child", "parent"]
        assert ledger.verify() == []
    with setup.open() as again:
        assert len(again.history("conversation")) == 6


# --- damage


def test_a_full_disk_loses_nothing(setup: SqliteSetup) -> None:
    with setup.open() as ledger:
        fill(ledger)
        before = ledger.history("conversation")
        writer = ledger._store._backend._writer  # type: ignore[attr-defined]
        writer.pragma("max_page_count", writer.pragma("page_count") + 3)
        with pytest.raises(UnavailableError, match="full"):
            ledger.record_many("conversation", [(THREAD, "big", "usage", {"n": n, "x": "x" * 4000}) for n in range(20)])
        assert ledger.history("conversation") == before
        assert ledger.verify() == []
        writer.pragma("max_page_count", 1_000_000)
        ledger.record("conversation", THREAD, "after", "started", {})
        assert ledger.verify() == []


def damage(setup: SqliteSetup, table: str) -> None:
    """Overwrite the root page of a table."""
    with raw(setup.path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        page = next(connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)))[0]
        size = connection.pragma("page_size")
    with setup.path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


def test_a_damaged_page_is_a_clear_error(setup: SqliteSetup) -> None:
    with setup.open() as ledger:
        fill(ledger, 500)
    damage(setup, "session_events")
    with setup.open() as ledger:
        with pytest.raises(CorruptError) as caught:
            ledger.history("conversation")
        assert "damaged" in caught.value.message
        assert "backup" in caught.value.hint
        assert "storage" in {problem.kind for problem in ledger.verify()}


def test_text_that_is_not_utf8_is_located(setup: SqliteSetup) -> None:
    with setup.open() as ledger:
        fill(ledger, 1)
        ledger.record("conversation", THREAD, "x", "started", {})
        setup.raw_sql("UPDATE session_events SET payload = CAST(x'22ff22' AS TEXT) WHERE kind = 'usage'")
        with pytest.raises(CorruptError):
            ledger.history("conversation")
        assert [problem.kind for problem in ledger.verify()] == ["unreadable"]
        rows, _ = ledger.recent_inputs()
        assert {gap.kind for row in rows for gap in row.usage.gap_list} == {"unreadable"}


# --- copies


WRITE = """
import sys, turnlog
ledger = turnlog.open_ledger(sys.argv[1])
for number in range(100_000):
    ledger.record("conversation", "thread", str(number), "usage", {"n": number})
    if number == 20:
        print("writing")
"""


def test_backup_while_another_process_writes(setup: SqliteSetup, tmp_path: Path) -> None:
    """Also of a ledger so big that many commits fall into one copy."""
    with setup.open() as ledger:
        ledger.create_session(id="big", cwd="/f")
        ledger.record_many("big", [(THREAD, "x", "usage", {"n": n, "x": "x" * 3000}) for n in range(4000)])
        ledger.create_session(id="conversation", cwd="/f")
        with child(WRITE, setup.url()) as writer:
            assert writer.line() == "writing"
            for number in range(3):
                target = tmp_path / f"copy{number}.db"
                ledger.backup(target)
                assert stat.S_IMODE(target.stat().st_mode) == 0o600
                with open_ledger(f"sqlite:///{target}", read_only=True) as copy:
                    numbers = [event.payload["n"] for event in copy.history("conversation")[1:]]
                    assert numbers == list(range(len(numbers)))
                    assert len(numbers) > 20
                    assert number or copy.verify() == []
        assert not list(tmp_path.glob("*.partial"))
        with pytest.raises(InvalidError, match="exists"):
            ledger.backup(target)


def test_a_backup_that_fails_leaves_nothing(setup: SqliteSetup, tmp_path: Path) -> None:
    with setup.open() as ledger:
        fill(ledger)
        (tmp_path / "blocked").touch()
        with pytest.raises(UnavailableError):
            ledger.backup(tmp_path / "blocked" / "copy.db")


# --- the end


def test_a_forgotten_close_does_not_hang_the_exit(setup: SqliteSetup) -> None:
    program = "import sys, turnlog; l = turnlog.open_ledger(sys.argv[1]); l.create_session(cwd='/f'); print('done')"
    with child(program, setup.url()) as forgetful:
        assert forgetful.line() == "done"
        forgetful.finish()


def test_waits_are_parameters(setup: SqliteSetup) -> None:
    backend = SqliteBackend(setup.path, busy_ms=5, lock_wait_s=0.01)
    with Ledger(Store(backend, setup.clock)) as ledger:
        fill(ledger)
        with (
            backend.session_lock("conversation"),
            pytest.raises(UnavailableError, match="busy"),
            backend.session_lock("conversation"),
        ):
            pass
