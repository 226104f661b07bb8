"""The ledger: one store of verbs over a backend that is chosen by URL."""

from __future__ import annotations

import contextlib
from pathlib import Path

from turnlog.clock import Now, now_ms
from turnlog.errors import InvalidError, UnavailableError
from turnlog.ledger.store import Store

__all__ = ["Store", "open_store", "shown"]


def open_store(url: str, *, read_only: bool = False, now: Now = now_ms) -> Store:
    """Open a ledger by URL (SQLAlchemy's rule: ``sqlite:///relative``, ``sqlite:////absolute``; ``postgresql://…``).

    Raises InvalidError for a URL that names no ledger, UnavailableError when it cannot be opened.
    """
    scheme, separator, rest = url.partition("://")
    if scheme == "sqlite" and separator:
        from turnlog.ledger.sqlite import SqliteBackend

        path = rest.removeprefix("/")
        if not rest.startswith("/") or not path or path.startswith(":"):
            raise InvalidError(
                f"{url!r} names no file", hint="write sqlite:////absolute/path or sqlite:///relative/path"
            )
        return Store(SqliteBackend(Path(path).expanduser(), read_only=read_only), now)
    if scheme in ("postgresql", "postgres") and separator:
        if _holds_a_stray_sign(rest):
            raise InvalidError(
                "the ledger's PostgreSQL URL cannot be understood: an @ stands behind the place of the password",
                hint="write a password's special characters as %XX (@ as %40, / as %2F), or give it in PGPASSWORD",
            )
        try:
            from turnlog.ledger.postgres import PostgresBackend
        except ImportError as error:
            raise UnavailableError(
                "a PostgreSQL ledger needs psycopg, which is not installed", hint="pip install 'turnlog[postgres]'"
            ) from error
        return Store(PostgresBackend(url, read_only=read_only), now)
    from turnlog.redact import sanitise

    # Whatever stands before an @ may hold a password, also where it is no URL at all.
    said = sanitise(url).partition("?")[0].rpartition("@")[2]
    raise InvalidError(
        f"{said[:60]!r} is not a ledger URL",
        hint="write sqlite:////absolute/path, sqlite:///relative or postgresql://host/database",
    )


def shown(url: str) -> str:
    """Return a ledger's URL without secrets, to be shown. One that cannot be read is cut before its last ``@``."""
    if url.startswith("sqlite:"):
        return url
    scheme, separator, rest = url.partition("://")
    if scheme in ("postgresql", "postgres") and not _holds_a_stray_sign(rest):
        from turnlog.ledger.postgres_url import Place

        with contextlib.suppress(InvalidError):
            return Place(url).url
    return f"{scheme}://{rest.rpartition('@')[2]}" if separator else url.rpartition("@")[2]


def _holds_a_stray_sign(rest: str) -> bool:
    """Tell whether a URL (behind ``://``) has an ``@`` that libpq takes for a part of the host or the path.

    That is what a password with an unescaped ``@`` or ``/`` looks like: its end would be shown as the host's name.
    """
    user, sign, place = rest.partition("@")
    if not sign or "/" in user:  # nobody is named before the host
        place = rest
    return "@" in place.partition("?")[0]
