"""The database behind a PostgreSQL ledger: down, foreign, old, locked, forked, shared with others."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from urllib.parse import quote

import psycopg
import pytest

from tests import postgres_server
from tests.ledger.children import child
from tests.postgres_server import PASSWORD, PostgresSetup, Server, backend_of
from turnlog import ConflictError, InvalidError, Ledger, MissingError, UnavailableError, open_ledger
from turnlog.errors import NoLedgerError, OldLedgerError
from turnlog.ledger import postgres_schema
from turnlog.ledger.migrate import Migration, latest, migrations
from turnlog.ledger.postgres_url import Place

THREAD = "thread"


@pytest.fixture
def server() -> Server:
    return postgres_server.shared()


@pytest.fixture
def setup(server: Server) -> PostgresSetup:
    return PostgresSetup(server)


def fill(ledger: Ledger, receipts: int = 3) -> None:
    ledger.create_session(id="conversation", cwd="/f")
    ledger.record_many("conversation", [(THREAD, str(n), "usage", {"n": n}) for n in range(receipts)])


# --- URLs


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:secret@h:5433/db?sslmode=require", "postgresql://u@h:5433/db?sslmode=require"),
        ("postgres://u@h/db", "postgresql://u@h/db"),
        ("postgresql:///db", "postgresql:///db"),
        ("postgresql://h1:1,h2:2/db", "postgresql://h1:1,h2:2/db"),
        ("postgresql://h1,h2/db", "postgresql://h1,h2/db"),
        ("postgresql://u:x@[::1]:5/db", "postgresql://u@[::1]:5/db"),
        ("postgresql:///db?host=/run/pg&port=9&password=x", "postgresql:///db?host=/run/pg&port=9"),
        ("postgresql://u%40corp:p%40ss@h/d%2Fb", "postgresql://u%40corp@h/d%2Fb"),
        ("postgresql://h/db?sslpassword=x&sslkey=/k", "postgresql://h/db"),
    ],
)
def test_a_url_is_shown_without_secrets(url: str, shown: str) -> None:
    assert Place(url).url == shown


def test_all_of_libpqs_parameters_are_passed_on() -> None:
    place = Place("postgresql://h/db?sslmode=verify-full&sslrootcert=/ca&sslcert=/c&sslkey=/k&connect_timeout=3")
    wanted = {"sslmode": "verify-full", "sslrootcert": "/ca", "sslcert": "/c", "sslkey": "/k", "connect_timeout": "3"}
    assert {name: place.parameters[name] for name in wanted} == wanted
    assert place.parameters["keepalives_idle"] == 30


@pytest.mark.parametrize(
    "url",
    ["postgresql://u:hidden%zz@h/db", "postgresql://u:hidden@h/db?nonsense=1", "postgresql+psycopg://u:hidden@h/db"],
)
def test_a_url_that_cannot_be_understood_is_not_repeated(url: str) -> None:
    with pytest.raises(InvalidError) as caught:
        open_ledger(url)
    assert "hidden" not in f"{caught.value}{caught.value.hint}{caught.value.__cause__}"


# --- connecting


def test_a_server_that_is_down() -> None:
    with pytest.raises(UnavailableError) as caught:
        open_ledger("postgresql://u:hidden@127.0.0.1:1/db")
    assert "postgresql://u@127.0.0.1:1/db" in caught.value.message
    assert "server" in caught.value.hint
    assert "hidden" not in f"{caught.value}{caught.value.hint}"


def test_a_database_that_is_missing(server: Server) -> None:
    with pytest.raises(UnavailableError) as caught:
        open_ledger(server.url("absent"))
    assert caught.value.hint == "make it: createdb --encoding=UTF8 --template=template0 absent"


@pytest.mark.parametrize("given", ["wrong-and-hidden", quote("wrong:and@hidden", safe="")])
def test_a_wrong_password_is_never_told(server: Server, given: str) -> None:
    with pytest.raises(UnavailableError) as caught:
        open_ledger(f"postgresql://locked:{given}@127.0.0.1:{server.port}/postgres")
    told = f"{caught.value}{caught.value.hint}{caught.value.__cause__!r}"
    assert "password" in told
    assert "PGPASSWORD" in caught.value.hint
    assert "hidden" not in told


def test_tls_options_reach_the_server(server: Server) -> None:
    """It has none: a URL that demands it is refused, and says so."""
    url = f"postgresql://locked:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}/postgres?sslmode=require"
    with pytest.raises(UnavailableError) as caught:
        open_ledger(url)
    assert "SSL" in caught.value.message
    assert "sslmode" in caught.value.hint


def test_without_psycopg_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "turnlog.ledger.postgres", None)
    with pytest.raises(UnavailableError) as caught:
        open_ledger("postgresql:///db")
    assert "turnlog[postgres]" in caught.value.hint


def test_a_connection_that_died_while_idle_is_replaced(setup: PostgresSetup) -> None:
    with setup.open() as ledger:
        fill(ledger)
        ledger.history("conversation")
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'turnlog'"
        setup.raw_sql(end)
        ledger.record("conversation", THREAD, "after", "started", {})
        setup.raw_sql(end)
        assert ledger.history("conversation")[-1].turn == "after"
        setup.raw_sql(end)
        ledger.change_token()


def test_a_server_that_dies_inside_a_command_is_a_clear_error() -> None:
    with postgres_server.durable() as server, open_ledger(server.url(server.shared_ledger())) as ledger:
        fill(ledger)
        backend = backend_of(ledger)

        def half_a_write() -> None:
            with backend.write() as tx:
                tx.insert_native(("conversation", THREAD, "half", "started", "", 1, "{}"))
                server.stop()
                tx.one("session", id="conversation")

        with pytest.raises(UnavailableError) as caught:
            half_a_write()
        assert "not recorded twice" in caught.value.hint
        with pytest.raises(UnavailableError):
            ledger.history("conversation")
        server.start()
        assert [event.turn for event in ledger.history("conversation")][1:] == ["0", "1", "2"]
        ledger.record("conversation", THREAD, "half", "started", {})
        assert ledger.verify() == []


def test_a_server_that_dies_at_the_commit_says_that_trying_again_is_safe() -> None:
    with postgres_server.durable() as server, open_ledger(server.url(server.shared_ledger())) as ledger:
        fill(ledger)
        backend = backend_of(ledger)

        def a_write() -> None:
            with backend.write() as tx:
                tx.insert_native(("conversation", THREAD, "x", "started", "", 1, "{}"))
                server.stop()

        with pytest.raises(UnavailableError) as caught:
            a_write()
        assert "not recorded twice" in caught.value.hint


# --- what is in the database


def test_an_empty_database_becomes_a_ledger_and_reading_alone_makes_none(server: Server) -> None:
    name = server.new_database()
    with pytest.raises(NoLedgerError):
        open_ledger(server.url(name), read_only=True)
    assert server.sql("SELECT count(*) FROM pg_class WHERE relname = 'ledger_meta'", database=name) == [(0,)]
    with open_ledger(server.url(name)) as ledger:
        fill(ledger)
    with open_ledger(server.url(name), read_only=True) as ledger:
        assert len(ledger.history("conversation")) == 4


def test_a_ledger_in_a_schema_of_its_own(server: Server) -> None:
    name = server.new_database()
    server.sql("CREATE TABLE execs (theirs INTEGER)", database=name)
    with pytest.raises(InvalidError, match="execs"):
        open_ledger(server.url(name))
    server.sql("CREATE SCHEMA ours", database=name)
    with open_ledger(f"{server.url(name)}&options=-csearch_path%3Dours") as ledger:
        fill(ledger)
        assert ledger.verify() == []
    assert server.sql("SELECT count(*) FROM ours.session_events", database=name) == [(4,)]
    assert server.sql("SELECT to_regclass('public.session_events')", database=name) == [(None,)]


@pytest.mark.parametrize(
    "theirs", ["CREATE TABLE ledger_meta (key text, value text)", "CREATE TABLE ledger_meta (x integer)"]
)
def test_a_foreign_table_of_that_name_is_left_alone(server: Server, theirs: str) -> None:
    name = server.new_database()
    server.sql(theirs, database=name)
    for read_only in (False, True):
        with pytest.raises(InvalidError, match="no turnlog ledger"):
            open_ledger(server.url(name), read_only=read_only)
    assert server.sql("SELECT count(*) FROM pg_class WHERE relname = 'execs'", database=name) == [(0,)]


def test_another_encoding_is_refused(server: Server) -> None:
    server.sql("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0", database="postgres")
    with pytest.raises(InvalidError, match="LATIN1") as caught:
        open_ledger(server.url("latin"))
    assert "UTF8" in caught.value.hint


def test_a_newer_schema_is_refused_and_an_older_one_is_upgraded_by_a_writer(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = server.new_database()
    steps = migrations("postgres")
    with monkeypatch.context() as patched:
        patched.setattr(postgres_schema, "migrations", lambda backend: steps[:-1])
        patched.setattr(postgres_schema, "latest", lambda backend: steps[-2].number)
        open_ledger(server.url(name)).close()
    with pytest.raises(OldLedgerError):
        open_ledger(server.url(name), read_only=True)
    open_ledger(server.url(name)).close()
    assert server.sql("SELECT value FROM ledger_meta WHERE key = 'schema'", database=name) == [
        (str(latest("postgres")),)
    ]
    server.sql("UPDATE ledger_meta SET value = '9999' WHERE key = 'schema'", database=name)
    for read_only in (False, True):
        with pytest.raises(UnavailableError, match="knows"):
            open_ledger(server.url(name), read_only=read_only)


def test_a_failing_migration_leaves_the_old_ledger(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    name = server.new_database()
    with open_ledger(server.url(name)) as ledger:
        fill(ledger)
    number = latest("postgres") + 1
    steps = (*migrations("postgres"), Migration(number, "bad", "CREATE TABLE new (x int); SELECT * FROM nothing;"))
    with monkeypatch.context() as patched:
        patched.setattr(postgres_schema, "migrations", lambda backend: steps)
        patched.setattr(postgres_schema, "latest", lambda backend: number)
        with pytest.raises(UnavailableError):
            open_ledger(server.url(name))
    assert server.sql("SELECT to_regclass('new')", database=name) == [(None,)]
    with open_ledger(server.url(name)) as ledger:
        assert len(ledger.history("conversation")) == 4


@pytest.mark.parametrize("until", range(1, latest("postgres")))
def test_schema_by_migrations_equals_schema_from_scratch(
    server: Server, monkeypatch: pytest.MonkeyPatch, until: int
) -> None:
    def described(name: str) -> list[object]:
        return server.sql(
            "SELECT table_name, column_name, data_type, column_default FROM information_schema.columns"
            " WHERE table_schema = 'public' UNION ALL SELECT tablename, indexname, indexdef, '' FROM pg_indexes"
            " WHERE schemaname = 'public' UNION ALL SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(oid), ''"
            " FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1, 2, 3",
            database=name,
        )

    scratch, stepped = server.shared_ledger(), server.new_database()
    steps = migrations("postgres")
    with psycopg.connect(server.url(stepped)) as connection:
        connection.execute("SELECT set_config('search_path', 'public, pg_temp', true)")
        for step in steps[:until]:
            connection.execute(step.sql.encode())
        connection.execute(
            "INSERT INTO ledger_meta VALUES ('application', 'turnlog'), ('ledger_id', 'x'), ('schema', %s)",
            (str(until),),
        )
    open_ledger(server.url(stepped)).close()
    assert described(stepped) == described(scratch)


OPEN = """
import sys, turnlog
import turnlog.api
print("ready")
sys.stdin.readline()
with turnlog.open_ledger(sys.argv[1]) as ledger:
    ledger.create_session(id=sys.argv[2], cwd="/f")
"""


def test_many_processes_may_create_one_ledger_at_once(server: Server) -> None:
    url = server.url(server.new_database())
    with ExitStack() as stack:
        children = [stack.enter_context(child(OPEN, url, str(number))) for number in range(4)]
        for each in children:
            assert each.line() == "ready"
        for each in children:
            each.say()
        for each in children:
            each.finish()
    with open_ledger(url) as ledger:
        assert {session.id for session in ledger.sessions()} == set("0123")
        assert ledger.verify() == []


# --- values


@pytest.mark.parametrize("turn", ["a\0b", "x" * 9_000])
def test_what_an_index_cannot_hold_is_invalid(setup: PostgresSetup, turn: str) -> None:
    with setup.open() as ledger:
        fill(ledger, 0)
        with pytest.raises(InvalidError) as caught:
            ledger.record("conversation", THREAD, turn + "".join(map(chr, range(200, 3000))), "started", {})
        assert caught.value.hint
        assert len(ledger.history("conversation")) == 1


def test_a_swallowed_error_is_not_taken_for_success(setup: PostgresSetup) -> None:
    """The server gives the whole transaction up, and COMMIT alone would not say so."""
    with setup.open() as ledger:
        fill(ledger, 0)

        def swallow() -> None:
            with backend_of(ledger).write() as tx:
                tx.insert_native(("conversation", THREAD, "1", "started", "", 1, "{}"))
                with pytest.raises(psycopg.Error):
                    tx.insert_native(("nobody", THREAD, "1", "started", "", 1, "{}"))

        with pytest.raises(UnavailableError, match="nothing was written"):
            swallow()
        assert len(ledger.history("conversation")) == 1


def test_guards_are_conflicts_and_missing_rows_missing(setup: PostgresSetup) -> None:
    with setup.open() as ledger:
        made = ledger.create_session(id="s", artifact_key="0" * 32, cwd="/f")
        with pytest.raises(ConflictError):
            ledger.create_session(id="t", artifact_key="0" * 32, cwd="/f")
        with pytest.raises(MissingError):
            ledger.create_session(id="u", cwd="/f", task_id="nothing")
        with pytest.raises(MissingError):
            ledger.record("nobody", THREAD, "1", "usage", {})
        assert ledger.session("s") == made


# --- forks and ends


@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_child_may_go_on_with_the_ledger(setup: PostgresSetup) -> None:
    with setup.open() as ledger:
        fill(ledger)
        ledger.history("conversation")
        guard = backend_of(ledger)._guard
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with guard:  # as a thread that takes a connection while another forks
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


def test_a_forgotten_close_does_not_hang_the_exit(setup: PostgresSetup) -> None:
    program = "import sys, turnlog; l = turnlog.open_ledger(sys.argv[1]); l.create_session(cwd='/f'); print('done')"
    with child(program, setup.url()) as forgetful:
        assert forgetful.line() == "done"
        forgetful.finish()


def test_the_command_line_takes_such_a_url(setup: PostgresSetup) -> None:
    """With either word for it, and without the password in what it prints."""
    with setup.open() as ledger:
        ledger.create_session(id="conversation", title="Shown", cwd="/f")
    program = "import sys; from turnlog.__main__ import main; sys.exit(main())"
    for url in (setup.url(), setup.url().replace("postgresql://", "postgres://")):
        with child(program, "--ledger", url, "sessions", "--json") as command:
            assert "conversation" in "".join(command.finish())
