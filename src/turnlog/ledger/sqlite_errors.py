"""SQLite's errors as ours, once for all verbs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import apsw

from turnlog.errors import ConflictError, CorruptError, InvalidError, MissingError, TurnlogError, UnavailableError

_MISTAKES: Final = frozenset(
    {apsw.SQLITE_CONSTRAINT_CHECK, apsw.SQLITE_CONSTRAINT_NOTNULL, apsw.SQLITE_CONSTRAINT_DATATYPE}
)
VALUE_ERRORS: Final = (UnicodeError, OverflowError, TypeError)
"""What apsw raises for a value that no column can hold, or that Python cannot."""


def value_error(error: Exception) -> TurnlogError:
    """Return what to raise for one of VALUE_ERRORS."""
    if isinstance(error, UnicodeDecodeError):
        return CorruptError(f"the ledger holds text that is not UTF-8: {error}")
    return InvalidError(f"a value cannot be stored: {error}", hint="ids are text in UTF-8, numbers have 64 bits")


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours, once for all verbs."""
    try:
        yield
    except TurnlogError:
        raise
    except apsw.Error as error:
        raise _translate(error, path) from error


def _translate(error: apsw.Error, path: Path) -> TurnlogError:
    text = str(error)
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return UnavailableError(
            f"{path} is locked by another process",
            hint="wait for the other turnlog, or end the program that holds the file",
        )
    if isinstance(error, apsw.ConstraintError):
        return _constraint(error, text.removeprefix("ConstraintError: "))
    if isinstance(error, apsw.FullError):
        return UnavailableError(f"the disk that holds {path} is full", hint="free some space; nothing was half-written")
    if isinstance(error, apsw.NotADBError):
        return InvalidError(f"{path} is not a database", hint="name another file with --ledger")
    if isinstance(error, apsw.CorruptError):
        return CorruptError(f"{path} is damaged: {text}", hint="restore a backup (`turnlog ledger backup` makes them)")
    if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError | apsw.IOError | apsw.PermissionsError):
        return UnavailableError(f"cannot use {path}: {text}", hint="check the file's permissions and its disk")
    return UnavailableError(f"the database refused: {text}", hint="run `turnlog verify`")


def _constraint(error: apsw.ConstraintError, detail: str) -> TurnlogError:
    code: int = getattr(error, "extendedresult", 0)  # apsw sets it, its type stubs do not know
    if code == apsw.SQLITE_CONSTRAINT_FOREIGNKEY:
        return MissingError("a row that this names does not exist in the ledger")
    if code in _MISTAKES:
        return InvalidError(f"a value is not acceptable: {detail}", hint="nothing was written")
    return ConflictError(detail)
