"""Machines that fight for one conversation, while they are killed, stopped, cut off, and their server restarted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from tests.crash.schedules import Arena, Scene, arena, check, cut, kill, stop, stop_and_cut
from tests.crash.wire import Wire
from tests.ledger.sqlite_setup import SqliteSetup
from tests.postgres_server import Server
from turnlog import open_ledger

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

SEED = 20_261_130
AT_ONCE = 10
"""Schedules in one test: a failure names its seed, and a run can be spread over processors."""

POSTGRES = list(range(SEED, SEED + 50, AT_ONCE))
SQLITE = list(range(SEED, SEED + 10, AT_ONCE))
LONG = list(range(SEED + 1_000, SEED + 2_000, 50))


@pytest.fixture(scope="module")
def machines() -> Iterator[Arena]:
    with arena(3) as machines:
        yield machines


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """What it acknowledges survives the end of its processes; it never has to survive the end of the machine here."""
    server = Server({"fsync": "off", "autovacuum": "off"})
    yield server
    server.end()


@pytest.fixture(scope="module")
def empty(server: Server) -> str:
    """A database with a new ledger, to be copied."""
    name = server.new_database()
    with open_ledger(server.url(name)) as ledger:
        ledger.create_session(id="conversation", cwd="/f")
    return name


class Counted(msgspec.Struct):
    """What happened: late sends, drivers that found out that they had lost, leases that had run out."""

    late: int = 0
    lost: int = 0
    expired: int = 0


def schedule(machines: Arena, server: Server, empty: str, folder: Path, seed: int) -> Counted:
    """Play one schedule on a new ledger and check it."""
    chance = random.Random(seed)
    name = f"s{seed}"
    server.sql(f"CREATE DATABASE {name} TEMPLATE {empty}", database="postgres")
    # A copied sequence believes that its next values are in the WAL already; a crash would set it back to its copy.
    server.sql("SELECT setval(oid::regclass, 100) FROM pg_class WHERE relkind = 'S'", database=name)
    provider = folder / name
    provider.touch()
    playing = chance.choice([2, 2, 3])
    scenes: list[Scene] = [kill, stop, cut, cut, stop_and_cut]
    if chance.random() < 0.2:
        scenes.append(lambda *_: restart(server))
    with ExitStack() as stack:
        urls = []
        for machine in machines.machines[:playing]:
            machine.wire = stack.enter_context(Wire(server.folder / f".s.PGSQL.{server.port}"))
            urls.append(machine.wire.url(name))
        told = machines.run(chance, urls, provider, scenes, chance.randint(2, 4))
    try:
        with open_ledger(server.url(name)) as ledger:
            return Counted(
                late=check(ledger, told, provider),
                lost=len(told.of("stale")),
                expired=sum(":expired" in str(row.payload) for row in ledger.history("conversation")),
            )
    finally:
        server.sql(f"DROP DATABASE {name} WITH (FORCE)", database="postgres")


def restart(server: Server) -> None:
    """As after a crash of all its processes."""
    server.stop()
    server.start()


def play(machines: Arena, server: Server, empty: str, folder: Path, seeds: range) -> None:
    """Play several; that nothing was fought for in all of them would be a fault of the test."""
    total = Counted()
    for seed in seeds:
        try:
            found = schedule(machines, server, empty, folder, seed)
        except AssertionError as error:
            error.add_note(f"schedule {seed}")
            raise
        total = Counted(total.late + found.late, total.lost + found.lost, total.expired + found.expired)
    print(f"\nschedules {seeds.start} to {seeds.stop - 1}: {total}")
    assert total.lost
    assert total.expired


@pytest.mark.parametrize("first", POSTGRES)
def test_machines_at_one_postgresql(machines: Arena, server: Server, empty: str, tmp_path: Path, first: int) -> None:
    play(machines, server, empty, tmp_path, range(first, first + AT_ONCE))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", LONG)
def test_machines_at_one_postgresql_for_long(
    machines: Arena, server: Server, empty: str, tmp_path: Path, first: int
) -> None:
    play(machines, server, empty, tmp_path, range(first, first + 50))


@pytest.mark.parametrize("first", SQLITE)
def test_machines_at_one_file(machines: Arena, tmp_path: Path, first: int) -> None:
    """Containers that share a folder. Nothing can be cut here, so nothing is ever sent late."""
    for seed in range(first, first + AT_ONCE):
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        setup = SqliteSetup(folder)
        with setup.open() as ledger:
            ledger.create_session(id="conversation", cwd="/f")
        provider = folder / "provider"
        provider.touch()
        told = machines.run(chance, [setup.url()] * 2, provider, [kill, stop, stop], chance.randint(2, 4))
        with open_ledger(setup.url()) as ledger:
            assert check(ledger, told, provider) == 0, seed
