"""The schema of a PostgreSQL ledger: recognised, made, brought up to date, told from others that share the server."""

from __future__ import annotations

import os
from typing import Final

from psycopg import errors
from psycopg.rows import TupleRow

from turnlog.errors import InvalidError, NoLedgerError, OldLedgerError, UnavailableError
from turnlog.ledger.migrate import latest, migrations
from turnlog.ledger.postgres_tx import Connection, lock_key

OLDEST_SERVER: Final = 140_000
APPLICATION: Final = "turnlog"

LOOK: Final = (
    "SELECT key, value, turnlog_home() FROM ledger_meta WHERE key IN ('application', 'schema', 'tail_home')"
    " AND current_setting('server_encoding') = 'UTF8'"
)
"""What tells whether there is anything to prepare. Where there is no ledger it is an error."""


def is_ready(told: list[TupleRow]) -> bool:
    """Tell from the answer to LOOK whether the database is a ledger of this version, where it was written last."""
    found = {row[0]: row[1] for row in told}
    wanted = {"application": APPLICATION, "schema": str(latest("postgres"))}
    return bool(told) and found == {**wanted, "tail_home": told[0][2]}


def prepare_schema(connection: Connection, url: str, *, read_only: bool) -> None:
    """Make or upgrade the schema in one transaction, under a lock; only check it when ``read_only``.

    Raises InvalidError for a database that cannot hold a ledger, UnavailableError for one of another version.
    """
    version, encoding = connection.info.server_version, connection.info.parameter_status("server_encoding")
    if version < OLDEST_SERVER:
        raise UnavailableError(f"{url} is PostgreSQL {version // 10_000}", hint="turnlog needs PostgreSQL 14 or newer")
    if encoding != "UTF8":
        raise InvalidError(
            f"{url} has the encoding {encoding}, not UTF8",
            hint="make another database: createdb --encoding=UTF8 --template=template0 NAME",
        )
    newest = latest("postgres")
    found = _recognise(connection, url, newest)
    if found == newest and _is_home(connection):
        return
    if read_only:
        if found == 0:
            raise NoLedgerError(f"no ledger in {url}")
        if found == newest:
            return
        raise OldLedgerError(f"{url} has schema {found}, which needs an upgrade to {newest}")
    with connection.transaction():
        # Whoever comes second waits for the whole upgrade, and finds it done.
        connection.execute("SET LOCAL lock_timeout = 0")
        connection.execute(f"SELECT pg_advisory_xact_lock({lock_key('schema', 'migration')})")
        found = _recognise(connection, url, newest)
        _upgrade(connection, url, found)
        if not _is_home(connection):
            _move_in(connection)


def _recognise(connection: Connection, url: str, newest: int) -> int:
    """Return the schema's number, 0 where there is none. Raises for what is not ours or too new."""
    # By a scan: a look-up by name may answer from a cache that does not know yet what another process has just made.
    found = connection.execute("SELECT 1 FROM pg_class WHERE relname = 'ledger_meta' AND pg_table_is_visible(oid)")
    if found.fetchone() is None:
        return 0
    try:
        with connection.transaction():
            rows = connection.execute("SELECT key, value FROM ledger_meta WHERE key IN ('application', 'schema')")
            told: dict[str, str] = dict(rows.fetchall())
    except errors.UndefinedColumn:
        told = {}
    if told.get("application") != APPLICATION or not str(told.get("schema")).isdigit():
        raise InvalidError(
            f"{url} has a table ledger_meta that is no turnlog ledger's",
            hint="name another database with --ledger, or another schema with ?options=-csearch_path%3DNAME",
        )
    version = int(told["schema"])
    if version > newest:
        raise UnavailableError(f"{url} has schema {version}; this turnlog knows {newest}", hint="upgrade turnlog")
    return version


def _upgrade(connection: Connection, url: str, found: int) -> None:
    newest = latest("postgres")
    if found == newest:
        return
    try:
        # What runs as the ledger's owner finds the ledger's tables only, nobody's temporary ones of the same name.
        connection.execute("SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true)")
        for step in migrations("postgres"):
            if step.number > found:
                connection.execute(step.sql)
    except (errors.DuplicateTable, errors.DuplicateObject, errors.DuplicateFunction) as error:
        raise InvalidError(
            f"{url} holds something else under a name that turnlog needs: {error.diag.message_primary}",
            hint="name another database with --ledger, or another schema with ?options=-csearch_path%3DNAME",
        ) from error
    except errors.InsufficientPrivilege as error:
        if found == 0:
            raise UnavailableError(
                f"no ledger in {url}, and this user may not make one: {error.diag.message_primary}",
                hint="the database's owner makes it: run a turnlog command as that role, then writer.sql for this user",
            ) from error
        raise UnavailableError(
            f"{url} has schema {found}, which needs an upgrade to {newest} that only its owner may make",
            hint="the ledger's owner upgrades it: run a turnlog command as that role, then writer.sql again",
        ) from error
    if found == 0:
        connection.execute(
            "INSERT INTO ledger_meta VALUES ('application', %s), ('ledger_id', %s)", (APPLICATION, os.urandom(16).hex())
        )
    connection.execute(
        "INSERT INTO ledger_meta VALUES ('schema', %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (str(newest),),
    )


# --- where the ledger lives: transaction ids mean something in one database of one server only


def _is_home(connection: Connection) -> bool:
    rows = connection.execute("SELECT value = turnlog_home() FROM ledger_meta WHERE key = 'tail_home'")
    return rows.fetchone() == (True,)


def _move_in(connection: Connection) -> None:
    """Say from which row on transaction ids are this database's: those of restored rows were another's."""
    connection.execute("LOCK TABLE session_events IN SHARE MODE")
    connection.execute(
        "INSERT INTO ledger_meta VALUES ('tail_home', turnlog_home()),"
        " ('tail_moved', (SELECT coalesce(max(seq), 0)::text FROM session_events))"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    )
    connection.execute("DELETE FROM rollup_state WHERE key = 'cursor'")
