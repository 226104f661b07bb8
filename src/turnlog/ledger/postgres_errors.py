"""PostgreSQL's errors as ours, once for all verbs. What libpq says is shown without the secrets of the URL."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import psycopg
from psycopg import errors

from turnlog.errors import (
    ConflictError,
    CorruptError,
    InvalidError,
    MissingError,
    TurnlogError,
    UnavailableError,
)
from turnlog.ledger.postgres_url import Place
from turnlog.redact import sanitise

VALUE_ERRORS: Final = (UnicodeError, OverflowError, TypeError, errors.DataError)
"""What is raised for a value that no column can hold, or that Python cannot."""

_MISTAKES: Final = (
    errors.CheckViolation,
    errors.NotNullViolation,
    errors.DatatypeMismatch,
    errors.UndefinedFunction,  # no operator compares this text with a number
    errors.ProgramLimitExceeded,  # text too long for an index
)
_WAITED: Final = (errors.LockNotAvailable, errors.DeadlockDetected, errors.SerializationFailure)


class UnansweredError(psycopg.OperationalError):
    """The server said nothing, and lets nobody in."""


def value_error(error: Exception) -> TurnlogError:
    """Return what to raise for one of VALUE_ERRORS."""
    if isinstance(error, UnicodeDecodeError | errors.CharacterNotInRepertoire):
        return CorruptError(f"the ledger holds text that is not UTF-8: {error}")
    return InvalidError(f"a value cannot be stored: {_line(error)}", hint="ids are text in UTF-8, numbers have 64 bits")


@contextlib.contextmanager
def translated(place: Place) -> Iterator[None]:
    """Turn psycopg's errors into ours."""
    try:
        yield
    except TurnlogError:
        raise
    except psycopg.Error as error:
        raise translate(error, place) from None if place.secrets else error


def translate(error: psycopg.Error, place: Place) -> TurnlogError:
    """Return our error for one of psycopg's."""
    detail = sanitise(place.hide(_line(error)))
    if isinstance(error, _WAITED):
        return UnavailableError(
            f"{place.url} is locked by another process",
            hint="nothing was written; try again when the other turnlog has ended",
        )
    if isinstance(error, errors.ForeignKeyViolation):
        return MissingError("a row that this names does not exist in the ledger")
    if isinstance(error, _MISTAKES):
        return InvalidError(f"a value is not acceptable: {detail}", hint="nothing was written")
    if isinstance(error, errors.IntegrityError):
        return ConflictError(detail)
    if isinstance(error, errors.DataError):
        return value_error(error)
    return _unavailable(error, place, detail)


def _unavailable(error: psycopg.Error, place: Place, detail: str) -> TurnlogError:
    if isinstance(error, errors.InsufficientPrivilege):
        return UnavailableError(
            f"this user may not do that in {place.url}: {detail}", hint="ask the ledger's owner to grant it"
        )
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return UnavailableError(f"{place.url} is read-only now", hint="name the primary server, not a standby")
    if isinstance(error, errors.DiskFull):
        return UnavailableError(
            f"the disk that holds {place.url} is full", hint="free some space; nothing was half-written"
        )
    if isinstance(error, errors.DataCorrupted | errors.IndexCorrupted):
        return CorruptError(f"{place.url} is damaged: {detail}", hint="restore a backup of the database")
    if isinstance(error, errors.QueryCanceled):
        return UnavailableError(f"{place.url} took too long: {detail}", hint="try again; look for a busy server")
    if isinstance(error, UnansweredError | errors.ConnectionTimeout):
        return UnavailableError(
            f"{place.url} does not answer: {detail}",
            hint="look whether the server hangs or the network is cut; what was recorded is not recorded twice when you"
            " try again",
        )
    if isinstance(error, psycopg.OperationalError):
        return UnavailableError(f"cannot use {place.url}: {detail}", hint=_hint(detail, place))
    return UnavailableError(f"the database refused: {detail}", hint="run `turnlog verify`")


def _hint(detail: str, place: Place) -> str:
    """Say what to do about a connection that failed; libpq gives no code for that, only words."""
    if f'"{place.database}" does not exist' in detail and "database" in detail:
        return f"make it: createdb --encoding=UTF8 --template=template0 {place.database}"
    if "password" in detail or "authentication" in detail or "pg_hba" in detail:
        return "give the password in PGPASSWORD or ~/.pgpass, or in the URL; it is never shown"
    if "SSL" in detail or "certificate" in detail:
        return "check sslmode and sslrootcert in the URL"
    return "check that the server runs and can be reached; what was recorded is not recorded twice when you try again"


def _line(error: Exception) -> str:
    told = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return " ".join((told or str(error)).split()) or type(error).__name__
