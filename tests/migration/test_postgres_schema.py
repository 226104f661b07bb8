"""Schema and queries of the PostgreSQL ledger as files, beside those of SQLite: the same numbers, names and columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import apsw
import psycopg
import pytest
from psycopg.rows import TupleRow

from tests import postgres_server
from tests.ledger.sqlite_setup import SqliteSetup
from turnlog.ledger.backend import named_queries
from turnlog.ledger.migrate import migrations
from turnlog.ledger.postgres_tx import placeholders, statements

SQL = Path(str(resources.files("turnlog.ledger"))) / "sql" / "postgres"
QUERIES = named_queries("postgres")
OWN = {"insert_natives"}
"""What only this backend has: it spares round trips."""


def test_migrations_have_the_numbers_and_names_of_sqlite() -> None:
    assert [(step.number, step.name) for step in migrations("postgres")] == [
        (step.number, step.name) for step in migrations("sqlite")
    ]
    for path in SQL.glob("*.sql"):
        assert path.read_text(encoding="utf-8").startswith("-- "), path.name


def test_queries_have_the_names_of_sqlite() -> None:
    names = [
        name
        for path in sorted((SQL / "queries").glob("*.sql"))
        for name in re.findall(r"^-- name: (\w+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert sorted(names) == sorted(set(names))
    assert set(names) - OWN == set(named_queries("sqlite"))


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_every_query_has_a_purpose_one_statement_and_the_parameters_of_sqlite(name: str) -> None:
    first, _, statement = QUERIES[name].partition("\n")
    assert re.fullmatch(r"-- [A-Z`].*", first), first
    assert ";" not in re.sub(r"'[^']*'|--.*", "", statement)

    def words(text: str) -> set[str]:
        spelled = placeholders(text)
        return set(re.findall(r"%\((\w+)\)s", spelled)) | {"?" * (spelled.count("%s"))}

    if name in {"tail", "tail_of_session"}:  # there the cursor is a seq alone
        assert {"seq", "limit"} <= words(QUERIES[name])
        return
    if name == "insert_receipts":  # there rows are told one by one, here as columns, with their places
        assert QUERIES[name].count("?") == named_queries("sqlite")[name].count("?") + 1
        return
    assert words(QUERIES[name]) <= words(named_queries("sqlite").get(name, QUERIES[name])), name


@pytest.fixture(scope="module")
def database() -> str:
    return postgres_server.shared().shared_ledger()


@pytest.fixture(scope="module")
def connection(database: str) -> Iterator[psycopg.Connection[TupleRow]]:
    with psycopg.connect(postgres_server.shared().url(database), autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_every_query_prepares(connection: psycopg.Connection[TupleRow], name: str) -> None:
    """Without values: every parameter's type follows from the statement, so nothing depends on what is given first."""
    statement = statements()[name]
    numbers: dict[str, str] = {}
    text = re.sub(r"%\((\w+)\)s", lambda found: numbers.setdefault(found[1], f"${len(numbers) + 1}"), statement)
    count = iter(range(1, 100))
    text = re.sub(r"%s", lambda found: f"${next(count)}", text).replace("%%", "%")
    connection.execute(f"PREPARE tried AS {text}".encode())
    connection.execute("DEALLOCATE tried")


def test_tables_have_the_columns_of_sqlite(database: str, tmp_path: Path) -> None:
    """Contract: a person finds the same names on both; more may stand beside them."""
    setup = SqliteSetup(tmp_path)
    setup.open().close()
    connection = apsw.Connection(str(setup.path))
    theirs = {
        str(table): {
            str(column) for (column,) in connection.execute("SELECT name FROM pragma_table_xinfo(?)", (table,))
        }
        for (table,) in connection.execute(
            "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type IN ('table', 'view')"
            " AND name NOT LIKE 'sqlite_%'"
        )
    }
    connection.close()
    ours: dict[str, set[str]] = {}
    for table, column in postgres_server.shared().sql(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'",
        database=database,
    ):
        ours.setdefault(table, set()).add(column)
    internal = {"refold_capture", "refold_turn", "refold_intent", "added_event", "terminals"}  # functions here
    assert set(theirs) - internal <= set(ours)
    for table in set(theirs) - internal:
        assert theirs[table] <= ours[table], table


def test_text_is_compared_by_bytes(database: str) -> None:
    rows = postgres_server.shared().sql(
        "SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
        " JOIN pg_collation l ON l.oid = a.attcollation WHERE c.relkind = 'r' AND a.attnum > 0"
        " AND c.relnamespace = 'public'::regnamespace AND l.collname <> 'C'",
        database=database,
    )
    assert rows == []


def test_no_payload_is_jsonb(database: str) -> None:
    """It refuses NUL escapes and rewrites numbers."""
    rows = postgres_server.shared().sql(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
        " AND data_type IN ('json', 'jsonb')",
        database=database,
    )
    assert rows == []
