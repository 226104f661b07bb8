"""Writes the script that a new SQLite ledger is made with, from the migrations: they alone say what a ledger is.

Run it after a migration was added: .venv/bin/python tools/make_new_ledger.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw

from turnlog.ledger.backend import sql_folder
from turnlog.ledger.migrate import latest, migrations

FOLDER = Path(sql_folder("sqlite")) / "new"

_HEAD = """\
-- A new ledger at once: what the migrations up to {number:04} make of an empty file. Part {part}.
-- Written by tools/make_new_ledger.py; do not edit it.
"""
_LINES = 400
"""Lines of a part, but for its last statement."""


def made() -> dict[str, str]:
    """Return the parts of the script by file name. Raises ValueError where a migration leaves rows to be repeated."""
    connection = apsw.Connection(":memory:")
    try:
        for step in migrations("sqlite"):
            connection.execute(step.sql)
        number, parts = latest("sqlite"), [""]
        for each in _statements(connection):
            if parts[-1].count("\n") > _LINES:
                parts.append("")
            parts[-1] += f"\n{each};\n"
        return {f"{number:04}_{n}.sql": _HEAD.format(number=number, part=n) + sql for n, sql in enumerate(parts, 1)}
    finally:
        connection.close()


def _statements(connection: apsw.Connection) -> Iterator[str]:
    rows = list(connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid"))
    searched = [str(name) for _, name, sql in rows if str(sql).startswith("CREATE VIRTUAL TABLE")]
    for kind, name, sql in rows:
        inside = any(str(name).startswith(f"{each}_") for each in searched)
        if kind == "table" and (inside or name == "sqlite_sequence"):
            continue  # SQLite makes it by itself
        yield str(sql)
        if name in searched:
            settings = f"SELECT k, v FROM {name}_config WHERE k <> 'version' ORDER BY k"  # noqa: S608 - the schema's names
            for key, value in connection.execute(settings):
                yield f"INSERT INTO {name} ({name}, rank) VALUES ('{key}', {value})"  # noqa: S608
        elif kind == "table" and list(connection.execute(f"SELECT 1 FROM {name} LIMIT 1")):  # noqa: S608
            raise ValueError(f"a migration puts rows into {name}: this tool does not repeat them")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.sql"):
        old.unlink()
    for name, sql in made().items():
        (FOLDER / name).write_text(sql, encoding="utf-8")
        print(f"{name}: {len(sql):,} characters")
