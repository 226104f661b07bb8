"""Who may take a conversation over, and when: one machine by its processes, others by the lease (R9.12)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import postgres_server
from tests.ledger.children import child
from tests.ledger.sqlite_setup import SqliteSetup
from tests.postgres_server import PostgresSetup
from turnlog import Driver, EventKind, Ledger, StaleError, UnavailableError, open_ledger, process
from turnlog.drive.claim import Claim, take
from turnlog.errors import DrivenError
from turnlog.testing.store_suite import StoreSetup
from turnlog.testing.store_suite_drivers import fenced_writes

HERE = "here:boot-1:pid:[1]"
THERE = "there:boot-9:pid:[1]"
LEASE_MS = 60_000


class Two:
    """Two machines at one ledger."""

    def __init__(self, setup: StoreSetup, patch: pytest.MonkeyPatch) -> None:
        self.setup = setup
        self.patch = patch
        self.ledger: Ledger = open_ledger(setup.url())
        self.session = self.ledger.create_session(id="conversation", cwd="/f")

    @contextmanager
    def at(self, boot: str, *, uptime_ms: int = 10**9) -> Iterator[None]:
        with self.patch.context() as patched:
            patched.setattr(process, "boot_id", lambda: boot)
            patched.setattr(process, "uptime_ms", lambda: uptime_ms)
            yield

    def take(self, boot: str, *, replace: bool = False, **more: Any) -> Claim:
        with self.at(boot, **more):
            exec_id = self.ledger.start_exec(cwd="/work").id
            return take(self.ledger, self.session, exec_id, endpoint=None, replace=replace, adoptable=True)

    def silent(self, milliseconds: int) -> None:
        """Let the driver's last sign be so much older."""
        self.setup.raw_sql(
            "UPDATE agent_sessions SET driver_heartbeat_at = driver_heartbeat_at - :ms", {"ms": milliseconds}
        )

    def observed(self, source: str) -> list[Any]:
        return [
            event.payload["evidence"]
            for event in self.ledger.history("conversation")
            if event.kind is EventKind.OBSERVED and str(event.payload["source"]).startswith(source)
        ]


@pytest.fixture(params=["sqlite", "postgres"])
def setup(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSetup:
    return SqliteSetup(tmp_path) if request.param == "sqlite" else PostgresSetup(postgres_server.shared())


@pytest.fixture
def two(setup: StoreSetup, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Two]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))  # whoever says to be another machine makes another home
    two = Two(setup, monkeypatch)
    yield two
    two.ledger.close()


def test_a_driver_elsewhere_is_not_replaced_while_its_lease_runs(two: Two) -> None:
    two.take(THERE)
    two.silent(LEASE_MS - 10_000)
    before = two.ledger.driver("conversation")
    with pytest.raises(
        DrivenError, match=r"on machine there, host \S+ \(pid \d+ in /work\), heard of 50 s ago"
    ) as raised:
        two.take(HERE)
    assert raised.value.exit_code == 4
    assert "for 10 s more" in raised.value.hint
    assert "--replace" in raised.value.hint
    assert two.ledger.driver("conversation") == before


def test_a_lease_that_ran_out_is_taken_over_and_the_loser_does_nothing_new(two: Two) -> None:
    lost = two.take(THERE).driver
    two.silent(LEASE_MS)
    won = two.take(HERE)
    assert won.driver.generation == 2
    assert won.driver.provider_generation == 2, "the engine of another machine cannot be adopted"
    assert two.observed("lease:") == [{"exec_id": lost.exec_id, "generation": 1, "lease_ms": LEASE_MS}]
    assert two.observed("death:") == [], "silence is no proof of death"
    for write in fenced_writes(two.ledger, lost):
        with pytest.raises(StaleError):
            write()
    assert two.ledger.driver("conversation") == won.driver
    assert two.ledger.verify() == []


def test_evidence_of_a_replaced_driver_stays_welcome(two: Two) -> None:
    lost = two.take(THERE).driver
    two.ledger.intend_turn("conversation", lost, "t", "request", {"text": "x"}, turn="1")
    two.silent(LEASE_MS)
    won = two.take(HERE).driver
    two.ledger.record("conversation", "t", "1", "started", {})
    two.ledger.accept_turn("conversation", lost, "request", "1")
    two.ledger.record("conversation", "t", "1", "completed", {"status": "completed"})
    [started] = [event for event in two.ledger.history("conversation") if event.kind is EventKind.STARTED]
    assert (started.exec_id, started.provider_generation) == (lost.exec_id, 1)
    assert two.ledger.driver("conversation") == won


def test_replace_does_not_wait_for_the_lease(two: Two) -> None:
    two.take(THERE)
    assert two.take(HERE, replace=True).driver.generation == 2
    assert two.observed("lease:") == []


def test_on_one_machine_the_process_decides_however_long_it_is_silent(two: Two) -> None:
    two.take(HERE)  # this very process, which lives
    two.silent(100 * LEASE_MS)
    for replace in (False, True):
        with pytest.raises(DrivenError, match="another turnlog"):
            two.take(HERE, replace=replace)


def test_a_dead_process_of_this_machine_is_not_waited_for(two: Two) -> None:
    program = (
        "import sys\nfrom turnlog import open_ledger, process\nprocess.boot_id = lambda: sys.argv[2]\n"
        "with open_ledger(sys.argv[1]) as ledger:\n    exec_id = ledger.start_exec().id\n"
        "    ledger.claim_driver('conversation', None, exec_id)\nprint('done')"
    )
    with child(program, two.setup.url(), HERE) as gone:
        assert gone.finish() == ["done"]
    assert two.take(HERE).driver.generation == 2
    assert len(two.observed("death:")) == 1


def test_a_sign_between_the_look_and_the_claim_keeps_the_driver(two: Two) -> None:
    driver = two.take(THERE).driver
    two.silent(LEASE_MS)
    age = two.ledger.driver_age("conversation")
    assert age is not None
    assert age >= LEASE_MS
    two.ledger.heartbeat("conversation", driver)
    mine = two.ledger.start_exec().id
    with pytest.raises(StaleError):
        two.ledger.claim_driver("conversation", driver, mine, lease_ms=LEASE_MS)
    assert two.ledger.driver("conversation") == driver


@pytest.mark.parametrize("skew_ms", [-3_600_000, 3_600_000])
def test_clocks_that_differ_between_machines_change_nothing(two: Two, skew_ms: int) -> None:
    real = time.time_ns
    with two.patch.context() as patched:
        patched.setattr(time, "time_ns", lambda: real() + skew_ms * 1_000_000)
        two.take(THERE)
    age = two.ledger.driver_age("conversation")
    assert age is not None
    assert 0 <= age < 30_000
    with pytest.raises(DrivenError):
        two.take(HERE)
    two.silent(LEASE_MS)
    with two.patch.context() as patched:
        patched.setattr(time, "time_ns", lambda: real() - skew_ms * 1_000_000)
        assert two.take(HERE).driver.generation == 2


def test_a_driver_without_any_sign_is_only_replaced_on_demand(two: Two) -> None:
    """Its lease cannot have run out: nobody knows when it was renewed."""
    two.take(THERE)
    two.setup.raw_sql("UPDATE agent_sessions SET driver_heartbeat_at = NULL")
    with pytest.raises(DrivenError, match="never gave a sign"):
        two.take(HERE)
    assert two.take(HERE, replace=True).driver.generation == 2


def test_a_copy_of_a_machine_is_not_its_earlier_boot(two: Two) -> None:
    """Two clones have one machine id. Who gave a sign after we booted runs on the other one."""
    two.take("twin:boot-1:pid:[1]")
    with pytest.raises(DrivenError, match="container or copy of machine twin"):
        two.take("twin:boot-2:pid:[1]", uptime_ms=3_600_000)
    assert two.observed("death:") == []
    two.silent(LEASE_MS)
    assert two.take("twin:boot-2:pid:[1]", uptime_ms=3_600_000).driver.generation == 2
    assert two.observed("death:") == []


def test_an_earlier_boot_of_this_machine_is_dead(two: Two) -> None:
    two.take("own:boot-1:pid:[1]")
    two.silent(20_000)
    assert two.take("own:boot-2:pid:[1]", uptime_ms=5_000).driver.generation == 2
    assert len(two.observed("death:")) == 1


def test_a_driver_that_lets_go_meanwhile_is_not_recorded_as_dead(two: Two) -> None:
    held = two.take(HERE).driver
    look = two.ledger.exec

    def and_release(exec_id: str) -> Any:
        if two.ledger.driver("conversation") == held:
            two.ledger.release_driver("conversation", held)
        return look(exec_id)

    two.patch.setattr(two.ledger, "exec", and_release)
    with pytest.raises(DrivenError):
        two.take(HERE)
    assert two.observed("death:") == []


def test_a_lock_that_a_driver_holds_is_not_broken_by_its_lease(two: Two) -> None:
    """R9.11: it stands between its fence and its write; whoever takes over waits until that is through."""
    driver: Driver = two.take(THERE).driver
    with two.ledger.driving("conversation", driver):
        two.silent(LEASE_MS)
        with two.setup.impatient() as hasty, pytest.raises(UnavailableError):
            hasty.claim_driver("conversation", driver, hasty.start_exec().id, lease_ms=LEASE_MS)
    assert two.ledger.driver("conversation") == driver
