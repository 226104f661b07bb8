"""A new SQLite ledger is made from one script. It is what the migrations give, and they alone are edited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.ledger.sqlite_setup import SqliteSetup, raw
from tests.migration.test_sqlite_schema import build
from tools import make_new_ledger
from turnlog.ledger import sqlite
from turnlog.ledger.migrate import Migration, latest, migrations, new_ledger


def content(path: Path) -> dict[str, list[Any]]:
    """Everything in a file: the schema in its order, the header's numbers, the rows of each table."""
    with raw(path) as connection:
        found = {
            "schema": list(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY rowid")),
            "numbers": [connection.pragma("user_version"), connection.pragma("application_id")],
        }
        tables = [name for kind, name, _, _ in found["schema"] if kind == "table"]
        for name in tables:
            found[f"rows of {name}"] = list(connection.execute(f"SELECT * FROM {name}"))
    return found


def test_the_script_is_the_one_that_the_tool_writes() -> None:
    found = {path.name: path.read_text(encoding="utf-8") for path in make_new_ledger.FOLDER.iterdir()}
    assert found == make_new_ledger.made(), "run: .venv/bin/python tools/make_new_ledger.py"
    assert (new_ledger().number, new_ledger().sql) == (latest("sqlite"), "".join(found[each] for each in sorted(found)))


def test_a_new_ledger_holds_what_the_migrations_give(tmp_path: Path) -> None:
    new, stepped = SqliteSetup(tmp_path / "new"), SqliteSetup(tmp_path)
    new.open().close()
    build(stepped.path, latest("sqlite"))
    found, wanted = content(new.path), content(stepped.path)
    ((key, identity),) = found.pop("rows of ledger_meta")
    assert (key, len(identity), wanted.pop("rows of ledger_meta")) == ("ledger_id", 32, [])
    order = {name: sorted(map(str, each.pop("schema"))) for name, each in (("new", found), ("stepped", wanted))}
    assert order["new"] == order["stepped"]
    assert found == wanted
    assert found["rows of passage_words_config"] == [
        ("automerge", 0),
        ("crisismerge", 64),
        ("hashsize", 33554432),
        ("version", 4),
    ]


@pytest.mark.parametrize("until", [1, latest("sqlite") - 1])
def test_steps_that_are_newer_than_the_script_run_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: int
) -> None:
    older = Migration(until, "new", "".join(step.sql for step in migrations("sqlite")[:until]))
    new, stepped = SqliteSetup(tmp_path / "new"), SqliteSetup(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(sqlite, "new_ledger", lambda: older)
        stepped.open().close()
    new.open().close()
    found, wanted = content(stepped.path), content(new.path)
    assert sorted(map(str, found["schema"])) == sorted(map(str, wanted["schema"]))
    assert found["numbers"] == wanted["numbers"] == [latest("sqlite"), sqlite.APPLICATION_ID]


def test_a_failing_script_leaves_a_file_that_the_next_one_fills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = SqliteSetup(tmp_path)
    bad = Migration(latest("sqlite"), "new", new_ledger().sql + "SELECT * FROM nothing;")
    with monkeypatch.context() as patched:
        patched.setattr(sqlite, "new_ledger", lambda: bad)
        with pytest.raises(Exception, match="nothing"):
            setup.open()
    assert content(setup.path)["schema"] == []
    with setup.open() as ledger:
        ledger.create_session(id="s", cwd="/f")


def test_rows_that_the_script_would_not_repeat_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (*migrations("sqlite"), Migration(99, "rows", "INSERT INTO ledger_meta VALUES ('a', 'b');"))
    monkeypatch.setattr(make_new_ledger, "migrations", lambda backend: steps)
    with pytest.raises(ValueError, match="rows into ledger_meta"):
        make_new_ledger.made()
