"""The door by which receipts enter the ledger: what a harness saw live, and what lies in the programs' own files."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from turnlog.harness.reading import Reader

__all__ = ["PROVIDERS", "reader", "readers"]

PROVIDERS: Final = ("claude", "codex", "opencode")


def reader(provider: str) -> Reader:
    """Return the reader of one program's files; imported when it is first asked for."""
    found: Reader = import_module(f"turnlog.harness.{provider}.reader").READER
    return found


def readers(provider: str | None = None) -> tuple[Reader, ...]:
    """Return the reader of one program's files, or of all."""
    return tuple(reader(name) for name in PROVIDERS if provider in {None, name})
