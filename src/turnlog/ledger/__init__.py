"""The ledger: one store of verbs over a backend that is chosen by URL."""

from __future__ import annotations

from pathlib import Path

from turnlog.clock import Now, now_ms
from turnlog.errors import InvalidError, UnavailableError
from turnlog.ledger.store import Store
from turnlog.redact import sanitise

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
        try:
            from turnlog.ledger.postgres import PostgresBackend
        except ImportError as error:
            raise UnavailableError(
                "a PostgreSQL ledger needs psycopg, which is not installed", hint="pip install 'turnlog[postgres]'"
            ) from error
        return Store(PostgresBackend(url, read_only=read_only), now)
    raise InvalidError(
        f"{sanitise(url).partition('?')[0][:60]!r} is not a ledger URL",
        hint="write sqlite:////absolute/path, sqlite:///relative or postgresql://host/database",
    )


def shown(url: str) -> str:
    """Return a ledger's URL without secrets, to be shown. A URL that cannot be read is cut before its first ``@``."""
    if not url.startswith(("postgresql://", "postgres://")):
        return url
    from turnlog.ledger.postgres_url import Place

    try:
        return Place(url).url
    except InvalidError:
        scheme, _, rest = url.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"
