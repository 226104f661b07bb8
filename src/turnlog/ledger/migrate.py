"""Numbered schema migrations. The same numbers exist for every backend; an empty step says so in its file."""

from __future__ import annotations

from functools import cache
from importlib import resources

import msgspec


class Migration(msgspec.Struct, frozen=True):
    """One step: its number, its name and its SQL."""

    number: int
    name: str
    sql: str


@cache
def migrations(backend: str) -> tuple[Migration, ...]:
    """Return the steps of a backend in order."""
    folder = resources.files("turnlog.ledger") / "sql" / backend
    steps = []
    for entry in folder.iterdir():
        if entry.name.endswith(".sql"):
            number, _, name = entry.name.removesuffix(".sql").partition("_")
            steps.append(Migration(int(number), name, entry.read_text(encoding="utf-8")))
    return tuple(sorted(steps, key=lambda step: step.number))


def latest(backend: str) -> int:
    """Return the newest schema number that this code knows."""
    return migrations(backend)[-1].number
