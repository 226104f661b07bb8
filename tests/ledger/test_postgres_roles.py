"""The role that appends: it can do all that turnlog does, and neither change nor delete a receipt."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests import postgres_server
from tests.intake.plain import READER, call
from tests.postgres_server import Server, backend_of
from turnlog import TurnlogError, UnavailableError, open_ledger
from turnlog.intake.importer import import_sources
from turnlog.ledger import postgres_schema
from turnlog.ledger.migrate import latest
from turnlog.ledger.postgres_url import Place

THREAD = "thread"


@pytest.fixture
def server() -> Server:
    return postgres_server.shared()


@pytest.fixture
def writer(server: Server) -> str:
    """The URL of a ledger for the role of the documented SQL."""
    name = server.new_database()
    open_ledger(server.url(name)).close()
    if not server.sql("SELECT 1 FROM pg_roles WHERE rolname = 'turnlog_writer'", database="postgres"):
        server.sql("CREATE ROLE turnlog_writer LOGIN", database="postgres")
    grants = Path(postgres_schema.__file__).with_name("sql") / "postgres" / "roles" / "writer.sql"
    server.sql(grants.read_text(encoding="utf-8"), database=name)
    return server.url(name, "turnlog_writer")


def test_a_writer_can_do_all_that_turnlog_does(writer: str) -> None:
    with open_ledger(writer) as ledger:
        made = ledger.create_session(id="conversation", cwd="/f", provider="codex")
        exec_id = ledger.start_exec(id="e").id
        driver = ledger.claim_driver("conversation", None, exec_id)
        ledger.record("conversation", THREAD, "1", "started", {})
        ledger.intend_turn("conversation", driver, None, "request", {})
        ledger.record_connection("conversation", driver, "/sock", THREAD)
        ledger.accept_turn("conversation", driver, "request", "1")
        ledger.intend_turn("conversation", driver, THREAD, "second", {}, turn="2")
        ledger.refuse_turn("conversation", driver, "second", "no")
        ledger.record("conversation", THREAD, "1", "usage", {"n": 1})
        ledger.record("conversation", THREAD, "1", "completed", {"status": "completed"})
        ledger.rename_session("conversation", "Named")
        ledger.settle_request(ledger.request("conversation", "steer", "x"), "uncertain")
        with ledger.driving("conversation", driver):
            pass
        new = ledger.replace_input("conversation", made.captured)
        ledger.publish_input("conversation", new.captured)
        ledger.finish_driver("conversation", driver, "completed")
        ledger.end_exec(exec_id, "succeeded")
        assert ledger.verify() == []
        assert [event.exec_id for event in ledger.history("conversation") if event.turn == "1"] == ["e"] * 4


def test_a_writer_may_touch_more_conversations_than_are_locked_by_themselves(server: Server, writer: str) -> None:
    server.sql(
        "INSERT INTO agent_sessions (id, title, title_source, created_at, input_published, cwd)"
        " SELECT 's' || i, 't', 'generated', 1, 0, '/f' FROM generate_series(1, 1500) AS n (i)",
        database=Place(writer).database,
    )
    rows = [(f"s{i}", THREAD, "turn", "usage", "key", 1, "{}") for i in range(1, 1501)]
    with open_ledger(writer) as ledger, backend_of(ledger).write() as tx:
        assert None not in tx.insert_natives(rows[:600])
    with psycopg.connect(writer) as connection:  # without turnlog's own locks the triggers keep to their number
        connection.cursor().executemany(
            "INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key, observed_at,"
            " payload) VALUES (%s, %s, %s, %s, %s, %s, %s)",
            rows[600:],
        )
    with open_ledger(writer) as ledger:
        assert len(ledger.history("s1500")) == 1


FORBIDDEN = [
    "DELETE FROM session_events",
    "TRUNCATE session_events",
    "UPDATE session_events SET payload = '{}'",
    "UPDATE session_events SET observed_at = 1",
    "UPDATE session_events SET kind = 'usage'",
    "UPDATE session_events SET exec_id = 'other' WHERE exec_id IS NOT NULL",
    "UPDATE session_events SET exec_id = NULL WHERE exec_id IS NOT NULL",
    "UPDATE session_events SET provider_turn = 'other' WHERE provider_turn IS NOT NULL",
    "UPDATE execs SET started_at = 0",
    "UPDATE agent_sessions SET id = 'x'",
    "DELETE FROM agent_sessions",
    "UPDATE turns SET released = 1",
    "DELETE FROM releases",
    "UPDATE captures SET turns = 9",
    "INSERT INTO releases VALUES ('', 'death:e', 1)",
    "UPDATE ledger_meta SET value = 'x'",
    "INSERT INTO session_events (seq, session_id) VALUES (-1, 's')",
    "INSERT INTO session_events (txid, session_id) VALUES ('1', 's')",
    "ALTER TABLE session_events DISABLE TRIGGER ALL",
    "DROP TABLE session_events",
]


def test_a_writer_can_neither_change_nor_delete_a_receipt(writer: str) -> None:
    with open_ledger(writer) as ledger:
        ledger.create_session(id="conversation", cwd="/f")
        ledger.record_turn_origin("conversation", THREAD, "1", 1, ledger.start_exec(id="e").id)
        before = ledger.history("conversation")
        with psycopg.connect(writer, autocommit=True) as connection:
            for statement in FORBIDDEN:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement.encode())
        assert ledger.history("conversation") == before
        assert ledger.verify() == []


def test_a_writer_cannot_upgrade_and_is_told_who_can(server: Server, writer: str) -> None:
    name = Place(writer).database
    server.sql("UPDATE ledger_meta SET value = '1' WHERE key = 'schema'", database=name)
    with pytest.raises(TurnlogError) as caught:
        open_ledger(writer)
    assert "owner" in caught.value.hint


def test_temporary_tables_of_a_writer_deceive_nobody(writer: str) -> None:
    """What runs as the owner looks into the ledger's schema only."""
    with psycopg.connect(writer, autocommit=True) as connection, open_ledger(writer) as ledger:
        made = ledger.create_session(id="conversation", cwd="/f")
        connection.execute("CREATE TEMPORARY TABLE turns AS SELECT * FROM turns")
        connection.execute(
            "INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key, observed_at,"
            " payload, captured_event) VALUES ('conversation', 't', '1', 'started', '', 1, '{}', %s)",
            (made.captured,),
        )
        assert ledger.verify() == []


def test_a_writer_imports_and_learns_more_of_what_it_imported(writer: str, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a.jsonl"
    path.parent.mkdir()
    with open_ledger(writer) as ledger:
        for number in (1, 2):
            with path.open("ab") as file:
                file.write(call("a", "t1", f"m{number}", at=1000 - number, cwd=f"/{number}", text="words") + b"\n")
            done = import_sources(ledger._store, [READER], roots=[path.parent], variables={})
            assert (done.new, done.sessions) == (1, 1)
        session = ledger.session("claude:a")
        assert session is not None
        assert (session.cwd, session.created_at) == ("/2", 998)
        assert ledger.verify() == []


@pytest.mark.parametrize("schema", [10, latest("postgres") - 1])
def test_a_writer_that_meets_an_older_schema_is_sent_to_the_owner(writer: str, server: Server, schema: int) -> None:
    database = Place(writer).database
    server.sql(f"UPDATE ledger_meta SET value = '{schema}' WHERE key = 'schema'", database=database)
    newest = latest("postgres")
    with pytest.raises(UnavailableError, match=f"has schema {schema}, which needs an upgrade to {newest}") as told:
        open_ledger(writer)
    assert "owner upgrades it" in (told.value.hint or "")
    assert "writer.sql again" in (told.value.hint or "")


def test_a_writer_may_not_make_a_ledger(writer: str, server: Server) -> None:
    empty = server.new_database()
    server.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC", database=empty)
    with pytest.raises(UnavailableError, match=r"no ledger in .*this user may not make one") as told:
        open_ledger(server.url(empty, "turnlog_writer"))
    assert "owner makes it" in (told.value.hint or "")
