"""A private PostgreSQL server for tests: own data folder, own Unix socket, own port, an unprivileged user.

The server ends with this process, however that ends: a shell beside it waits for the end of a pipe.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg
import pytest
from psycopg.rows import TupleRow

from turnlog import Ledger, open_ledger
from turnlog.ledger.postgres import PostgresBackend
from turnlog.ledger.postgres_tx import placeholders
from turnlog.ledger.store import Store
from turnlog.testing.store_suite import StoreSetup

REQUIRED: Final = "TURNLOG_REQUIRE_POSTGRES"
PASSWORD: Final = "s3cret-w0rd/with:signs@"
"""Of the role ``locked``, the only one that needs one."""
QUICK: Final = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off"}
"""For tests of meaning; what kills the server keeps the server's own defaults."""

_KEEPER: Final = '"$@" & child=$!; cat >/dev/null; kill -QUIT $child 2>/dev/null; wait $child'
_HBA: Final = "local all locked scram-sha-256\nlocal all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"


class Server:
    """One server. ``port`` names the socket too; TCP is open on 127.0.0.1 to roles with a password."""

    def __init__(self, settings: Mapping[str, str] = QUICK) -> None:
        self.binaries = binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="tlpg"))
        self.port = 0
        self._settings = {
            **settings,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "max_connections": "60",
            "shared_buffers": "64MB",
        }
        self._keeper: subprocess.Popen[bytes] | None = None
        self._user: dict[str, Any] = {}
        self._owners: dict[str, psycopg.Connection[TupleRow]] = {}
        if os.geteuid() == 0:  # the server refuses to run as root
            who = _unprivileged()
            os.chown(self.folder, who.pw_uid, who.pw_gid)
            self._user = {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}
        self._run(
            "initdb", "--auth=trust", "--encoding=UTF8", "--locale=C", "--username=owner", "--no-sync", "-D", self.data
        )
        (self.folder / "data" / "pg_hba.conf").write_text(_HBA, encoding="utf-8")
        while not self._started_on(_free_port()):
            self.stop()  # another program took the port between our look and the server's start
        self.sql(f"CREATE ROLE locked LOGIN PASSWORD '{PASSWORD}'", database="postgres")

    @property
    def data(self) -> str:
        return str(self.folder / "data")

    def _command(self, program: str, *args: object) -> list[str]:
        return [str(self.binaries / program), *map(str, args)]

    def _run(self, program: str, *args: str) -> None:
        command = self._command(program, *args)
        done = subprocess.run(command, capture_output=True, check=False, cwd=self.folder, **self._user)
        assert done.returncode == 0, done.stderr.decode()

    def start(self) -> None:
        """Start it on the port it had, and wait until it answers."""
        assert self._started_on(self.port), f"port {self.port} is taken"

    def _started_on(self, port: int) -> bool:
        """Start it, and wait until it answers; False when the port is taken."""
        self.port = port
        options = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("wb") as log:
            self._keeper = subprocess.Popen(
                [
                    "/bin/sh",
                    "-c",
                    _KEEPER,
                    "sh",
                    *self._command("postgres", "-D", self.data, "-p", self.port),
                    *options,
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **self._user,
            )
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url("postgres")).close()
            except psycopg.OperationalError:
                said = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
                if "could not create any TCP/IP sockets" in said:
                    return False
                assert time.monotonic() < deadline, said
                time.sleep(0.02)  # the server tells nobody when it is ready
            else:
                return True

    def postmaster(self) -> int:
        """Return the process id of the server."""
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def stop(self) -> None:
        """Stop it at once, as a crash of the machine would; the data stays."""
        for connection in self._owners.values():
            connection.close()
        self._owners.clear()
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            self._keeper.stdin.close()
            self._keeper.wait(60)
            self._keeper = None

    def kill(self, *, everything: bool) -> None:
        """End processes of the server with SIGKILL: all, or one that serves a client, after which it recovers."""
        postmaster = psutil.Process(self.postmaster())
        serving = [each for each in postmaster.children() if "turnlog" in " ".join(each.cmdline()) or everything]
        victims = [postmaster, *serving] if everything else serving[:1]
        for each in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        if everything:
            psutil.wait_procs(victims, 30)
            self.stop()

    def end(self) -> None:
        """Stop it and forget its data."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str, role: str = "owner") -> str:
        return f"postgresql://{role}@/{database}?host={self.folder}&port={self.port}"

    def sql(self, statement: str, params: Mapping[str, Any] | None = None, *, database: str) -> list[Any]:
        """Run one statement as the owner, and commit it."""
        connection = self._owners.get(database)
        if connection is None or connection.closed:
            connection = self._owners[database] = psycopg.connect(self.url(database), autocommit=True)
        cursor = connection.execute(placeholders(statement) if params is not None else statement, params)
        return list(cursor) if cursor.description else []

    def new_database(self) -> str:
        """Make an empty database; return its name."""
        name = f"t{secrets.token_hex(6)}"
        self.sql(f"CREATE DATABASE {name}", database="postgres")
        return name

    @cache  # noqa: B019 - one for each server, which lives as long as the tests
    def shared_ledger(self) -> str:
        """Return the name of a database with a ledger, for tests that leave it to be wiped."""
        name = self.new_database()
        open_ledger(self.url(name)).close()
        return name

    def wipe(self, database: str) -> None:
        """Make a ledger as good as new."""
        tables = self.sql(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
            " AND relname <> 'ledger_meta'",
            database=database,
        )
        sequences = self.sql(
            "SELECT relname FROM pg_class WHERE relkind = 'S' AND relnamespace = 'public'::regnamespace",
            database=database,
        )
        self.sql(
            "BEGIN; SET LOCAL session_replication_role = replica;"  # neither triggers nor foreign keys
            + "".join(f"DELETE FROM {table};" for (table,) in tables)
            + "".join(f"ALTER SEQUENCE {sequence} RESTART;" for (sequence,) in sequences)
            + "COMMIT",
            database=database,
        )


class PostgresSetup(StoreSetup):
    """The suite's hooks for PostgreSQL."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server = server
        self.database = server.shared_ledger()
        server.wipe(self.database)

    def url(self) -> str:
        return self.server.url(self.database)

    def raw_sql(self, statement: str, params: Mapping[str, Any] = {}) -> Sequence[tuple[Any, ...]]:
        return self.server.sql(statement, params, database=self.database)

    def impatient(self) -> Ledger:
        return Ledger(Store(PostgresBackend(self.url(), busy_ms=20, lock_wait_s=0.02), self.clock))


def backend_of(ledger: Ledger) -> PostgresBackend:
    """Return what is below a ledger."""
    backend = ledger._store._backend
    assert isinstance(backend, PostgresBackend)
    return backend


def binaries() -> Path:
    """Return the folder of PostgreSQL's programs. Skips without them, unless they are required."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    on_path = shutil.which("initdb")
    found = [folder for folder in folders if (folder / "initdb").exists()] or (
        [Path(on_path).parent] if on_path else []
    )
    if found:
        return found[-1]
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"PostgreSQL's initdb is not installed, and {REQUIRED}=1 asks for it")
    pytest.skip("PostgreSQL's programs are not installed")


@cache
def shared() -> Server:
    """Return the server of this test process."""
    server = Server()
    atexit.register(server.end)
    return server


@contextlib.contextmanager
def durable() -> Iterator[Server]:
    """A server of its own that may be killed."""
    server = Server({"autovacuum": "off"})
    try:
        yield server
    finally:
        server.end()


def _unprivileged() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    pytest.skip("there is no unprivileged user to run PostgreSQL as")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
