"""Schema and queries of the SQLite ledger as files: numbered, complete, prepared, used."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import apsw
import pytest

from tests.ledger.children import child
from tests.ledger.sqlite_setup import SqliteSetup
from turnlog import UnavailableError
from turnlog.ledger import sqlite
from turnlog.ledger.backend import named_queries
from turnlog.ledger.migrate import Migration, latest, migrations
from turnlog.ledger.sqlite import APPLICATION_ID

SQL = Path(str(resources.files("turnlog.ledger"))) / "sql" / "sqlite"
CODE = SQL.parent.parent
QUERIES = named_queries("sqlite")


def schema(path: Path) -> list[tuple[str, str, str]]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        rows = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name")
        return [(str(kind), str(name), str(sql)) for kind, name, sql in rows]
    finally:
        connection.close()


def build(path: Path, until: int) -> None:
    """Make a ledger as a turnlog that knew only the first steps would have."""
    connection = apsw.Connection(str(path))
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        with connection:
            for step in migrations("sqlite")[:until]:
                connection.execute(step.sql)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {until}")
    finally:
        connection.close()


# --- migrations


def test_files_are_numbered_without_gaps() -> None:
    names = sorted(path.name for path in SQL.glob("*.sql"))
    assert [name for name in names if not re.fullmatch(r"\d{4}_[a-z][a-z0-9_]*\.sql", name)] == []
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    assert [step.number for step in migrations("sqlite")] == list(range(1, latest("sqlite") + 1))


def test_every_file_says_what_it_is() -> None:
    for path in [*SQL.glob("*.sql")]:
        assert path.read_text(encoding="utf-8").startswith("-- "), path.name


@pytest.mark.parametrize("until", range(1, latest("sqlite") + 1))
def test_schema_by_migrations_equals_schema_from_scratch(tmp_path: Path, until: int) -> None:
    scratch, stepped = SqliteSetup(tmp_path / "scratch"), SqliteSetup(tmp_path)
    scratch.open().close()
    build(stepped.path, until)
    if until < latest("sqlite"):
        with pytest.raises(UnavailableError, match="upgrade"):
            stepped.open(read_only=True)
    stepped.open().close()
    assert schema(stepped.path) == schema(scratch.path)
    assert list(stepped.raw_sql("PRAGMA user_version")) == [(latest("sqlite"),)]


def test_a_failing_migration_leaves_the_old_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = SqliteSetup(tmp_path)
    with setup.open() as ledger:
        ledger.create_session(id="s", cwd="/f")
    before = schema(setup.path)
    number = latest("sqlite") + 1
    steps = (*migrations("sqlite"), Migration(number, "bad", "CREATE TABLE new (x); SELECT * FROM nothing;"))
    with monkeypatch.context() as patched:
        patched.setattr(sqlite, "migrations", lambda backend: steps)
        patched.setattr(sqlite, "latest", lambda backend: number)
        with pytest.raises(UnavailableError):
            setup.open()
    assert schema(setup.path) == before
    with setup.open() as ledger:
        assert ledger.session("s") is not None


def test_tables_are_strict(tmp_path: Path) -> None:
    setup = SqliteSetup(tmp_path)
    setup.open().close()
    rows = setup.raw_sql(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND strict = 0"
        " AND name NOT LIKE 'sqlite_%'"
    )
    assert list(rows) == []


def test_columns_of_semantics_chapter_2(tmp_path: Path) -> None:
    """Contract: names stay, so that the file can be read and repaired with any client."""
    wanted = {
        "execs": "id trace_id parent_exec_id via_agent caller_session_id caller_provider_generation command repo cwd"
        " started_at completed_at outcome exit_code signal error",
        "agent_sessions": "id title title_source kind interactive created_at completed_at ready_summary request"
        " current_capture input_published cwd repo skill provider model node iterations task_id wave_id flow_session_id"
        " work_source bound_at primary_scope driver_exec_id driver_generation provider_generation provider_exec_id"
        " provider_endpoint provider_thread provider_pid provider_started_at",
        "session_events": "seq session_id provider_thread provider_turn kind receipt_key provider_generation exec_id"
        " task_id wave_id observed_at payload captured_event",
        "waves": "id name repo created_at parent_wave_id retired_at",
        "wave_addresses": "id name repo created_at parent_wave_id retired_at slug",
        "projects": "id wave_id external_project_id created_at project_slug project_name status flow",
        "tasks": "id project_id external_issue_id issue_identifier issue_title created_at worktree started_at",
    }
    setup = SqliteSetup(tmp_path)
    setup.open().close()
    for table, columns in wanted.items():
        rows = setup.raw_sql("SELECT name FROM pragma_table_info(:table)", {"table": table})
        found = {str(name) for (name,) in rows}
        assert set(columns.split()) - found == set(), table


NEWER_THAN_3_37 = re.compile(
    r"->|\bunixepoch\(|\bjson_error_position\(|\bIS (NOT )?DISTINCT\b|\bRIGHT JOIN\b|\bFULL (OUTER )?JOIN\b"
    r"|\bconcat\("
    r"|\bstring_agg\(|\bjsonb|\btimediff\("
    r"|\boctet_length\(|\bunhex\(|\bcasefold\(",
    re.IGNORECASE,
)


def test_the_schema_needs_no_new_sqlite() -> None:
    """Triggers and views run in whatever client repairs the file. (Queries run in ours only.)"""
    for step in migrations("sqlite"):
        code = re.sub(r"--.*", "", step.sql)
        assert NEWER_THAN_3_37.findall(code) == [], step.name


REPAIR = """
import sqlite3, sys
if sqlite3.sqlite_version_info < (3, 37):
    print("too old")
    raise SystemExit
connection = sqlite3.connect(sys.argv[1])
for statement in (
    "UPDATE session_events SET observed_at = 5 WHERE kind = 'started'",
    "UPDATE session_events SET payload = '{\\"status\\":\\"failed\\"}' WHERE kind = 'completed'",
    "INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key, observed_at, payload)"
    " VALUES ('s', 't', '2', 'started', '', 6, '{}')",
    "INSERT INTO session_events (session_id, kind, receipt_key, observed_at, payload, captured_event)"
    " SELECT session_id,"
    " 'observed', receipt_key || ':terminal.json', 7, '{}', seq FROM session_events WHERE kind = 'captured'",
    "DELETE FROM session_events WHERE kind = 'usage'",
    "INSERT INTO execs (id, trace_id, started_at, completed_at) VALUES ('e', 't', 1, 2)",
    "UPDATE agent_sessions SET completed_at = 9",
):
    connection.execute(statement)
connection.commit()
connection.close()
print("repaired")
"""


def test_an_older_client_may_repair_the_file(tmp_path: Path) -> None:
    """The standard module's SQLite, in another process as it must be."""
    setup = SqliteSetup(tmp_path)
    with setup.open() as ledger:
        ledger.create_session(id="s", cwd="/f")
        for row in (("started", {}), ("usage", {"n": 1}), ("completed", {"status": "completed"})):
            ledger.record("s", "t", "1", *row)
        with child(REPAIR, str(setup.path)) as client:
            answer = client.line()
            client.finish()
        if answer == "too old":
            pytest.skip("the standard module's SQLite is older than 3.37")
        assert ledger.verify() == []
        assert ledger.history("s", after=1)[0].observed_at == 5
        summary = ledger.session_summary("s")
        assert summary is not None
        assert summary.session.completed_at == 9


# --- queries


def test_every_query_file_loads_and_names_are_unique() -> None:
    names = [
        name
        for path in sorted((SQL / "queries").glob("*.sql"))
        for name in re.findall(r"^-- name: (\w+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert sorted(names) == sorted(set(names)) == sorted(QUERIES)


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_every_query_has_a_purpose_and_one_statement(name: str) -> None:
    first, _, statement = QUERIES[name].partition("\n")
    assert re.fullmatch(r"-- [A-Z`].*", first), first
    code = re.sub(r"--.*", "", statement)
    assert ";" not in re.sub(r"'[^']*'", "", code)


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> apsw.Connection:
    setup = SqliteSetup(tmp_path_factory.mktemp("schema"))
    setup.open().close()
    connection = apsw.Connection(str(setup.path))
    connection.create_scalar_function("casefold", lambda *args: args[0], 1, deterministic=True)
    return connection


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_every_query_prepares(connection: apsw.Connection, name: str) -> None:
    statement = QUERIES[name]
    names = re.findall(r":([a-z_]+)", statement)
    connection.execute(f"EXPLAIN {statement}", dict.fromkeys(names) if names else (None,) * statement.count("?"))


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_every_query_is_used(name: str) -> None:
    users = [path.name for path in CODE.glob("*.py") if f'"{name}"' in path.read_text(encoding="utf-8")]
    assert users, "dead query"


def test_every_name_in_the_code_is_a_query() -> None:
    called = {
        name
        for path in CODE.glob("*.py")
        for name in re.findall(r'tx\.(?:one|all|run)\(\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert called - set(QUERIES) == set()
