"""Numbered schema migrations. The same numbers exist for every backend; an empty step says so in its file."""

from __future__ import annotations

import os
from functools import cache

import msgspec

from turnlog.ledger.backend import sql_folder


class Migration(msgspec.Struct, frozen=True):
    """One step: its number, its name and its SQL."""

    number: int
    name: str
    sql: str


@cache
def migrations(backend: str) -> tuple[Migration, ...]:
    """Return the steps of a backend in order."""
    folder = sql_folder(backend)
    steps = []
    for number, name in _steps(folder):
        with open(f"{folder}/{number:04}_{name}.sql", encoding="utf-8") as file:  # noqa: PTH123
            steps.append(Migration(number, name, file.read()))
    return tuple(steps)


@cache
def new_ledger() -> Migration:
    """Return the steps of SQLite as one, for a file that nobody has put anything into. Its number is the last one's.

    ``tools/make_new_ledger.py`` writes it from the steps, in parts; steps that are newer are to be run after it.
    """
    folder = f"{sql_folder('sqlite')}/new"
    parts = _steps(folder)
    number = parts[-1][0]
    sql = ""
    for _, name in [part for part in parts if part[0] == number]:
        with open(f"{folder}/{number:04}_{name}.sql", encoding="utf-8") as file:  # noqa: PTH123
            sql += file.read()
    return Migration(number, "new", sql)


@cache
def latest(backend: str) -> int:
    """Return the newest schema number that this code knows."""
    return _steps(sql_folder(backend))[-1][0]


def _steps(folder: str) -> list[tuple[int, str]]:
    """Return (number, name) of the steps in a folder, in order."""
    names = [entry.removesuffix(".sql").partition("_") for entry in os.listdir(folder) if entry.endswith(".sql")]  # noqa: PTH208
    return sorted((int(number), name) for number, _, name in names)
